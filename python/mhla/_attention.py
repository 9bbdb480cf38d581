"""The operator as a function of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from mhla._numbers import integer, integers
from mhla._partition import Partition

Causal = Literal["token", "block"] | bool

try:
    from mhla._direct import attention as _direct
except ModuleNotFoundError:  # built where Python's headers are not installed

    def _direct(*arguments: object) -> object:
        return NotImplemented


_operator = torch.ops.mhla.attention.default
_maskings = {False: "none", True: "token-causal", "token": "token-causal", "block": "block-causal"}


class Summaries(NamedTuple):
    """What a causal call remembers of its tokens, in the accumulation type (float32; float64 for float64 inputs)."""

    S: Tensor
    """``[sequences, kv heads, blocks, Dk, Dv]``"""
    z: Tensor | None
    """``[sequences, kv heads, blocks, Dk]``; None without a normalizer."""


def masking_name(causal: Causal) -> str:
    """The operator's name of a ``causal`` argument."""
    if not isinstance(causal, (bool, str)) or causal not in _maskings:
        raise ValueError(f"causal is {causal!r}; it must be False, True, 'token' or 'block'")
    return _maskings[causal]


def _final_blocks(tokens: int, block_size: int, initial_tokens: int, cu_seqlens: Tensor | None) -> int:
    if cu_seqlens is not None:
        if cu_seqlens.dtype not in (torch.int32, torch.int64) or cu_seqlens.layout != torch.strided:
            raise ValueError(
                f"cu_seqlens has type {cu_seqlens.dtype}, layout {cu_seqlens.layout}; it must be int32 or int64, dense"
            )
        if cu_seqlens.is_meta or cu_seqlens.ndim != 1 or cu_seqlens.shape[0] < 2:
            raise ValueError(
                f"cu_seqlens has shape {list(cu_seqlens.shape)} on {cu_seqlens.device}; with return_state it must have "
                "values, [sequences + 1]"
            )
        tokens = int(cu_seqlens.diff().max())
    return -(-(initial_tokens + tokens) // block_size)


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixing: Tensor,
    *,
    partition: Partition | int,
    feature_map: str = ...,
    normalizer: str = ...,
    causal: Causal = ...,
    scale: float | None = ...,
    eps: float = ...,
    feature_eps: float = ...,
    q_den: Tensor | None = ...,
    k_den: Tensor | None = ...,
    cu_seqlens: Tensor | Sequence[int] | None = ...,
    initial_state: Summaries | None = ...,
    initial_tokens: int = ...,
    return_state: Literal[False] = ...,
    algorithm: str = ...,
) -> Tensor: ...


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixing: Tensor,
    *,
    partition: Partition | int,
    feature_map: str = ...,
    normalizer: str = ...,
    causal: Causal = ...,
    scale: float | None = ...,
    eps: float = ...,
    feature_eps: float = ...,
    q_den: Tensor | None = ...,
    k_den: Tensor | None = ...,
    cu_seqlens: Tensor | Sequence[int] | None = ...,
    initial_state: Summaries | None = ...,
    initial_tokens: int = ...,
    return_state: Literal[True],
    algorithm: str = ...,
) -> tuple[Tensor, Summaries]: ...


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixing: Tensor,
    *,
    partition: Partition | int,
    feature_map: str = "relu",
    normalizer: str = "paper",
    causal: Causal = False,
    scale: float | None = None,
    eps: float = 1e-6,
    feature_eps: float = 0.0,
    q_den: Tensor | None = None,
    k_den: Tensor | None = None,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    initial_state: Summaries | None = None,
    initial_tokens: int = 0,
    return_state: bool = False,
    algorithm: str = "automatic",
) -> Tensor | tuple[Tensor, Summaries]:
    """Multi-head linear attention of ``q [B, N, H, Dk]``, ``k [B, N, Hkv, Dk]`` and ``v [B, N, Hkv, Dv]``.

    Tokens stay in the model's own order; blocks are found through ``partition``. Differentiable once in every tensor.

    Args:
        mixing: ``[M, M]``, ``[H, M, M]`` or ``[B, H, M, M]``, float32, float64, bfloat16 or float16 whatever q is;
            row = query block, column = source block. Its gradient has its shape.
        partition: how the N tokens are split into M blocks; an int is the block size of a line.
        feature_map: ``identity``, ``relu``, ``elu+1``, ``exp`` or ``squared-relu``.
        normalizer: ``none``, ``paper`` (q . z of the query's own mixture) or ``authors`` (the authors' code).
        causal: False; True or ``"token"`` (a token sees itself and earlier ones); ``"block"`` (its own and earlier
            blocks). Causal calls accept a larger mixing matrix, whose leading corner applies.
        scale: multiplies the features of q; None is 1.
        eps: added to the denominator.
        feature_eps: added to the features of q and k.
        q_den, k_den: other q and k for the denominator, as rotary models need.
        cu_seqlens: offsets of packed sequences (B = 1), ``[sequences + 1]``; best on the CPU, where they are read.
        initial_state, initial_tokens: what an earlier causal call returned and the tokens it had seen.
        return_state: also return the summaries of all blocks, those of the initial state included (causal calls).
        algorithm: ``automatic``, ``summary`` (linear in N) or ``dense`` (quadratic in N).

    Returns:
        ``o [B, N, H, Dv]``, or ``(o, Summaries)`` with ``return_state``.
    """
    if isinstance(partition, Partition):
        sizes, extents = partition.sizes, partition.extents
    else:
        if type(partition) is not int and (type(partition) is bool or not hasattr(partition, "__index__")):
            raise TypeError(f"partition is a {type(partition).__name__}; it must be a Partition or a block size (int)")
        if not isinstance(q, Tensor):
            raise TypeError(f"q is a {type(q).__name__}; it must be a tensor")
        if q.ndim != 4:
            raise ValueError(f"q has {q.ndim} axes; it must be 4, [batch, tokens, heads, width]")
        try:
            sizes = (q.shape[1],)
        except RuntimeError:
            raise ValueError("q is a nested tensor; it must be a dense tensor") from None
        extents = (integer(partition, "partition", 1),)
    masking = masking_name(causal)
    if return_state and masking == "none":
        raise ValueError("return_state is True; it needs a causal call")
    if cu_seqlens is not None:
        if not isinstance(cu_seqlens, Tensor):
            cu_seqlens = torch.tensor(integers(cu_seqlens, "cu_seqlens"), dtype=torch.int64)
        if torch.compiler.is_compiling():  # tracing wants all tensors of an operator on one device
            cu_seqlens = cu_seqlens.to(q.device)
    if initial_tokens or type(initial_tokens) is not int:
        initial_tokens = integer(initial_tokens, "initial_tokens")
    initial_S, initial_z = (None, None) if initial_state is None else initial_state
    arguments = (
        q,
        k,
        v,
        mixing,
        sizes,
        extents,
        feature_map,
        normalizer,
        masking,
        algorithm,
        1.0 if scale is None else scale,
        eps,
        feature_eps,
        q_den,
        k_den,
        cu_seqlens,
        initial_S,
        initial_z,
        initial_tokens,
    )
    if return_state:
        blocks = _final_blocks(q.shape[1], extents[0], initial_tokens, cu_seqlens)
        o, S, z = _operator(*arguments, blocks)
        return o, Summaries(S, None if normalizer == "none" else z)
    # What _direct leaves to torch.ops, and tracing, which looks for operators.
    if torch.compiler.is_compiling() or (o := _direct(*arguments)) is NotImplemented:
        o = _operator(*arguments)[0]
    return o
