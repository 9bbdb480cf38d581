"""Times the fused operators against the same formulas under torch.compile, and against the bytes they must move.

    python bench/fused.py > fused.json

Every result is checked against the formula with float32 arithmetic before it is timed. Caches are flushed between runs;
times are medians.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn import functional

from mhla import fused

SHAPES = {  # B, N, H, D, and the grid of the tokens
    "wan 31500": (1, 31500, 12, 128, (21, 30, 50)),
    "dit-s/2 256px": (256, 256, 6, 64, (16, 16)),
    "language model": (16, 2048, 4, 256, (2048,)),
}
LIMIT = 8e-3  # relative RMS in bfloat16


def rotary_formula(x, weight, cos, sin):
    y = functional.rms_norm(x.float().flatten(2), (x.shape[2] * x.shape[3],), weight, 1e-6).view(x.shape)
    a, b = torch.relu(y).unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


def gated_formula(x, weight, gate):
    y = functional.rms_norm(x.float(), x.shape[-1:], weight, 1e-6)
    return (y * functional.silu(gate.float())).to(x.dtype)


def modulate_formula(x, scale, shift):
    y = functional.layer_norm(x.float(), x.shape[-1:], eps=1e-6)
    return (y * (1 + scale[:, None]) + shift[:, None]).to(x.dtype)


def cases(shape, device):
    """name -> (fused call, formula, inputs, token tensors moved forward, backward)"""
    batch, tokens, heads, dim, grid = shape

    def new(*sizes, dtype=torch.bfloat16):
        return torch.randn(*sizes, device=device, dtype=dtype, requires_grad=True)

    x, gate, flat = new(batch, tokens, heads, dim), new(batch, tokens, heads, dim), new(batch, tokens, heads * dim)
    channels, head = new(heads * dim, dtype=torch.float32), new(dim, dtype=torch.float32)
    scale, shift = new(batch, heads * dim, dtype=torch.float32), new(batch, heads * dim, dtype=torch.float32)
    rotary = fused.Rotary.grid(grid, dim, device=device)
    parts, start = [[], []], 0
    for axis, (size, pairs) in enumerate(zip(grid, rotary.pairs, strict=True)):
        view = [1] * len(grid) + [pairs]
        view[axis] = size
        for part, table in zip(parts, (rotary.cos, rotary.sin), strict=True):
            part.append(table[start : start + size * pairs].view(view).expand(*grid, pairs))
        start += size * pairs
    cos, sin = (torch.cat(part, -1).reshape(tokens, 1, -1) for part in parts)
    return {
        "rotary_features": (
            lambda x, w: fused.rotary_features(x, rotary, norm="channels", weight=w),
            lambda x, w: rotary_formula(x, w, cos, sin),
            (x, channels),
            2,
            3,
        ),
        "gated_norm": (fused.gated_norm, gated_formula, (x, head, gate), 3, 5),
        "modulate": (fused.modulate, modulate_formula, (flat, scale, shift), 2, 3),
    }


def timed(call, device, runs):
    flush = torch.empty(256 << 20 if device == "cuda" else 1, dtype=torch.uint8, device=device)
    times = []
    for run in range(runs + 3):
        flush.zero_()
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            elapsed = begin.elapsed_time(end)
        else:
            begin = time.perf_counter()
            call()
            elapsed = (time.perf_counter() - begin) * 1e3
        if run >= 3:
            times.append(elapsed)
    return statistics.median(times), max(times) - min(times)


def relative_rms(actual, expected):
    return ((actual.float() - expected.float()).norm() / expected.float().norm()).item()


def pass_of(call, inputs, d_y, direction):
    """What is timed: one forward, or one backward, pass."""
    if direction == "forward":
        return torch.no_grad()(lambda: call(*inputs))
    y = call(*inputs)
    return lambda: torch.autograd.grad(y, inputs, d_y, retain_graph=True)


def measure(name, shape, device, bandwidth, runs):
    for operator, (ours, formula, inputs, moved_forward, moved_backward) in cases(shape, device).items():
        peer = torch.compile(formula)
        y, expected = ours(*inputs), formula(*inputs)
        d_y = torch.randn_like(y)
        gradients = zip(torch.autograd.grad(y, inputs, d_y), torch.autograd.grad(expected, inputs, d_y), strict=True)
        errors = [relative_rms(y, expected), *(relative_rms(a, b) for a, b in gradients)]
        if max(errors) > LIMIT:
            sys.exit(f"{operator} at {name}: relative RMS {max(errors):.2e}; it must be at most {LIMIT}")
        for direction, moved in (("forward", moved_forward), ("backward", moved_backward)):
            (ms, spread), (peer_ms, peer_spread) = (
                timed(pass_of(call, inputs, d_y, direction), device, runs) for call in (ours, peer)
            )
            floor = moved * y.numel() * y.element_size() / bandwidth / 1e6
            yield {
                "shape": name,
                "operator": operator,
                "direction": direction,
                "ms": ms,
                "spread_ms": spread,
                "floor_ms": floor,
                "of_floor": ms / floor,
                "compile_ms": peer_ms,
                "compile_spread_ms": peer_spread,
                "speedup": peer_ms / ms,
                "relative_rms": max(errors),
            }


def copy_bandwidth(device):
    """GB/s, reading and writing counted."""
    source = torch.empty(1 << 30 if device == "cuda" else 64 << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / timed(lambda: target.copy_(source), device, 20)[0] / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--bandwidth", type=float, help="GB/s of a copy; measured when not given")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="one of them only; may be repeated")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device; --device cpu runs on the CPU")
    torch.manual_seed(0)
    bandwidth = arguments.bandwidth or copy_bandwidth(arguments.device)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    rows = []
    for shape in arguments.shape or SHAPES:
        for row in measure(shape, SHAPES[shape], arguments.device, bandwidth, arguments.runs):
            rows.append(row)
            print(
                f"{row['shape']:15} {row['operator']:16} {row['direction']:9} {row['ms']:8.4f} ms"
                f"  {row['of_floor']:5.2f} x floor  {row['speedup']:5.2f} x compile",
                file=sys.stderr,
            )
    json.dump({"device": name, "torch": torch.__version__, "copy_GB_per_s": bandwidth, "results": rows}, sys.stdout)


if __name__ == "__main__":
    main()
