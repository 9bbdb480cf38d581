"""MHLA as a layer."""

from __future__ import annotations

import torch
from torch import Tensor

from mhla._attention import Causal, attention, masking_name
from mhla._mixing import mixing_init as make_mixing
from mhla._mixing import project_mixing
from mhla._numbers import integer
from mhla._partition import Partition
from mhla._state import State


class MHLA(torch.nn.Module):
    """A drop-in self-attention layer, ``[B, N, C] -> [B, N, C]``, with a learned mixing matrix.

    Args:
        dim: channels C.
        heads: attention heads; divides ``dim``.
        partition: how the N tokens are split into blocks. A causal layer takes any length up to ``partition.tokens``.
        kv_heads: heads of k and v (grouped); divides ``heads``.
        causal, feature_map, normalizer, scale, eps, feature_eps: see :func:`mhla.attention`.
        qk_norm: RMSNorm of q and k over all their channels, before the heads are split.
        qkv_bias, proj_bias: biases of the projections.
        mixing_init: see :func:`mhla.mixing_init`; None is ``running-mean`` for a causal layer, else ``paper``.
        mixing_per_head: one matrix per head instead of one for all.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        partition: Partition,
        *,
        kv_heads: int | None = None,
        causal: Causal = False,
        feature_map: str = "relu",
        normalizer: str = "paper",
        scale: float | None = None,
        eps: float = 1e-6,
        feature_eps: float = 0.0,
        qk_norm: bool = False,
        qkv_bias: bool = False,
        proj_bias: bool = True,
        mixing_init: str | None = None,
        mixing_per_head: bool = False,
    ) -> None:
        super().__init__()
        dim, heads = integer(dim, "dim", 1), integer(heads, "heads")
        kv_heads = heads if kv_heads is None else integer(kv_heads, "kv_heads")
        if not isinstance(partition, Partition):
            raise TypeError(f"partition is a {type(partition).__name__}; it must be a Partition")
        if heads < 1 or dim % heads != 0:
            raise ValueError(f"heads is {heads}; it must be a divisor of dim, {dim}")
        if kv_heads < 1 or heads % kv_heads != 0:
            raise ValueError(f"kv_heads is {kv_heads}; it must be a divisor of heads, {heads}")
        self.masking = masking_name(causal)
        self.dim, self.heads, self.kv_heads, self.head_dim = dim, heads, kv_heads, dim // heads
        self.partition, self.causal = partition, causal
        self.feature_map, self.normalizer, self.scale = feature_map, normalizer, scale
        self.eps, self.feature_eps = eps, feature_eps
        kv_dim = kv_heads * self.head_dim
        self.split_sizes = (dim, kv_dim, kv_dim)
        self.qkv = torch.nn.Linear(dim, sum(self.split_sizes), bias=qkv_bias)
        self.q_norm = torch.nn.RMSNorm(dim) if qk_norm else torch.nn.Identity()
        self.k_norm = torch.nn.RMSNorm(kv_dim) if qk_norm else torch.nn.Identity()
        self.proj = torch.nn.Linear(dim, dim, bias=proj_bias)
        mixing = make_mixing(partition, mixing_init or ("running-mean" if causal else "paper"))
        self.mixing = torch.nn.Parameter(mixing.repeat(heads, 1, 1) if mixing_per_head else mixing)

    def forward(self, x: Tensor, state: State | None = None) -> Tensor:
        """Attention over ``x [B, N, C]``; with ``state`` (token-causal layers) tokens continue those it has seen."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x is a {type(x).__name__}; it must be a tensor")
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x has shape {tuple(x.shape)}; it must be [batch, tokens, {self.dim}]")
        q, k, v = self.qkv(x).split(self.split_sizes, dim=-1)
        q = self.q_norm(q).unflatten(-1, (self.heads, self.head_dim))
        k = self.k_norm(k).unflatten(-1, (self.kv_heads, self.head_dim))
        v = v.unflatten(-1, (self.kv_heads, self.head_dim))
        if state is not None:
            return self.proj(state.prefill(q, k, v).flatten(2))
        o = attention(
            q,
            k,
            v,
            self.mixing,
            partition=self.partition.extents[0] if self.causal else self.partition,
            feature_map=self.feature_map,
            normalizer=self.normalizer,
            causal=self.causal,
            scale=self.scale,
            eps=self.eps,
            feature_eps=self.feature_eps,
        )
        return self.proj(o.flatten(2))

    def new_state(self, batch: int, *, beyond: str = "error") -> State:
        """An empty streaming state with this layer's settings and present mixing matrix (token-causal layers)."""
        if self.masking != "token-causal":
            raise ValueError(f"causal is {self.causal!r}; streaming needs True or 'token'")
        return State(
            self.mixing.detach(),
            batch=batch,
            heads=self.heads,
            kv_heads=self.kv_heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
            block_size=self.partition.extents[0],
            dtype=self.qkv.weight.dtype,
            feature_map=self.feature_map,
            normalizer=self.normalizer,
            scale=self.scale,
            eps=self.eps,
            feature_eps=self.feature_eps,
            beyond=beyond,
        )

    def project_(self, *, normalize_rows: bool = False) -> None:
        """Brings the mixing matrix back to [0, 1]; call it after each optimizer step."""
        project_mixing(self.mixing, normalize_rows=normalize_rows)

    def extra_repr(self) -> str:
        return (
            f"dim={self.dim}, heads={self.heads}, partition={self.partition}, feature_map={self.feature_map}, "
            f"normalizer={self.normalizer}, masking={self.masking}"
        )
