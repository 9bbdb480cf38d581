"""Streaming, one token at a time, at growing contexts."""

from __future__ import annotations

import statistics

import torch

import mhla
from mhla.bench.comparison import DTYPES
from mhla.bench.stopwatch import Stopwatch

BLOCK = 64
TRAINED_BLOCKS = 32
PIECE = 1024  # tokens of one prefill


def decode(
    device: torch.device, dtype: str, batch: int, heads: int, dim: int, longest: int, bandwidth: float
) -> list[dict]:
    """A row per context, 1,024 tokens and then four times as many up to ``longest``.

    A step reads the mixture of the finished blocks and reads and writes the sum of the open one. A block's worth of
    steps is timed as one, so that the mixing at its border is counted.
    """
    stopwatch = Stopwatch(device)
    line = mhla.Partition.line(TRAINED_BLOCKS * BLOCK, BLOCK)
    state = mhla.State(
        mhla.mixing_init(line, "running-mean", device=device),
        batch=batch,
        heads=heads,
        key_dim=dim,
        value_dim=dim,
        block_size=BLOCK,
        dtype=DTYPES[dtype],
        normalizer="none",
        scale=dim**-0.5,
        beyond="clamp",
    )
    tokens = [torch.randn(batch, PIECE, heads, dim, device=device).to(DTYPES[dtype]) for _ in range(3)]
    token = [x[:, 0].contiguous() for x in tokens]
    step_bytes = 3 * batch * heads * dim * dim * 4

    def steps() -> None:
        for _ in range(BLOCK):
            state.step(*token)

    rows = []
    context = PIECE
    while context <= longest:
        while state.tokens < context:
            count = min(PIECE, context - state.tokens)
            state.prefill(*(x[:, :count] for x in tokens))
        seconds = statistics.median(stopwatch.time(steps, 1.5 * stopwatch.host_seconds) for _ in range(5)) / BLOCK
        rows.append(
            {
                "shape": f"decode ({batch}, {heads}, {context}, {dim})",
                "device": device.type,
                "dtype": dtype,
                "pass": "decode",
                "impl": "mhla",
                "context": context,
                "us_per_token": 1e6 * seconds,
                "bytes_per_second": step_bytes / seconds,
                "of_copy": step_bytes / seconds / bandwidth,
            }
        )
        context *= 4
    return rows
