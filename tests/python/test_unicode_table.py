"""tools/unicode_table.py: the kinds of characters in src/text are those of Unicode."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def check(root):
    return subprocess.run([sys.executable, root / "tools/unicode_table.py", "--check"], capture_output=True, text=True)


def test_the_table_is_that_of_unicode():
    result = check(ROOT)
    assert result.returncode == 0, result.stderr


def test_a_wrong_kind_is_named(tmp_path):
    for name in ("tools/unicode_table.py", "src/text/unicode_table.inc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    table = tmp_path / "src/text/unicode_table.inc"
    table.write_text(table.read_text().replace(" 0xc2,", " 0xc1,"))  # digits as letters
    result = check(tmp_path)
    assert result.returncode == 1
    assert "U+0030 is of kind 1, and 2 in Unicode" in result.stderr
