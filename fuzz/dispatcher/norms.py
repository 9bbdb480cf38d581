"""RMSNorm and LayerNorm as their definition, in float64, with what the arithmetic type makes of squares it cannot hold.

A row whose squares sum to more than the arithmetic type holds is normalised to zeros (docs/limits.md). Nothing is
certain close to that border, nor where the mean square and eps are lost among the smallest numbers.
"""

from math import prod

import torch

from formula import accumulation, require


def rate_of(x, axes, eps, dtype):
    """(1 / sqrt(mean square of x over ``axes`` + eps), where that is certain)"""
    held = torch.finfo(accumulation(dtype))
    squares = x.square().sum(axes, keepdim=True)
    inside = squares / prod(x.shape[axis] for axis in axes) + eps
    rate = torch.where(squares > held.max, torch.zeros_like(squares), torch.rsqrt(inside))
    border = (squares > 0.999 * held.max) & (squares < 1.001 * held.max)
    return rate, ~border & (inside > 1e8 * held.tiny)


def rms_norm(x, weight, norm, eps, dtype):
    """(result, where it is certain) of ``x`` in float64 that was of ``dtype``"""
    axes = {"head": (-1,), "channels": (-2, -1)}[norm]
    rate, certain = rate_of(x, axes, eps, dtype)
    y = x * rate
    if weight is not None:
        require(isinstance(weight, torch.Tensor) and weight.is_floating_point(), "weight")
        require(weight.numel() == prod(x.shape[axis] for axis in axes), "weight")
        y = y * (weight.detach().double().view(x.shape[2:]) if norm == "channels" else weight.detach().double())
    return y, certain.expand_as(x)
