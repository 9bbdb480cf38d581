#!/usr/bin/env python3
"""Writes src/text/unicode_table.inc: which characters are letters, numbers and white space, from Python's unicodedata.

    tools/unicode_table.py            # rewrites the table
    tools/unicode_table.py --check    # exit code 1 if a character of the table is of another kind here

Unicode only adds characters. So a Python with a later Unicode must know all that the table names, and one with an
earlier Unicode must name nothing else; --check tests that, and equality where both are of one version.
"""

import argparse
import pathlib
import re
import sys
import unicodedata
from itertools import pairwise

TABLE = pathlib.Path(__file__).resolve().parents[1] / "src/text/unicode_table.inc"
OTHER, LETTER, NUMBER, SPACE = range(4)
CONTROL_SPACES = {*range(0x09, 0x0E), 0x85}  # white space that has the category of control characters


def kind(code: int) -> int:
    category = unicodedata.category(chr(code))
    if category[0] == "Z" or code in CONTROL_SPACES:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)


def starts() -> list[int]:
    """4 x the first character of each run of one kind, plus the kind."""
    found = []
    for code in range(sys.maxunicode + 1):
        if not found or found[-1] & 3 != kind(code):
            found.append(4 * code + kind(code))
    return found


def table(version: str, numbers: list[int]) -> str:
    lines, line = [], ""
    for number in numbers:
        if len(line) + len(f" {number:#x},") > 120:
            lines.append(line)
            line = ""
        line += f"{' ' if line else ''}{number:#x},"
    head = (
        f"// Unicode {version}. Made by tools/unicode_table.py.\n"
        "// Where a run of characters of one kind begins: 4 x the character + the kind, 0 other, 1 letter, 2 number,\n"
        "// 3 white space.\n"
        "// clang-format off\n"
    )
    return head + "\n".join([*lines, line]) + "\n"


def kinds_of(numbers: list[int]) -> list[int]:
    kinds = []
    for number, after in pairwise([*numbers, 4 * (sys.maxunicode + 1)]):
        kinds += [number & 3] * (after // 4 - number // 4)
    return kinds


def version_number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def faults(text: str) -> list[str]:
    version = re.search(r"Unicode ([\d.]+\d)", text).group(1)
    stored = kinds_of([int(number, 16) for number in re.findall(r"0x[0-9a-f]+", text)])
    here, there = version_number(unicodedata.unidata_version), version_number(version)
    return [
        f"U+{code:04X} is of kind {stored[code]}, and {kind(code)} in Unicode {unicodedata.unidata_version}"
        for code in range(sys.maxunicode + 1)
        if stored[code] != kind(code)
        and (here == there or (stored[code] != OTHER if here > there else kind(code) != OTHER))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; compare with this Python")
    if not parser.parse_args().check:
        TABLE.write_text(table(unicodedata.unidata_version, starts()))
        return 0
    found = faults(TABLE.read_text())
    for fault in found[:20]:
        print(f"unicode_table: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
