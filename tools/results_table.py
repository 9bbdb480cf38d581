#!/usr/bin/env python3
"""Tables of docs/results.md from the runs of tools/eurosat_experiments.sh.

`tools/results_table.py out/eurosat` prints them; with `--write docs/results.md` they are put into it, between its
marks <!-- NAME --> and <!-- end -->; what was not run stays as it is there.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

TOKENS = (256, 1024)
ATTENTIONS = (("softmax", "softmax"), ("linear", "linear"), ("mhla", "MHLA"))
MIXINGS = (("mhla_frozen", "locality, frozen"), ("mhla_uniform", "uniform, learned"), ("mhla", "locality, learned"))


def read_runs(folder: Path) -> dict[str, list[dict]]:
    """Finished runs by what they have in common: "n256_mhla_lepe" -> one entry per seed."""
    runs: dict[str, list[dict]] = {}
    for file in sorted(folder.glob("*_s[0-9]/result.json")):
        result = json.loads(file.read_text())
        if result["finished"]:
            measured = file.parent / "evaluation" / "evaluation.json"
            attention = json.loads(measured.read_text())["attention"] if measured.exists() else []
            runs.setdefault(file.parent.name.rpartition("_s")[0], []).append(result | {"attention": attention})
    return runs


def accuracy(runs: list[dict], split: str) -> str:
    """Mean and standard deviation over the seeds, in percent."""
    values = [100.0 * run["results"][f"{split}/top1"] for run in runs]
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def attention_numbers(runs: list[dict]) -> list[str]:
    """Rank, effective rank and entropy: means over the layers of the run that was measured."""
    layers = next((run["attention"] for run in runs if run["attention"]), [])
    if not layers:
        return ["-", "-", "-"]

    def mean(key: str) -> float:
        return statistics.mean(layer[key] for layer in layers)

    return [f"{mean('rank'):.0f}", f"{mean('effective_rank'):.1f}", f"{mean('entropy'):.2f}"]


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def accuracy_table(runs: dict[str, list[dict]]) -> str:
    header = ["attention", "LePE"] + [f"{tokens:,} tokens, {split}" for tokens in TOKENS for split in ("val", "test")]
    rows = []
    for lepe, said in (("", "no"), ("_lepe", "yes")):
        for key, name in ATTENTIONS:
            found = [runs.get(f"n{tokens}_{key}{lepe}", []) for tokens in TOKENS]
            rows.append([name, said] + [accuracy(one, split) for one in found for split in ("val", "test")])
    return table(header, rows)


def mixing_table(runs: dict[str, list[dict]]) -> str:
    rows = []
    for key, name in MIXINGS:
        found = runs.get(f"n1024_{key}", [])
        rows.append([name, accuracy(found, "val"), accuracy(found, "test"), *attention_numbers(found)])
    return table(["mixing", "val", "test", "rank", "effective rank", "entropy, nats"], rows)


def attention_table(runs: dict[str, list[dict]]) -> str:
    rows = []
    for tokens in TOKENS:
        for lepe, said in (("", "no"), ("_lepe", "yes")):
            for key, name in ATTENTIONS:
                rows.append([f"{tokens:,}", name, said, *attention_numbers(runs.get(f"n{tokens}_{key}{lepe}", []))])
    return table(["tokens", "attention", "LePE", "rank", "effective rank", "entropy, nats"], rows)


def shipped_model(folder: Path) -> str:
    file = folder / "best" / "result.json"
    result = json.loads(file.read_text()) if file.exists() else {"finished": False}
    if not result["finished"]:
        return ""
    numbers = result["results"]
    keys = ["val/top1", "val/top5", "test/top1", "test/top5"]
    header = ["validation top-1", "validation top-5", "test top-1", "test top-5"]
    return table(header, [[f"{100.0 * numbers[key]:.2f}" for key in keys]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what tools/eurosat_experiments.sh was given as --out")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the document to put the tables into")
    arguments = parser.parse_args()
    runs = read_runs(arguments.folder)
    if not runs:
        print(f"results_table: {arguments.folder}: no finished run (NAME_sSEED/result.json)", file=sys.stderr)
        return 1
    tables = {
        "accuracy": accuracy_table(runs),
        "mixing": mixing_table(runs),
        "attention": attention_table(runs),
        "shipped": shipped_model(arguments.folder),
    }
    tables = {name: text for name, text in tables.items() if text}
    if arguments.write is None:
        print("\n\n".join(f"{name}\n\n{text}" for name, text in tables.items()))
        return 0
    document = arguments.write.read_text()
    for name, text in tables.items():
        before, mark, rest = document.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            print(f"results_table: {arguments.write}: no marks <!-- {name} --> and <!-- end -->", file=sys.stderr)
            return 1
        document = before + mark + text + "\n" + end + after
    arguments.write.write_text(document)
    print(f"{sum(map(len, runs.values()))} runs, tables written to {arguments.write}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
