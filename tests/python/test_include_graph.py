"""tools/include_graph.py: no floor of src/ includes one above it, no folders include each other in a circle."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def check(root):
    tool = ROOT / "tools" / "include_graph.py"
    return subprocess.run([sys.executable, tool, "--check", "--root", str(root)], capture_output=True, text=True)


def test_no_edge_upwards_and_no_cycle_and_the_picture_is_of_today():
    result = check(ROOT)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"src/core/a.hpp": '#include "cpu/b.hpp"'}, "src/core includes src/cpu, which is a floor above it"),
        (
            {"src/cuda/x/a.hpp": '#include "cuda/y/b.hpp"', "src/cuda/y/b.hpp": '#include "cuda/x/a.hpp"'},
            "folders include each other: cuda/",
        ),
        ({"src/attic/a.hpp": '#include "core/a.hpp"'}, "src/attic is not a floor"),
        ({"include/mhla/a.hpp": '#include "core/a.hpp"'}, "src/include includes src/core"),
    ],
)
def test_what_does_not_belong_is_named(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    result = check(tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
