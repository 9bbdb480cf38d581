"""A decoding state in tensors: what :class:`mhla.State` is on CUDA."""

from __future__ import annotations

import io

import torch
from torch import Tensor

from mhla import _library  # noqa: F401  registers torch.ops.mhla
from mhla._attention import Summaries, attention
from mhla._mixing import extend_causal_mixing

_LEAST_PIECE = 64  # blocks of a prefill that are handed to the operator at once, at least


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
        if mixing.ndim not in (2, 3) or mixing.shape[-1] != mixing.shape[-2]:
            raise ValueError(f"mixing has shape {list(mixing.shape)}; it must be [M, M] or [H, M, M]")
        accumulated = torch.float64 if dtype == torch.float64 else torch.float32
        summary_dtype = summary_dtype or accumulated
        self._settings = {
            "feature_map": feature_map,
            "normalizer": normalizer,
            "scale": scale,
            "eps": eps,
            "feature_eps": feature_eps,
        }
        self._heads, self._block_size, self._beyond = heads, block_size, beyond
        self._max_tokens = 0 if max_tokens is None else max_tokens
        self._mixing = mixing.detach().to(accumulated, copy=True).contiguous()
        self._slots, self._folds = torch.ops.mhla.decode_slots(mixing.shape[-1], block_size, self._max_tokens, beyond)
        mixed = heads if mixing.ndim == 3 else kv_heads
        normalized = normalizer != "none"

        def zeros(*shape: int, dtype: torch.dtype = accumulated, given: bool = True) -> Tensor:
            return torch.zeros(shape if given else 0, dtype=dtype, device=mixing.device)

        self._memory = [
            zeros(batch, kv_heads, self._slots, key_dim, value_dim, dtype=summary_dtype),
            zeros(batch, kv_heads, self._slots, key_dim, given=normalized),
            zeros(batch, mixed, key_dim, value_dim, dtype=summary_dtype),
            zeros(batch, mixed, key_dim, given=normalized),
            zeros(batch, mixed),
            zeros(batch, kv_heads, key_dim, value_dim, given=self._folds),
            zeros(batch, kv_heads, key_dim, given=self._folds and normalized),
            zeros(batch, kv_heads, block_size, key_dim, dtype=dtype),
            zeros(batch, kv_heads, block_size, value_dim, dtype=dtype),
            zeros(batch, dtype=torch.int64),
            zeros(batch, kv_heads + 1, dtype=torch.int32),
        ]
        self._counted = 0  # tokens as far as the host knows: replayed graphs are not counted
        self._open()

    @property
    def positions(self) -> Tensor:
        """Tokens consumed by each batch row, int64, in the state's own memory."""
        return self._memory[9]

    @property
    def tokens(self) -> int:
        return int(self.positions.max())

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._memory)

    def step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.ndim == 3:
            for name, x in (("k", k), ("v", v)):
                if x.ndim != 3:
                    raise ValueError(f"{name} has {x.ndim} axes; it must be 3, [batch, heads, width], as q")
            return self.step(q[:, None], k[:, None], v[:, None])[:, 0]
        if q.ndim != 4:
            raise ValueError(f"q has {q.ndim} axes; it must be 3, [batch, heads, width], or 4, with tokens")
        self._check_room(self._counted, q.shape[1])
        if q.shape[2] != self._heads:
            raise ValueError(f"q has heads {q.shape[2]} (axis 2); it must be {self._heads}")
        o = torch.ops.mhla.decode_step(
            q, k, v, self._mixing, self._memory, self._max_tokens, **self._settings, beyond=self._beyond
        )
        self._counted += q.shape[1]
        return o

    def prefill(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for name, x in (("q", q), ("k", k), ("v", v)):
            if x.ndim != 4:
                raise ValueError(f"{name} has {x.ndim} axes; it must be 4, [batch, tokens, heads, width]")
        if self._counted:
            self._counted = self._common_position()
        tokens = q.shape[1]
        self._check_room(self._counted, tokens)
        self._check(q, "q", tokens, self._heads, self._memory[7].shape[3])
        for name, x, rows in (("k", k, self._memory[7]), ("v", v, self._memory[8])):
            self._check(x, name, tokens, rows.shape[1], rows.shape[3])
        begin = min(tokens, -self._counted % self._block_size)  # to the end of the open block
        outputs = [self.step(q[:, :begin], k[:, :begin], v[:, :begin])] if begin else []
        while begin < tokens:
            first = self._first(self._counted // self._block_size)
            history = self._counted // self._block_size - first + 1
            end = min(tokens, begin + max(_LEAST_PIECE, self._mixing.shape[-1], history) * self._block_size)
            outputs.append(self._prefill_piece(q[:, begin:end], k[:, begin:end], v[:, begin:end]))
            begin = end
        return torch.cat(outputs, 1) if outputs else q.new_empty(*q.shape[:3], v.shape[3])

    def _prefill_piece(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Tokens from the beginning of a block on, by the operator: earlier blocks are its initial state."""
        S, z, _, _, _, folded_S, folded_z, k_rows, v_rows, positions, _ = self._memory
        block, first = self._counted // self._block_size, self._first(self._counted // self._block_size)
        is_folded = self._folds and block >= self._mixing.shape[-1]
        kept = torch.arange(first, block, device=q.device)

        def history(summaries: Tensor, folded: Tensor) -> Tensor:
            parts = [folded[:, :, None]] if is_folded else []
            return torch.cat([*parts, summaries[:, :, kept % self._slots].to(self._mixing.dtype)], 2)

        count = int(is_folded) + block - first
        own = -(-q.shape[1] // self._block_size)
        columns = torch.cat([kept.new_zeros(int(is_folded)), torch.arange(first, block + own, device=q.device)])
        mixing = self._mixing.new_zeros(*self._mixing.shape[:-2], count + own, count + own)
        mixing[..., count:, :] = self._weights(block, block + own, columns)
        normalized = z.numel() > 0
        state = Summaries(history(S, folded_S), history(z, folded_z) if normalized else None) if count else None
        o, final = attention(
            q,
            k,
            v,
            mixing,
            partition=self._block_size,
            causal=True,
            initial_state=state,
            initial_tokens=count * self._block_size,
            return_state=True,
            **self._settings,
        )

        complete = q.shape[1] // self._block_size
        leaving = self._leaving(block, complete)
        recent = range(block + max(0, complete - self._slots), block + complete)
        slots = torch.arange(recent.start, recent.stop, device=q.device) % self._slots
        for summaries, folded, new in ((S, folded_S, final.S), (z, folded_z, final.z)):
            if new is None:
                continue
            new = new[:, :, int(is_folded) :]  # blocks from `first` on
            if leaving:
                folded += new[:, :, leaving.start - first : leaving.stop - first].sum(2)
            if recent:
                summaries[:, :, slots] = new[:, :, recent.start - first : recent.stop - first].to(summaries.dtype)
        rest = q.shape[1] % self._block_size
        if rest:
            k_rows[:, :, :rest] = k[:, -rest:].transpose(1, 2)
            v_rows[:, :, :rest] = v[:, -rest:].transpose(1, 2)
        self._counted += q.shape[1]
        positions.fill_(self._counted)
        self._open()
        return o

    def _first(self, block: int) -> int:
        """The first block that is mixed by itself while ``block`` is open."""
        trained = self._mixing.shape[-1]
        if block < trained or self._beyond not in ("clamp", "running-mean"):
            return 0
        return block - trained + 1 if self._beyond == "clamp" else block

    def _leaving(self, block: int, complete: int) -> range:
        """The blocks that join the folded sum when ``complete`` blocks from ``block`` on are."""
        if not self._folds:
            return range(0)
        shift = self._mixing.shape[-1] - 1 if self._beyond == "clamp" else 0
        return range(max(0, block - shift), max(0, block + complete - shift))

    def _weights(self, begin: int, end: int, columns: Tensor) -> Tensor:
        """m[i, b] for begin <= i < end and source blocks ``columns``; what lies above the diagonal is not read."""
        trained = self._mixing.shape[-1]
        i, b = torch.arange(begin, end, device=columns.device)[:, None], columns[None, :]
        if self._beyond == "running-mean":
            beyond = (1.0 / (i + 1).to(self._mixing.dtype)).expand(end - begin, len(columns))
            if trained == 0:
                return beyond
        elif end <= trained:
            return self._mixing[..., i, b.clamp(max=trained - 1)]
        elif self._beyond == "interpolate":
            return extend_causal_mixing(self._mixing, end, "interpolate")[..., i, b]
        else:
            beyond = self._mixing[..., trained - 1, (trained - 1 - i + b).clamp(0, trained - 1)]
        return torch.where(i < trained, self._mixing[..., i.clamp(max=trained - 1), b.clamp(max=trained - 1)], beyond)

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
        most = self._max_tokens
        if self._beyond == "error" and not most:
            most = self._mixing.shape[-1] * self._block_size
        if most and seen + tokens > most:
            raise ValueError(
                f"tokens is {tokens} after {seen}; at most {most} fit (max_tokens, or the blocks of the mixing matrix "
                "where `beyond` is error; it may be clamp, running-mean or interpolate)"
            )

    def _check(self, x: Tensor, name: str, tokens: int, heads: int, width: int) -> None:
        expected = (self.positions.shape[0], tokens, heads, width)
        if tuple(x.shape) != expected:
            raise ValueError(f"{name} has shape {list(x.shape)}; it must be {list(expected)}")
        rows = self._memory[7]
        if x.dtype != rows.dtype:
            raise ValueError(f"{name} has dtype {x.dtype}; it must be that of the state, {rows.dtype}")
        if x.device != rows.device:
            raise ValueError(f"{name} has device {x.device}; it must be that of the state, {rows.device}")

    def fork(self) -> DecodeState:
        other = object.__new__(DecodeState)
        other.__dict__.update(self.__dict__, _memory=[tensor.clone() for tensor in self._memory])
        return other

    def serialize(self) -> bytes:
        file = io.BytesIO()
        torch.save(self.__dict__, file)
        return file.getvalue()

    @staticmethod
    def restore(data: bytes) -> DecodeState:
        state = object.__new__(DecodeState)
        try:
            state.__dict__.update(torch.load(io.BytesIO(data), weights_only=True))
            state._open()
        except Exception as error:
            raise ValueError(f"data is not a saved state, or damaged: {error}") from error
        return state
