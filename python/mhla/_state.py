"""Streaming: a causal call cut into pieces of any length."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from mhla import _library  # noqa: F401  registers torch.classes.mhla
from mhla._numbers import integer
from mhla._state_decode import DecodeState

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


class _Undifferentiable(torch.autograd.Function):
    """A call whose result cannot be differentiated, which whoever tries is told."""

    @staticmethod
    def forward(ctx, call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return call(q, k, v)

    @staticmethod
    def backward(ctx, d_o: Tensor) -> tuple:
        raise NotImplementedError("State is not differentiable; mhla.attention is, or call it under torch.no_grad()")


def _consume(call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """``call(q, k, v)``, where a state changes: not part of a graph of autograd, nor for a subclass to replace."""
    if not type(q) is type(k) is type(v) is Tensor:
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name} is a {type(x).__name__}; it must be a Tensor")
        with torch._C.DisableTorchFunctionSubclass():
            return _consume_outside_autograd(call, q, k, v)
    return _consume_outside_autograd(call, q, k, v)


def _consume_outside_autograd(call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if (q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled():
        return _Undifferentiable.apply(call, q, k, v)
    return call(q, k, v)


class State:
    """What a token-causal MHLA layer remembers between calls.

    A token costs O(Dk Dv) per head whatever its position; block summaries are mixed once per block. Outputs equal those
    of one :func:`mhla.attention` call over all tokens with ``causal=True``. Not differentiable; can be pickled. One
    thread at a time uses a state: a call on a state that another call is using raises a ValueError and changes nothing.

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
        if not isinstance(mixing, Tensor):
            raise TypeError(f"mixing is a {type(mixing).__name__}; it must be a Tensor")
        if not isinstance(dtype, torch.dtype) or dtype not in _DTYPES:
            raise ValueError(f"dtype is {dtype}; it must be one of {', '.join(map(str, _DTYPES))}")
        batch, heads = integer(batch, "batch", 1), integer(heads, "heads", 1)
        kv_heads = heads if kv_heads is None else integer(kv_heads, "kv_heads", 1)
        key_dim, value_dim = integer(key_dim, "key_dim", 1), integer(value_dim, "value_dim", 1)
        block_size = integer(block_size, "block_size", 1)
        max_tokens = None if max_tokens is None else integer(max_tokens, "max_tokens", 0)
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
        return _consume(self._holder.prefill, q, k, v)

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Consumes one token, ``[batch, heads, width]`` tensors, and returns its output ``[batch, heads, Dv]``.

        Several tokens at once, ``[batch, tokens, heads, width]`` tensors, give ``[batch, tokens, heads, Dv]``.
        """
        holder = self._holder
        several = getattr(q, "ndim", None) == 4 and not isinstance(holder, DecodeState)
        return _consume(holder.prefill if several else holder.step, q, k, v)

    def fork(self) -> State:
        """An independent copy."""
        return State._wrap(self._holder.fork())

    def serialize(self) -> bytes:
        """All of the state, mixing matrix and settings included; the format is that of both devices."""
        data = self._holder.serialize()
        return ctypes.string_at(data.data_ptr(), data.nbytes)

    @staticmethod
    def restore(data: bytes, device: torch.device | str | None = None) -> State:
        """The inverse of :meth:`serialize`; the data is validated.

        Args:
            device: None is the kind of device the state was saved on. A state saved on CUDA may go to the CPU; one of
                the CPU goes to CUDA from the end of a block, where no block is open.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data is a {type(data).__name__}; it must be the bytes that serialize() returned")
        if len(data) == 0:
            raise ValueError("data is empty; it must be what serialize() returned")
        saved = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        device = torch.device(torch.ops.mhla.saved_device(saved) if device is None else device)
        if device.type == "cpu":
            return State._wrap(torch.classes.mhla.State.restore(saved))
        if device.type != "cuda" or not torch.cuda.is_available():
            raise ValueError(f"device is {device}, which is not there; device='cpu' restores the state on the CPU")
        return State._wrap(DecodeState.restore(saved, device))

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
