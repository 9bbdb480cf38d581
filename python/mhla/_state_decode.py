"""A decoding state in tensors: what :class:`mhla.State` is on CUDA."""

from __future__ import annotations

import threading
from functools import wraps
from typing import NamedTuple

import torch
from torch import Tensor

from mhla import _library  # noqa: F401  registers torch.ops.mhla
from mhla._attention import Summaries, attention
from mhla._numbers import integer

_decode_step = torch.ops.mhla.decode_step.default
_MOST_ELEMENTS = 2**48  # as kMostElements of core/sizes.hpp
_MIXING_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LEAST_PIECE = 64  # blocks of a prefill that are handed to the operator at once, at least


class Memory(NamedTuple):
    """The tensors of ``mhla::DecodeMemory`` in their order; those a state does not have are empty, ``[0]``.

    T is the accumulation type, A that of stored summaries, E the element type.
    """

    S: Tensor  # A [batch, kv_heads, slots, Dk, Dv]: block b in slot b % slots
    z: Tensor  # T [batch, kv_heads, slots, Dk]
    P: Tensor  # A [batch, mixed_heads, Dk, Dv], of the open block
    P_z: Tensor  # T [batch, mixed_heads, Dk]
    diagonal: Tensor  # T [batch, mixed_heads]: m[i, i] of the open block
    folded_S: Tensor  # T [batch, kv_heads, Dk, Dv]: sum of older blocks
    folded_z: Tensor  # T [batch, kv_heads, Dk]
    k: Tensor  # E [batch, kv_heads, block_size, Dk]: rows of the open block
    v: Tensor  # E [batch, kv_heads, block_size, Dv]
    tokens: Tensor  # int64 [batch]: tokens seen
    arrivals: Tensor  # int32 [batch, kv_heads + 1]


def _check_dense(x: Tensor, name: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; it must be a Tensor")
    if x.is_nested or x.layout is not torch.strided:
        kind = "is a nested tensor" if x.is_nested else f"has layout {x.layout}"
        raise ValueError(f"{name} {kind}; it must be a dense tensor")


def _one_at_a_time(method):
    """A method during which no other call may use the state."""

    @wraps(method)
    def used(self, *arguments):
        if not self._in_use.acquire(blocking=False):
            raise ValueError(
                "state is in use by another call; one thread at a time uses a state (a fork is a state of its own)"
            )
        try:
            return method(self, *arguments)
        finally:
            self._in_use.release()

    return used


class DecodeState:
    """All memory is allocated once; :meth:`step` decides on the device where it is and can be captured into a graph."""

    def __init__(
        self,
        mixing: Tensor,
        *,
        batch: int,
        heads: int,
        kv_heads: int,
        key_dim: int,
        value_dim: int,
        block_size: int,
        dtype: torch.dtype,
        feature_map: str,
        normalizer: str,
        scale: float,
        eps: float,
        feature_eps: float,
        beyond: str,
        max_tokens: int | None = None,
        summary_dtype: torch.dtype | None = None,
    ) -> None:
        _check_dense(mixing, "mixing")
        if mixing.dtype not in _MIXING_DTYPES or mixing.is_meta:
            raise ValueError(
                f"mixing has dtype {mixing.dtype} on {mixing.device}; it must be float32, float64, bfloat16 or "
                "float16, with values"
            )
        if mixing.ndim not in (2, 3) or mixing.shape[-1] != mixing.shape[-2]:
            raise ValueError(f"mixing has shape {list(mixing.shape)}; it must be [M, M] or [H, M, M]")
        accumulated = torch.float64 if dtype == torch.float64 else torch.float32
        settings = {
            "feature_map": feature_map,
            "normalizer": normalizer,
            "scale": scale,
            "eps": eps,
            "feature_eps": feature_eps,
        }
        sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "key_dim": key_dim, "value_dim": value_dim}
        for name, size in {**sizes, "block_size": block_size}.items():
            integer(size, name, 1)
        if not isinstance(beyond, str):
            raise TypeError(f"beyond is {beyond!r}; it must be a string")
        max_tokens = 0 if max_tokens is None else integer(max_tokens, "max_tokens", 0)
        copied = mixing.detach().to(accumulated, copy=True).contiguous()
        self._configure(copied, settings, heads, block_size, beyond, max_tokens)
        mixed = heads if mixing.ndim == 3 else kv_heads
        slots, folds, normalized = self._kept.slots(), self._kept.folds(), normalizer != "none"
        if batch * kv_heads * max(slots, heads, block_size) * key_dim * value_dim > _MOST_ELEMENTS:
            raise ValueError(
                f"batch x kv_heads x blocks x key_dim x value_dim is {batch} x {kv_heads} x {slots} x {key_dim} x "
                f"{value_dim}; it must be at most 2^48"
            )

        def zeros(*shape: int, dtype: torch.dtype = accumulated, given: bool = True) -> Tensor:
            return torch.zeros(shape if given else 0, dtype=dtype, device=mixing.device)

        self._memory = Memory(
            S=zeros(batch, kv_heads, slots, key_dim, value_dim, dtype=summary_dtype or accumulated),
            z=zeros(batch, kv_heads, slots, key_dim, given=normalized),
            P=zeros(batch, mixed, key_dim, value_dim, dtype=summary_dtype or accumulated),
            P_z=zeros(batch, mixed, key_dim, given=normalized),
            diagonal=zeros(batch, mixed),
            folded_S=zeros(batch, kv_heads, key_dim, value_dim, given=folds),
            folded_z=zeros(batch, kv_heads, key_dim, given=folds and normalized),
            k=zeros(batch, kv_heads, block_size, key_dim, dtype=dtype),
            v=zeros(batch, kv_heads, block_size, value_dim, dtype=dtype),
            tokens=zeros(batch, dtype=torch.int64),
            arrivals=zeros(batch, kv_heads + 1, dtype=torch.int32),
        )
        self._counted = 0  # tokens as far as the host knows: replayed graphs are not counted
        self._open()

    def _configure(
        self, mixing: Tensor, settings: dict, heads: int, block_size: int, beyond: str, max_tokens: int
    ) -> None:
        self._mixing, self._settings, self._heads = mixing, settings, heads
        self._block_size, self._beyond, self._max_tokens = block_size, beyond, max_tokens
        self._kept = torch.classes.mhla.KeptBlocks(mixing.shape[-1], block_size, max_tokens, beyond)
        self._most_tokens = self._kept.most_tokens()  # 0: any number
        self._mixing_on_host = mixing.cpu()
        if not self._mixing_on_host.tril().isfinite().all():
            raise ValueError("mixing is not finite; its entries up to the diagonal must be")
        self._in_use = threading.Lock()

    @property
    def positions(self) -> Tensor:
        """Tokens consumed by each batch row, int64, in the state's own memory."""
        return self._memory.tokens

    @property
    @_one_at_a_time
    def tokens(self) -> int:
        return int(self.positions.max())

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._memory)

    @_one_at_a_time
    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for name, x in (("q", q), ("k", k), ("v", v)):
            self._check_kind(x, name)
            if x.ndim != q.ndim:
                raise ValueError(f"{name} has {x.ndim} axes; it must be {q.ndim}, as q")
        if q.ndim == 3:
            return self._step(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1)
        if q.ndim != 4:
            raise ValueError(f"q has {q.ndim} axes; it must be 3, [batch, heads, width], or 4, with tokens")
        return self._step(q, k, v)

    def _step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """``[batch, tokens, heads, width]`` tensors."""
        self._check_room(self._counted, q.shape[1])
        if q.shape[2] != self._heads:
            raise ValueError(f"q has heads {q.shape[2]} (axis 2); it must be {self._heads}")
        o = _decode_step(q, k, v, self._mixing, self._memory, self._max_tokens, *self._settings.values(), self._beyond)
        self._counted += q.shape[1]
        return o

    @_one_at_a_time
    def prefill(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for name, x in (("q", q), ("k", k), ("v", v)):
            self._check_kind(x, name)
            if x.ndim != 4:
                raise ValueError(f"{name} has {x.ndim} axes; it must be 4, [batch, tokens, heads, width]")
        if self._counted:
            self._counted = self._common_position()
        tokens = q.shape[1]
        self._check_room(self._counted, tokens)
        self._check(q, "q", tokens, self._heads, self._memory.k.shape[3])
        for name, x, rows in (("k", k, self._memory.k), ("v", v, self._memory.v)):
            self._check(x, name, tokens, rows.shape[1], rows.shape[3])
        begin = min(tokens, -self._counted % self._block_size)  # to the end of the open block
        outputs = [self._step(q[:, :begin], k[:, :begin], v[:, :begin])] if begin else []
        while begin < tokens:
            history = self._kept.history(self._counted // self._block_size)
            end = min(tokens, begin + max(_LEAST_PIECE, self._mixing.shape[-1], history) * self._block_size)
            outputs.append(self._prefill_piece(q[:, begin:end], k[:, begin:end], v[:, begin:end]))
            begin = end
        return torch.cat(outputs, 1) if outputs else q.new_empty(*q.shape[:3], v.shape[3])

    def _prefill_piece(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Tokens from the beginning of a block on, by the operator: earlier blocks are its initial state."""
        memory, kept, slots = self._memory, self._kept, self._kept.slots()
        block = self._counted // self._block_size
        first, history = kept.first(block), kept.history(block)
        folded = history - (block - first)  # 1: the blocks before `first`, as one
        own = torch.arange(first, block, device=q.device) % slots

        def initial(summaries: Tensor, sum_of_older: Tensor) -> Tensor:
            parts = [sum_of_older[:, :, None]] if folded else []
            return torch.cat([*parts, summaries[:, :, own].to(self._mixing.dtype)], 2)

        normalized = memory.z.numel() > 0
        state = None
        if history:
            state = Summaries(
                initial(memory.S, memory.folded_S), initial(memory.z, memory.folded_z) if normalized else None
            )
        o, final = attention(
            q,
            k,
            v,
            self._mixing_from(block, -(-q.shape[1] // self._block_size)),
            partition=self._block_size,
            causal=True,
            initial_state=state,
            initial_tokens=history * self._block_size,
            return_state=True,
            **self._settings,
        )

        complete = q.shape[1] // self._block_size
        leaving = range(*kept.leaving(block, complete))
        recent = range(block + max(0, complete - slots), block + complete)
        to = torch.arange(recent.start, recent.stop, device=q.device) % slots
        for summaries, sum_of_older, new in (
            (memory.S, memory.folded_S, final.S),
            (memory.z, memory.folded_z, final.z),
        ):
            if new is None:
                continue
            new = new[:, :, folded:]  # blocks from `first` on
            if leaving:
                sum_of_older += new[:, :, leaving.start - first : leaving.stop - first].sum(2)
            if recent:
                summaries[:, :, to] = new[:, :, recent.start - first : recent.stop - first].to(summaries.dtype)
        rest = q.shape[1] % self._block_size
        if rest:
            memory.k[:, :, :rest] = k[:, -rest:].transpose(1, 2)
            memory.v[:, :, :rest] = v[:, -rest:].transpose(1, 2)
        self._counted += q.shape[1]
        memory.tokens.fill_(self._counted)
        self._open()
        return o

    def _mixing_from(self, block: int, own: int) -> Tensor:
        """The matrix of a call of ``own`` blocks from ``block`` on; made on the host beyond the trained blocks."""
        blocks = block + own
        if blocks <= self._mixing.shape[-1]:
            return self._mixing[..., :blocks, :blocks]
        return self._kept.mixing_from(self._mixing_on_host, block, own).to(self._mixing.device, non_blocking=True)

    def _open(self) -> None:
        torch.ops.mhla.decode_open(
            self._mixing, self._memory, self._heads, self._max_tokens, self._settings["normalizer"], self._beyond
        )

    def _common_position(self) -> int:
        positions = self.positions.tolist()
        if len(set(positions)) > 1:
            raise ValueError(f"positions are {positions}; prefill needs all batch rows at the same token")
        return positions[0]

    def _check_room(self, seen: int, tokens: int) -> None:
        most = self._most_tokens
        if most and seen + tokens > most:
            raise ValueError(
                f"tokens is {tokens} after {seen}; at most {most} fit (max_tokens, or the blocks of the mixing matrix "
                "where `beyond` is error; it may be clamp, running-mean or interpolate)"
            )

    def _check_kind(self, x: Tensor, name: str) -> None:
        _check_dense(x, name)
        if x.device != self._mixing.device:
            raise ValueError(f"{name} has device {x.device}; it must be that of the state, {self._mixing.device}")

    def _check(self, x: Tensor, name: str, tokens: int, heads: int, width: int) -> None:
        expected = (self.positions.shape[0], tokens, heads, width)
        if tuple(x.shape) != expected:
            raise ValueError(f"{name} has shape {list(x.shape)}; it must be {list(expected)}")
        rows = self._memory.k
        if x.dtype != rows.dtype:
            raise ValueError(f"{name} has dtype {x.dtype}; it must be that of the state, {rows.dtype}")

    @_one_at_a_time
    def fork(self) -> DecodeState:
        other = object.__new__(DecodeState)
        copied = Memory(*(tensor.clone() for tensor in self._memory))
        other.__dict__.update(self.__dict__, _memory=copied, _in_use=threading.Lock())
        return other

    @_one_at_a_time
    def serialize(self) -> Tensor:
        """Bytes, uint8 on the CPU."""
        return torch.ops.mhla.decode_save(
            self._mixing, self._memory, self._heads, self._max_tokens, **self._settings, beyond=self._beyond
        )

    @staticmethod
    def restore(data: Tensor, device: torch.device | str) -> DecodeState:
        mixing, memory, heads, max_tokens, *settings, beyond = torch.ops.mhla.decode_restore(data)
        names = ("feature_map", "normalizer", "scale", "eps", "feature_eps")
        state = object.__new__(DecodeState)
        state._memory = Memory(*(tensor.to(device) for tensor in memory))
        state._counted = int(Memory(*memory).tokens.max())
        block_size = state._memory.k.shape[2]
        state._configure(
            mixing.to(device), dict(zip(names, settings, strict=True)), heads, block_size, beyond, max_tokens
        )
        state._open()
        return state
