#!/usr/bin/env python3
"""Prints one hash per output of the operator, for comparing two builds bit by bit.

    tools/output_hashes.py [--device cpu|cuda] > before.txt     # then the other build, and diff

Every bench shape, forward and backward, with and without a normaliser, in each element type; and a state
beyond its trained blocks. The package that ``import mhla`` finds is the one that is hashed.
"""

from __future__ import annotations

import argparse
import hashlib

import torch

import mhla
from mhla.bench.shapes import SHAPES

NAMES = ("o", "d_q", "d_k", "d_v", "d_mixing")


def digest(tensor: torch.Tensor) -> str:
    data = tensor.detach().contiguous().view(torch.uint8).cpu()
    return hashlib.sha256(data.numpy()).hexdigest()[:16]


def random(*sizes: int, device: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Drawn on the CPU, so that it is the same everywhere."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def attention(name: str, device: str, dtype: torch.dtype, normalizer: str) -> list[str]:
    shape = SHAPES[name]
    batch, heads = shape.gpu if device == "cuda" else shape.cpu
    tokens = shape.partition.tokens
    widths = (shape.dim, shape.dim, shape.value_dim or shape.dim)
    tensors = [random(batch, tokens, heads, width, device=device, dtype=dtype, seed=n) for n, width in enumerate(widths)]
    mixing = mhla.mixing_init(shape.partition, "running-mean" if shape.causal else "paper", device=device)
    leaves = [x.requires_grad_() for x in (*tensors, mixing)]
    o = mhla.attention(*leaves, partition=shape.partition, causal=shape.causal, normalizer=normalizer)
    gradients = torch.autograd.grad(o, leaves, random(*o.shape, device=device, dtype=dtype, seed=9))
    return [digest(x) for x in (o, *gradients)]


def streaming(device: str, dtype: torch.dtype, beyond: str) -> str:
    shape = SHAPES["tiny-causal"]
    mixing = mhla.mixing_init(shape.partition, "running-mean", device=device)
    sizes = {"block_size": 16, "batch": 2, "heads": 2, "key_dim": 16, "value_dim": 24}
    most = 96 if device == "cuda" and beyond == "interpolate" else None
    state = mhla.State(mixing, **sizes, dtype=dtype, beyond=beyond, max_tokens=most)
    q, k, v = (random(2, 96, 2, width, device=device, dtype=dtype, seed=n) for n, width in enumerate((16, 16, 24)))
    o = [state.prefill(q[:, :37], k[:, :37], v[:, :37])]
    o += [state.step(q[:, t], k[:, t], v[:, t])[:, None] for t in range(37, 96)]
    return digest(torch.cat(o, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(2)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        for name in SHAPES:
            if dtype not in (torch.float32, torch.bfloat16) and name in ("video", "long"):
                continue
            for normalizer in ("none", "paper"):
                hashes = attention(name, device, dtype, normalizer)
                text = " ".join(f"{what}={value}" for what, value in zip(NAMES, hashes, strict=True))
                print(f"{name} {dtype} {normalizer}: {text}", flush=True)
        for beyond in ("clamp", "running-mean", "interpolate"):
            print(f"state {dtype} {beyond}: {streaming(device, dtype, beyond)}", flush=True)


if __name__ == "__main__":
    main()
