"""The fused operators, each in one pass over the tokens: what comes right before and after it in a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from mhla._numbers import integer, integers

__all__ = ["Rotary", "gated_norm", "modulate", "rotary_features"]


def _check_tensor(x: object) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}; it must be a tensor")


class Rotary(NamedTuple):
    """Rotation by position: tables of cosines and sines, and which elements they turn.

    The tokens are a grid of one to three axes in raster order; the first ``pairs[0]`` pairs of a head turn with the
    coordinate of axis 0, the next ``pairs[1]`` with axis 1, and so on. Elements past the pairs are left alone.
    """

    cos: Tensor
    """For each axis in turn ``[sizes, pairs]``, flat; or ``[N, P]``, or ``[B, N, P]`` for one table per batch row."""
    sin: Tensor
    sizes: tuple[int, ...]
    pairs: tuple[int, ...]
    layout: str = "half"
    """``half``: pairs (j, j + R / 2) of the first R elements; ``adjacent``: pairs (2j, 2j + 1)."""

    @staticmethod
    def line(
        tokens: int,
        dim: int,
        *,
        layout: str = "half",
        theta: float = 10000.0,
        offset: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Rotary:
        """Positions from ``offset`` on; pair j of the P = dim / 2 turns by ``theta^(-j / P)`` from one to the next."""
        sizes, pairs = (integer(tokens, "tokens"),), (integer(dim, "dim") // 2,)
        return Rotary._from_theta(sizes, pairs, layout, theta, integer(offset, "offset"), dtype, device)

    @staticmethod
    def grid(
        sizes: Sequence[int],
        dim: int,
        *,
        layout: str = "adjacent",
        theta: float = 10000.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Rotary:
        """Tokens on a grid, (frames, rows, columns) for a video; axes share the pairs of ``dim`` elements evenly, what
        is left over going to the first (22, 21 and 21 of 64)."""
        sizes, dim = integers(sizes, "sizes"), integer(dim, "dim")
        if not 1 <= len(sizes) <= 3:
            raise ValueError(f"sizes has {len(sizes)} entries; it must have from 1 to 3, one for each axis")
        each = dim // 2 // len(sizes)
        pairs = (dim // 2 - each * (len(sizes) - 1),) + (each,) * (len(sizes) - 1)
        return Rotary._from_theta(sizes, pairs, layout, theta, 0, dtype, device)

    @staticmethod
    def tables(cos: Tensor, sin: Tensor, *, layout: str = "half") -> Rotary:
        """Given cosines and sines, ``[N, P]`` or ``[B, N, P]``: a row for each token."""
        if cos.ndim not in (2, 3) or cos.shape != sin.shape:
            raise ValueError(
                f"cos has shape {tuple(cos.shape)} and sin {tuple(sin.shape)}; both must be [N, P] or [B, N, P]"
            )
        return Rotary(cos, sin, (cos.shape[-2],), (cos.shape[-1],), layout)

    @staticmethod
    def _from_theta(sizes, pairs, layout, theta, offset, dtype, device) -> Rotary:
        cos, sin = torch.ops.mhla.rotary_table(sizes, pairs, theta, offset, dtype=dtype, device=device)
        return Rotary(cos, sin, sizes, pairs, layout)


@overload
def rotary_features(
    x: Tensor,
    rotary: Rotary | None = ...,
    *,
    norm: str = ...,
    weight: Tensor | None = ...,
    norm_eps: float = ...,
    feature_map: str = ...,
    feature_eps: float = ...,
    return_plain: Literal[False] = ...,
) -> Tensor: ...


@overload
def rotary_features(
    x: Tensor,
    rotary: Rotary | None = ...,
    *,
    norm: str = ...,
    weight: Tensor | None = ...,
    norm_eps: float = ...,
    feature_map: str = ...,
    feature_eps: float = ...,
    return_plain: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def rotary_features(
    x: Tensor,
    rotary: Rotary | None = None,
    *,
    norm: str = "none",
    weight: Tensor | None = None,
    norm_eps: float = 1e-6,
    feature_map: str = "relu",
    feature_eps: float = 0.0,
    return_plain: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """``rotate(phi(RMSNorm(x)) + feature_eps)`` of q or k ``[B, N, H, D]``.

    The operator then takes the feature map ``identity``. Differentiable once in ``x`` and ``weight``; arithmetic in
    float32 (float64 for float64).

    Args:
        rotary: the rotation; None is none.
        norm: ``none``; ``head``, an RMSNorm of the D elements of each head; ``channels``, of all H D of a token.
        weight: gain of the norm, ``[D]`` or, with ``channels``, ``[H D]``, in any floating-point type.
        norm_eps: added to the mean square.
        feature_map: ``identity``, ``relu``, ``elu+1``, ``exp`` or ``squared-relu``.
        feature_eps: added to the features.
        return_plain: also return the features before rotation, for ``q_den`` and ``k_den`` of the operator.
    """
    _check_tensor(x)
    if rotary is None:
        tables = (None, None, (), ())
        layout = "half"
    else:
        tables = rotary[:4]
        layout = rotary.layout
    y, plain = torch.ops.mhla.rotary_features(
        x, weight, *tables, norm, norm_eps, feature_map, feature_eps, layout, return_plain
    )
    return (y, plain) if return_plain else y


def gated_norm(
    x: Tensor,
    weight: Tensor | None = None,
    gate: Tensor | None = None,
    *,
    norm: str = "head",
    eps: float = 1e-6,
) -> Tensor:
    """``RMSNorm(x) weight silu(gate)`` of ``x`` and ``gate`` ``[B, N, H, D]``.

    Differentiable once in every tensor; arithmetic in float32 (float64 for float64).

    Args:
        weight: gain, ``[D]`` or, with norm ``channels``, ``[H D]``, in any floating-point type; None is ones.
        gate: None is no gate.
        norm: ``head``, over the D elements of each head; ``channels``, over all H D of a token.
        eps: added to the mean square.
    """
    _check_tensor(x)
    return torch.ops.mhla.gated_norm(x, weight, gate, norm, eps)


def modulate(
    x: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """``(LayerNorm(x) weight + bias) (1 + scale) + shift`` of ``x [B, N, C]``.

    Differentiable once in every tensor; arithmetic in float32 (float64 for float64).

    Args:
        scale, shift: ``[B, C]``, or ``[B, N, C]`` for one per token, in any floating-point type; None is zeros.
        weight, bias: of the LayerNorm, ``[C]``; None is ones and zeros.
        eps: added to the variance.
    """
    _check_tensor(x)
    return torch.ops.mhla.modulate(x, scale, shift, weight, bias, eps)
