"""The command line of ``python -m mhla.bench``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from mhla.bench.comparison import DTYPES, IMPLS, Comparison
from mhla.bench.decode import decode
from mhla.bench.overhead import call_overhead
from mhla.bench.shapes import SHAPES
from mhla.bench.stopwatch import Stopwatch, copy_bandwidth
from mhla.bench.tables import comparison_table, decode_table, overhead_table


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mhla.bench", description="Time the operator against PyTorch.")
    names = {"metavar": "NAME", "nargs": "+"}
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shape", choices=SHAPES, **names, help=f"of {', '.join(SHAPES)}; all but the tiny ones")
    parser.add_argument("--impl", choices=IMPLS, **names, help=f"of {', '.join(IMPLS)}")
    parser.add_argument("--passes", choices=["fwd", "fwd+bwd"], **names, default=["fwd", "fwd+bwd"])
    parser.add_argument("--normalizer", choices=["none", "paper"], **names, default=["none", "paper"])
    parser.add_argument("--dtype", choices=DTYPES, help="bf16 on a GPU, else f32")
    parser.add_argument("--min-time", type=float, default=0.2, metavar="S", help="seconds of timing per implementation")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, short timing, nothing compiled")
    parser.add_argument("--decode", action="store_true", help="instead: streaming, one token at a time")
    parser.add_argument("--json", metavar="FILE", help='also write the rows as JSON; "-" is the standard output')
    options = parser.parse_args()
    gpu = options.device == "cuda"
    if gpu and not torch.cuda.is_available():
        parser.error("--device is cuda, but torch sees no GPU")
    if not 0 <= options.min_time < float("inf"):
        parser.error(f"--min-time is {options.min_time}; it must be seconds, 0 or more")
    if options.json not in (None, "-") and not Path(options.json).parent.is_dir():
        parser.error(f"--json is {options.json}, but there is no folder {Path(options.json).parent}")
    softmax = ["sdpa-cudnn", "sdpa-flash"] if gpu else ["sdpa"]
    compiled = [] if options.quick else ["composed-compile", "linear-compile"]
    options.impl = options.impl or ["mhla", "composed", "linear", *compiled, *softmax]
    options.shape = options.shape or [name for name in SHAPES if name.startswith("tiny") == options.quick]
    options.dtype = options.dtype or ("bf16" if gpu else "f32")
    options.min_time = min(options.min_time, 0.02) if options.quick else options.min_time
    return options


def compare(options: argparse.Namespace, device: torch.device, stopwatch: Stopwatch, bandwidth: float) -> list[dict]:
    rows: list[dict] = []
    for shape in (SHAPES[name] for name in options.shape):
        for backward in (name == "fwd+bwd" for name in options.passes):
            impls = options.impl
            for normalizer in options.normalizer:
                if shape.causal and normalizer != "none":
                    continue
                print(f"{shape.name}, normalizer {normalizer}{', backward' if backward else ''}", file=sys.stderr)
                torch.compiler.reset()
                comparison = Comparison(shape, device, options.dtype, normalizer, backward)
                rows += comparison.rows(impls, stopwatch, bandwidth, options.min_time)
                impls = [impl for impl in impls if not impl.startswith("sdpa")]  # softmax knows no normaliser
    return rows


def main() -> int:
    options = arguments()
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    stopwatch = Stopwatch(device)
    bandwidth = copy_bandwidth(device, stopwatch)
    text = sys.stderr if options.json == "-" else sys.stdout
    where = torch.cuda.get_device_name(device) if stopwatch.gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}; copy {bandwidth / 1e9:.1f} GB/s\n", file=text)
    if options.decode:
        batch, longest = (64, 1 << 20) if stopwatch.gpu else (1, 1 << 12)
        rows = decode(device, options.dtype, batch, heads=12, dim=128, longest=longest, bandwidth=bandwidth)
        print(decode_table(rows), file=text)
    else:
        rows = compare(options, device, stopwatch, bandwidth)
        for name in options.passes:
            print(f"{name}, {options.dtype}, median milliseconds\n{comparison_table(rows, name)}", file=text)
        calls = 20 if options.quick else 1000
        overhead = call_overhead(options.impl, device, options.dtype, calls)
        print(f"{calls} calls of a tiny shape in a row, nothing awaited\n{overhead_table(overhead)}", file=text)
        rows += overhead
    for row in rows:
        for word in ("left_out", "failed"):
            if word in row:
                print(
                    f"{word.replace('_', ' ')}: {row['impl']} at {row['shape']}, {row['pass']}: {row[word]}", file=text
                )
    if options.json:
        content = json.dumps(rows, indent=2) + "\n"
        sys.stdout.write(content) if options.json == "-" else Path(options.json).write_text(content)
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("python -m mhla.bench: interrupted, nothing was written")
