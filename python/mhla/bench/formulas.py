"""What the operator is measured against, in plain PyTorch: all from and to ``[B, N, H, D]`` tensors."""

from __future__ import annotations

from contextlib import nullcontext

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

EPS = 1e-6


def composed(
    q: Tensor, k: Tensor, v: Tensor, mixing: Tensor, sizes: tuple, extents: tuple, normalizer: str, causal: bool
) -> Tensor:
    """MHLA in plain PyTorch operations, for equal blocks.

    The features are ReLU; the identity where a causal call has no normalizer.
    """
    axes = range(len(sizes))
    counts = [size // extent for size, extent in zip(sizes, extents, strict=True)]
    split = [n for pair in zip(counts, extents, strict=True) for n in pair]
    heads, width = 1 + 2 * len(sizes), 2 + 2 * len(sizes)
    order = [0, heads, *(1 + 2 * a for a in axes), *(2 + 2 * a for a in axes), width]

    def blocks(x: Tensor) -> Tensor:  # [B, H, M, S, D]
        return x.unflatten(1, split).permute(order).flatten(2 + len(sizes), -2).flatten(2, 1 + len(sizes))

    def mix(weights: Tensor, x: Tensor) -> Tensor:
        return (weights @ x.flatten(3)).view(x.shape)

    q, k, v = blocks(q), blocks(k), blocks(v)
    if not causal:
        q, k = q.relu() + EPS, k.relu() + EPS
    elif normalizer == "paper":
        q, k = q.relu(), k.relu()
    mixing = mixing.to(q.dtype)
    if causal:
        q = q * q.shape[-1] ** -0.5
        scores = (q @ k.mT).tril() * mixing.diagonal()[:, None, None]
        past = mixing.tril(-1)
        o = q @ mix(past, k.mT @ v) + scores @ v
        if normalizer == "paper":
            o = o / (q @ mix(past, k.sum(-2))[..., None] + scores.sum(-1, keepdim=True) + EPS)
    else:
        o = q @ mix(mixing, k.mT @ v)
        if normalizer == "paper":
            o = o / (q @ mix(mixing, k.sum(-2))[..., None] + EPS)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return o.unflatten(3, extents).unflatten(2, counts).permute(inverse).flatten(1, 2 * len(sizes))


def linear(q: Tensor, k: Tensor, v: Tensor, normalizer: str, chunk: int) -> Tensor:
    """Linear attention without blocks; causal, in chunks with running sums, where ``chunk`` is not 0."""
    if chunk:
        q, k, v = (x.unflatten(1, (-1, chunk)).permute(0, 3, 1, 2, 4) for x in (q, k, v))
        S = k.mT @ v
        o = q @ (S.cumsum(2) - S) + (q @ k.mT).tril() @ v
        return o.permute(0, 2, 3, 1, 4).flatten(1, 2)
    q, k, v = q.relu().transpose(1, 2), k.relu().transpose(1, 2), v.transpose(1, 2)
    o = q @ (k.mT @ v)
    if normalizer == "paper":
        o = o / (q @ k.sum(-2)[..., None] + EPS)
    return o.transpose(1, 2).contiguous()


def softmax(q: Tensor, k: Tensor, v: Tensor, causal: bool, backend: SDPBackend | None) -> Tensor:
    with nullcontext() if backend is None else sdpa_kernel(backend):
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
