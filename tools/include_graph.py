#!/usr/bin/env python3
"""Draws which folder of src/ includes which, and checks that the picture is a house.

    tools/include_graph.py            # prints the edges and rewrites docs/images/floors.svg
    tools/include_graph.py --check    # exit code 1 for an edge upwards, a cycle, or a picture that is out of date

FLOORS is the order, lowest first: a floor includes floors before it. Folders inside a floor (src/cuda/mixing) must not
include each other in a circle either.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

FLOORS = (
    "include",
    "core",
    "cpu",
    "cuda",
    "api",
    "torch",
    "io",
    "report",
    "text",
    "data",
    "tensor_io",
    "nn",
    "analysis",
    "diffusion",
    "models",
    "train",
    "tasks",
    "python",
    "cli",
)
# What floors are for, as the picture says it.
ABOUT = {
    "include": "public headers",
    "core": "values and checks",
    "cpu": "CPU back end",
    "cuda": "CUDA back end",
    "api": "plan, state, C ABI",
    "torch": "operators, autograd",
    "io": "files",
    "report": "pages and charts",
    "text": "tokenizers",
    "data": "images, tokens",
    "tensor_io": "tensors in files",
    "nn": "layers",
    "analysis": "rank, entropy",
    "diffusion": "schedules, samplers",
    "models": "families, weights",
    "train": "the loop",
    "tasks": "loss, recipe, report",
    "python": "for the Python package",
    "cli": "the program",
}
SOURCES = {".cpp", ".hpp", ".cu", ".cuh", ".h"}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)

Edges = dict[str, set[str]]


def included_folder(path: str) -> str:
    """The folder of a header that is included as ``path``; public headers are one folder."""
    return "include" if path.startswith("mhla/") else str(Path(path).parent)


def folder_edges(root: Path) -> Edges:
    """Folder -> folders whose headers its files include, without itself."""
    edges: Edges = defaultdict(set)
    for top in (root / "src", root / "include"):
        for file in sorted(top.rglob("*")):
            if file.suffix not in SOURCES:
                continue
            folder = "include" if top.name == "include" else str(file.parent.relative_to(top))
            edges[folder] |= {included_folder(path) for path in INCLUDE.findall(file.read_text())}
    return {folder: targets - {folder} for folder, targets in edges.items()}


def floor_edges(folders: Edges) -> Edges:
    """The same between floors."""
    edges: Edges = defaultdict(set)
    for folder, targets in folders.items():
        floor = folder.split("/")[0]
        edges[floor] |= {target.split("/")[0] for target in targets} - {floor}
    return edges


def faults(folders: Edges) -> list[str]:
    """What is wrong, a line each."""
    found = []
    for floor, targets in sorted(floor_edges(folders).items()):
        unknown = [name for name in (floor, *sorted(targets)) if name not in FLOORS]
        found += [f"src/{name} is not a floor; add it to FLOORS in tools/include_graph.py" for name in unknown]
        if not unknown:
            above = [t for t in sorted(targets) if FLOORS.index(t) >= FLOORS.index(floor)]
            found += [f"src/{floor} includes src/{target}, which is a floor above it" for target in above]
    try:
        TopologicalSorter(folders).prepare()
    except CycleError as error:
        found.append("folders include each other: " + " -> ".join(reversed(error.args[1])))
    return sorted(set(found))


def reduced(edges: Edges) -> Edges:
    """Without edges that a longer way says as well."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(edges.get(start, ()))
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += edges.get(name, ())
        return seen

    return {name: {t for t in targets if not any(t in reached(o) for o in targets - {t})} for name, targets in edges.items()}


def levels(edges: Edges) -> dict[str, int]:
    """How many floors a floor stands on, one above the other."""
    level: dict[str, int] = {}
    for name in TopologicalSorter(edges).static_order():
        level[name] = 1 + max((level[target] for target in edges.get(name, ())), default=-1)
    return level


def svg(edges: Edges) -> str:
    width, height, gap_x, gap_y, margin = 150, 44, 22, 40, 12
    level = levels(edges)
    rows = [[name for name in FLOORS if level.get(name) == n] for n in range(max(level.values()) + 1)]
    total = max(len(row) for row in rows) * (width + gap_x) - gap_x + 2 * margin
    place = {}
    for n, row in enumerate(rows):
        left = (total - len(row) * (width + gap_x) + gap_x) / 2
        for column, name in enumerate(row):
            place[name] = (left + column * (width + gap_x), margin + (len(rows) - 1 - n) * (height + gap_y))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {len(rows) * (height + gap_y) - gap_y + 2 * margin}" '
        'font-family="sans-serif" text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8896a5"/></marker></defs>',
    ]
    for name, targets in sorted(reduced(edges).items()):
        for target in sorted(targets):
            (x, y), (to_x, to_y) = place[name], place[target]
            lines.append(
                f'<line x1="{x + width / 2:.0f}" y1="{y + height}" x2="{to_x + width / 2:.0f}" y2="{to_y}" '
                'stroke="#8896a5" stroke-width="1.3" marker-end="url(#tip)"/>'
            )
    for name, (x, y) in place.items():
        lines.append(f'<rect x="{x:.0f}" y="{y}" width="{width}" height="{height}" rx="6" fill="#eef3f8" stroke="#4a6a8a"/>')
        lines.append(f'<text x="{x + width / 2:.0f}" y="{y + 19}" font-size="15" font-weight="600">{name}</text>')
        lines.append(f'<text x="{x + width / 2:.0f}" y="{y + 35}" font-size="11" fill="#556">{ABOUT[name]}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; say what is wrong")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="of the project")
    options = parser.parse_args()
    if not any((options.root / folder).is_dir() for folder in ("src", "include")):
        parser.error(f"--root is {options.root}, where there is no src/ and no include/")
    folders = folder_edges(options.root)
    found = faults(folders)
    picture = options.root / "docs/images/floors.svg"
    if not found and options.check and (not picture.exists() or picture.read_text() != svg(floor_edges(folders))):
        found.append("docs/images/floors.svg is out of date; run tools/include_graph.py")
    for fault in found:
        print(f"include_graph: {fault}", file=sys.stderr)
    if not found and not options.check:
        picture.write_text(svg(floor_edges(folders)))
        for folder, targets in sorted(folders.items()):
            print(f"{folder}: {' '.join(sorted(targets))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
