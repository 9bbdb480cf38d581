"""Time on the CPU and on a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

MOST_RUNS = 1000


class Stopwatch:
    """Seconds of work on a device: by the clock, or by events after a write of more than the second-level cache."""

    def __init__(self, device: torch.device) -> None:
        self.gpu = device.type == "cuda"
        self.host_seconds = 0.0  # of the latest work, until it was enqueued
        if self.gpu:
            self._other_data = torch.zeros(256 << 20, dtype=torch.uint8, device=device)
            self._sweep_seconds = 1e-4
            self._sweep_seconds = min(self.time(self._other_data.zero_) for _ in range(3))

    def time(self, work: Callable[[], object], head_start: float = 0.0) -> float:
        """The device is kept busy for ``head_start`` seconds before, so that it does not wait for the host."""
        if self.gpu:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(1 + int(head_start / self._sweep_seconds)):
                self._other_data.zero_()
            start.record()
        begin = time.perf_counter()
        work()
        self.host_seconds = time.perf_counter() - begin
        if not self.gpu:
            return self.host_seconds
        end.record()
        end.synchronize()
        return 1e-3 * start.elapsed_time(end)

    def race(self, works: list[Callable[[], object]], min_seconds: float) -> list[list[float]]:
        """Seconds of every run of every work, in turns until each has run long enough."""
        enough = 25 if self.gpu else 7
        seconds: list[list[float]] = [[] for _ in works]
        host = [0.0 for _ in works]

        def done(runs: list[float]) -> bool:
            total = sum(runs)
            return len(runs) >= MOST_RUNS or (len(runs) >= enough and total >= min_seconds) or total >= 5 * min_seconds

        for i, work in enumerate(works):
            self.time(work)
            host[i] = self.host_seconds
        while not all(done(runs) for runs in seconds):
            for i, work in enumerate(works):
                if not done(seconds[i]):
                    seconds[i].append(self.time(work, 1.5 * host[i]))
                    host[i] = self.host_seconds
        return seconds


def copy_bandwidth(device: torch.device, stopwatch: Stopwatch) -> float:
    """Bytes read plus bytes written per second by a large copy."""
    source = torch.ones(1 << (28 if stopwatch.gpu else 25), device=device)
    target = source.clone()
    return 2 * source.nbytes / statistics.median(stopwatch.time(lambda: target.copy_(source)) for _ in range(9))
