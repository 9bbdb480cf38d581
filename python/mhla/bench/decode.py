"""Streaming, one token at a time, at growing contexts."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

import mhla
from mhla.bench.comparison import DTYPES
from mhla.bench.stopwatch import Stopwatch

BLOCK = 64
TRAINED_BLOCKS = 32
PIECE = 1024  # tokens of one prefill


def bytes_of_a_step(context: float, batch: int, heads: int, dim: int, element: int) -> float:
    """What one token must move on average: the mixture of the finished blocks, the rows of the open one, and a block's
    share of its border, where all summaries are read, and one summary and the next mixture written; past the trained
    length the sum of older summaries takes the place of one, and is written with one more that was read."""
    mixture = dim * dim * 4
    rows = BLOCK / 2 * 2 * dim * element
    finished = min(context / BLOCK, TRAINED_BLOCKS)
    folding = 2 if context >= TRAINED_BLOCKS * BLOCK else 0
    border = (finished + 2 + folding) * mixture / BLOCK
    return batch * heads * (mixture + rows + border)


def captured(work: Callable[[], object]) -> Callable[[], None]:
    """A CUDA graph of some work."""
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def decode(
    device: torch.device, dtype: str, batch: int, heads: int, dim: int, longest: int, bandwidth: float
) -> list[dict]:
    """A row per context, 1,024 tokens and then four times as many up to ``longest``.

    A block's worth of steps is timed as one, so that the mixing at its border is counted; on a GPU they are one
    captured graph, as the steps of a model's layers would be, so that neither the host nor the start of a graph counts.
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

    def steps() -> None:
        for _ in range(BLOCK):
            state.step(*token)

    run = captured(steps) if device.type == "cuda" else steps
    rows = []
    context = PIECE
    while context <= longest:
        while state.tokens < context:
            count = min(PIECE, context - state.tokens)
            state.prefill(*(x[:, :count] for x in tokens))
        first = state.tokens
        seconds = statistics.median(stopwatch.time(run, 1.5 * stopwatch.host_seconds) for _ in range(5)) / BLOCK
        middle = (first + state.tokens) / 2  # the context grows while it is timed
        step_bytes = bytes_of_a_step(middle, batch, heads, dim, DTYPES[dtype].itemsize)
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
