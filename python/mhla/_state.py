"""Streaming: a causal call cut into pieces of any length."""

from __future__ import annotations

import torch
from torch import Tensor

from mhla import _library  # noqa: F401  registers torch.classes.mhla

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


class State:
    """What a token-causal MHLA layer remembers between calls.

    A token costs O(Dk Dv) per head whatever its position; block summaries are mixed once per block. Outputs equal those
    of one :func:`mhla.attention` call over all tokens with ``causal=True``. Not differentiable; can be pickled.

    Args:
        mixing: ``[M, M]`` or ``[H, M, M]``; copied.
        batch, heads, key_dim, value_dim, kv_heads: shapes of q, k and v (``kv_heads`` defaults to ``heads``).
        block_size: tokens of a block.
        dtype: of q, k, v and the output.
        beyond: what happens after M blocks: ``error``, ``clamp``, ``running-mean`` or ``interpolate``.

    The other arguments are those of :func:`mhla.attention`.
    """

    def __init__(
        self,
        mixing: Tensor,
        *,
        batch: int,
        heads: int,
        key_dim: int,
        value_dim: int,
        block_size: int,
        kv_heads: int | None = None,
        dtype: torch.dtype = torch.float32,
        feature_map: str = "relu",
        normalizer: str = "paper",
        scale: float | None = None,
        eps: float = 1e-6,
        feature_eps: float = 0.0,
        beyond: str = "error",
    ) -> None:
        if dtype not in _DTYPES:
            raise ValueError(f"dtype is {dtype}; it must be one of {', '.join(map(str, _DTYPES))}")
        self._holder = torch.classes.mhla.State(
            mixing,
            _DTYPES[dtype],
            batch,
            heads,
            heads if kv_heads is None else kv_heads,
            key_dim,
            value_dim,
            block_size,
            feature_map,
            normalizer,
            1.0 if scale is None else scale,
            eps,
            feature_eps,
            beyond,
        )

    @classmethod
    def _wrap(cls, holder: object) -> State:
        state = cls.__new__(cls)
        state._holder = holder
        return state

    def prefill(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Consumes ``[batch, tokens, heads, width]`` tensors and returns their outputs."""
        return self._holder.prefill(q, k, v)

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Consumes one token, ``[batch, heads, width]`` tensors, and returns its output ``[batch, heads, Dv]``."""
        return self._holder.step(q, k, v)

    def fork(self) -> State:
        """An independent copy."""
        return State._wrap(self._holder.fork())

    def serialize(self) -> bytes:
        """All of the state, mixing matrix and settings included."""
        return self._holder.serialize().numpy().tobytes()

    @staticmethod
    def restore(data: bytes) -> State:
        """The inverse of :meth:`serialize`; the data is validated."""
        if not data:
            raise ValueError("data is empty; it must be what serialize() returned")
        return State._wrap(torch.classes.mhla.State.restore(torch.frombuffer(bytearray(data), dtype=torch.uint8)))

    @property
    def tokens(self) -> int:
        """Tokens consumed."""
        return self._holder.tokens()

    @property
    def nbytes(self) -> int:
        """Memory held by summaries."""
        return self._holder.bytes()

    def __copy__(self) -> State:
        return self.fork()

    def __deepcopy__(self, memo: dict) -> State:
        return self.fork()

    def __reduce__(self) -> tuple:
        return State.restore, (self.serialize(),)
