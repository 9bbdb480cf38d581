#!/usr/bin/env python3
"""Refreshes the option tables of the documentation from the program itself.

`mhla docs` prints the options of every command between `<!-- options: COMMAND -->` and `<!-- end -->`. Blocks with the
same first line in docs/*.md are replaced by them. With --check nothing is written, and the exit code is 1 if a block
differs.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"<!-- options: (.+?) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def refreshed(page: str, tables: dict[str, str], unused: set[str]) -> str:
    def replace(block: re.Match) -> str:
        command = block.group(1)
        if command not in tables:
            sys.exit(f"{command!r} is no command with options; it may be: {', '.join(tables)}")
        unused.discard(command)
        return f"<!-- options: {command} -->\n{tables[command]}<!-- end -->\n"

    return BLOCK.sub(replace, page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/bin/mhla", help="the program; default %(default)s")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is out of date")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.program).is_file():
        parser.error(f"--program is {arguments.program}, which does not exist; `make demo` builds it")
    printed = subprocess.run([arguments.program, "docs"], check=True, capture_output=True, text=True).stdout
    tables = dict(BLOCK.findall(printed))
    unused = set(tables)
    stale = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        page = path.read_text()
        new = refreshed(page, tables, unused)
        if new == page:
            continue
        stale.append(path)
        if not arguments.check:
            path.write_text(new)
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date; run tools/cli_docs.py' if arguments.check else 'refreshed'}")
    if unused:
        print(f"docs/ has no table of: {', '.join(sorted(unused))}")
    return 1 if unused or (arguments.check and stale) else 0


if __name__ == "__main__":
    sys.exit(main())
