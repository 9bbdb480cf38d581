"""Random and recorded calls of everything the package offers give what the formula says, or an error with a name."""

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"


@pytest.mark.parametrize(
    "arguments",
    [["--count", "3000", "--processes", "1"], ["--replay", str(FUZZ / "corpus" / "dispatcher.jsonl")]],
    ids=["random", "recorded"],
)
def test_calls_are_right_or_refused_by_name(arguments):
    run = subprocess.run([sys.executable, str(FUZZ / "dispatcher"), *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
