"""Mixing matrices: how they start, how they are kept valid, how they are carried to other block layouts."""

from __future__ import annotations

import torch
from torch import Tensor

from mhla._numbers import integer
from mhla._partition import Partition


def mixing_init(
    partition: Partition,
    kind: str = "paper",
    *,
    sigma: float = 3.0,
    threshold: float = 1.5,
    value: float = 1.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """An initial mixing matrix ``[M, M]``; row = query block, column = source block.

    ``kind``: ``paper`` (nearer blocks weigh more, rows sum to one), the authors' transforms ``linear``, ``cos``,
    ``exp`` (with ``sigma``), ``gaussian`` and ``local`` (with ``threshold``), ``uniform``, ``running-mean`` (causal)
    or ``constant`` (with ``value``).
    """
    mixing = torch.ops.mhla.mixing_init(partition.sizes, partition.extents, kind, sigma, threshold, value)
    return mixing.to(device=device, dtype=dtype)


def resize_mixing(mixing: Tensor, source: Partition, target: Partition) -> Tensor:
    """A trained matrix (``[M, M]`` or ``[H, M, M]``) for another layout with the same number of axes."""
    return torch.ops.mhla.resize_mixing(mixing, source.sizes, source.extents, target.sizes, target.extents)


def extend_causal_mixing(mixing: Tensor, blocks: int, beyond: str = "error") -> Tensor:
    """Leading ``blocks`` x ``blocks`` corner of a causal matrix, extended where it was trained for fewer blocks.

    ``beyond``: ``error``, ``clamp`` (the last row, shifted), ``running-mean`` or ``interpolate`` (the last row,
    stretched).
    """
    return torch.ops.mhla.extend_causal_mixing(mixing, integer(blocks, "blocks"), beyond)


@torch.no_grad()
def project_mixing(mixing: Tensor, *, normalize_rows: bool = False, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Clamps ``mixing`` to ``[low, high]`` in place, then optionally divides each row by its sum; returns it."""
    torch.ops.mhla.project_mixing_(mixing, normalize_rows, low, high)
    return mixing
