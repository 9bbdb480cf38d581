"""What one call costs the host: many calls of a tiny shape in a row, nothing awaited."""

from __future__ import annotations

import time

import torch

from mhla.bench.comparison import Comparison
from mhla.bench.shapes import SHAPES


def call_overhead(impls: list[str], device: torch.device, dtype: str, calls: int) -> list[dict]:
    """Rows with ``us_per_call``, forward and forward with backward."""
    rows = []
    for backward in (False, True):
        comparison = Comparison(SHAPES["tiny"], device, dtype, "paper", backward)
        for impl in impls:
            row = {"shape": "tiny", "device": device.type, "dtype": dtype, "impl": impl}
            row["pass"] = "fwd+bwd" if backward else "fwd"
            rows.append(row)
            try:
                run = comparison.runner(impl)
                for _ in range(10):
                    run()
            except Exception as error:  # whatever a peer or a compiler throws is a finding
                row["left_out"] = (str(error).strip() or type(error).__name__).splitlines()[0]
                continue
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            row["us_per_call"] = 1e6 * (time.perf_counter() - begin) / calls
            if device.type == "cuda":
                torch.cuda.synchronize(device)
    return rows
