"""Streaming: a causal call cut into pieces of any length."""

from __future__ import annotations

import torch
from torch import Tensor

from mhla import _library  # noqa: F401  registers torch.classes.mhla
from mhla._state_decode import DecodeState

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


class State:
    """What a token-causal MHLA layer remembers between calls.

    A token costs O(Dk Dv) per head whatever its position; block summaries are mixed once per block. Outputs equal those
    of one :func:`mhla.attention` call over all tokens with ``causal=True``. Not differentiable; can be pickled.

    On CUDA (the device of ``mixing``) all memory is allocated at once, positions are in device memory, and :meth:`step`
    can be captured into a CUDA graph: each replay consumes further tokens.

    Args:
        mixing: ``[M, M]`` or ``[H, M, M]``; copied. Its device is that of the state.
        batch, heads, key_dim, value_dim, kv_heads: shapes of q, k and v (``kv_heads`` defaults to ``heads``).
        block_size: tokens of a block.
        dtype: of q, k, v and the output.
        beyond: what happens after M blocks: ``error``, ``clamp``, ``running-mean`` or ``interpolate``.
        max_tokens: CUDA: no more tokens than this; needed with ``beyond="interpolate"``, which keeps every block.
        summary_dtype: CUDA: of stored summaries; ``torch.bfloat16`` halves what a step reads. None is float32
            (float64 beside float64).

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
        max_tokens: int | None = None,
        summary_dtype: torch.dtype | None = None,
    ) -> None:
        if dtype not in _DTYPES:
            raise ValueError(f"dtype is {dtype}; it must be one of {', '.join(map(str, _DTYPES))}")
        kv_heads = heads if kv_heads is None else kv_heads
        scale = 1.0 if scale is None else scale
        if mixing.is_cuda:
            self._holder = DecodeState(
                mixing,
                batch=batch,
                heads=heads,
                kv_heads=kv_heads,
                key_dim=key_dim,
                value_dim=value_dim,
                block_size=block_size,
                dtype=dtype,
                feature_map=feature_map,
                normalizer=normalizer,
                scale=scale,
                eps=eps,
                feature_eps=feature_eps,
                beyond=beyond,
                max_tokens=max_tokens,
                summary_dtype=summary_dtype,
            )
            return
        for name, value in (("max_tokens", max_tokens), ("summary_dtype", summary_dtype)):
            if value is not None:
                raise ValueError(f"{name} is {value}; it must be None where mixing is on the CPU")
        self._holder = torch.classes.mhla.State(
            mixing,
            _DTYPES[dtype],
            batch,
            heads,
            kv_heads,
            key_dim,
            value_dim,
            block_size,
            feature_map,
            normalizer,
            scale,
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
        """Consumes one token, ``[batch, heads, width]`` tensors, and returns its output ``[batch, heads, Dv]``.

        Several tokens at once, ``[batch, tokens, heads, width]`` tensors, give ``[batch, tokens, heads, Dv]``.
        """
        if q.ndim == 4 and not isinstance(self._holder, DecodeState):
            return self._holder.prefill(q, k, v)
        return self._holder.step(q, k, v)

    def fork(self) -> State:
        """An independent copy."""
        return State._wrap(self._holder.fork())

    def serialize(self) -> bytes:
        """All of the state, mixing matrix and settings included."""
        data = self._holder.serialize()
        return data if isinstance(data, bytes) else data.numpy().tobytes()

    @staticmethod
    def restore(data: bytes) -> State:
        """The inverse of :meth:`serialize`; the data is validated."""
        if not data:
            raise ValueError("data is empty; it must be what serialize() returned")
        if data.startswith(b"PK"):  # an archive of tensors
            return State._wrap(DecodeState.restore(data))
        return State._wrap(torch.classes.mhla.State.restore(torch.frombuffer(bytearray(data), dtype=torch.uint8)))

    @property
    def tokens(self) -> int:
        """Tokens consumed. On CUDA this waits for the device."""
        return self._holder.tokens if isinstance(self._holder, DecodeState) else self._holder.tokens()

    @property
    def nbytes(self) -> int:
        """Memory held by summaries; on CUDA, all memory of the state but the matrix."""
        return self._holder.nbytes if isinstance(self._holder, DecodeState) else self._holder.bytes()

    def __copy__(self) -> State:
        return self.fork()

    def __deepcopy__(self, memo: dict) -> State:
        return self.fork()

    def __reduce__(self) -> tuple:
        return State.restore, (self.serialize(),)
