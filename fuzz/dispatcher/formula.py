"""The operator as its definition, in float64 and apart from the library: results, and how far rounding may take them.

``Attention(...)`` raises :class:`Unspecified` where the arguments do not describe a call at all; a library that gives a
result for them is wrong.
"""

from math import isfinite, prod

import torch

UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
LARGEST = {torch.float32: 3e38, torch.float64: 1e308, torch.bfloat16: 3e38, torch.float16: 6.5e4}
STEP = {  # between the smallest numbers
    torch.float32: 2.0**-149,
    torch.float64: 2.0**-1074,
    torch.bfloat16: 2.0**-133,
    torch.float16: 2.0**-24,
}
SMALLEST = {torch.float32: 1e-36, torch.float64: 1e-300, torch.bfloat16: 1e-36, torch.float16: 1e-7}
FEATURE_MAPS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "elu+1": lambda x: torch.where(x > 0, x + 1, torch.exp(x.clamp(max=0))),
    "exp": torch.exp,
    "squared-relu": lambda x: torch.relu(x).square(),
}
MASKINGS = ("none", "block-causal", "token-causal")
NORMALIZERS = ("none", "paper", "authors")
ALGORITHMS = ("automatic", "summary", "dense")
FAR = 2**40  # more tokens than there are here


class Unspecified(Exception):
    """The arguments do not describe a call."""


def require(condition, what):
    if not condition:
        raise Unspecified(what)


def accumulation(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_partition(sizes, extents):
    for values, least in ((sizes, 0), (extents, 1)):
        require(isinstance(values, (list, tuple)) and all(isinstance(x, int) for x in values), "partition")
        require(1 <= len(values) <= 3 and len(values) == len(sizes) and min(values) >= least, "partition")


def places(sizes, extents):
    """(block of each token, its coordinates inside the block, number of blocks)"""
    check_partition(sizes, extents)
    require(max(sizes) < 2**16 and prod(sizes) < 2**16, "tokens of the partition")
    counts = [-(-size // extent) for size, extent in zip(sizes, extents, strict=True)]
    block, inner = torch.zeros(prod(sizes), dtype=torch.int64), []
    axes = torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")
    for axis, extent, count in zip(axes, extents, counts, strict=True):
        block = block * count + axis.reshape(-1) // min(extent, FAR)
        inner.append(axis.reshape(-1) % min(extent, FAR))
    return block, torch.stack(inner), prod(counts) if prod(sizes) else 0


def check_tokens(x, name, dtype, shape):
    require(isinstance(x, torch.Tensor) and x.layout == torch.strided and x.device.type == "cpu", f"kind of {name}")
    require(x.dtype == dtype and x.dtype in UNIT and tuple(x.shape) == tuple(shape), f"shape of {name}")


def mixing_matrix(mixing, heads, dtype, batch=None):
    """[H, M, M] or [B, H, M, M] in float64, rounded as the operator does"""
    require(isinstance(mixing, torch.Tensor) and mixing.layout == torch.strided, "mixing")
    require(mixing.is_floating_point() and mixing.device.type == "cpu", "mixing")
    require(mixing.ndim in (2, 3, 4) and mixing.shape[-1] == mixing.shape[-2], "shape of mixing")
    require(mixing.ndim == 2 or mixing.shape[-3] == heads, "heads of mixing")
    require(mixing.ndim < 4 or len(mixing) == batch, "batch of mixing")
    return mixing.to(accumulation(dtype)).double().expand(*mixing.shape[:-3], heads, *mixing.shape[-2:])


class Attention:
    """One call; gradients flow to the tensors that need them.

    ``o`` is the output and ``o_bound`` what a result may differ from it, where it is ``certain``: where nothing on the
    way leaves the range of its type and the denominator is not lost in rounding. ``condition`` is the smallest
    denominator relative to the sum of the sizes of its terms. ``o`` is ``numerator / denominator``; without a normalizer
    there is no denominator.

    What is on the way depends on the algorithm: products of some of the factors, summed over some of the tokens. All of
    them are below the ``reach``, the same sums with 1 added to the size of every factor.
    """

    def __init__(
        self,
        q,
        k,
        v,
        mixing,
        sizes,
        extents,
        feature_map="relu",
        normalizer="paper",
        masking="none",
        algorithm="automatic",
        scale=1.0,
        eps=1e-6,
        feature_eps=0.0,
        q_den=None,
        k_den=None,
        cu_seqlens=None,
        initial_S=None,
        initial_z=None,
        initial_tokens=0,
    ):
        require(all(isinstance(x, torch.Tensor) and x.ndim == 4 for x in (q, k, v)), "axes")
        batch, tokens, heads, key_dim = q.shape
        kv_heads, value_dim = k.shape[2], v.shape[3]
        require(heads >= 1 and kv_heads >= 1 and heads % kv_heads == 0 and key_dim >= 1 and value_dim >= 1, "widths")
        check_tokens(q, "q", q.dtype, q.shape)
        check_tokens(k, "k", q.dtype, (batch, tokens, kv_heads, key_dim))
        check_tokens(v, "v", q.dtype, (batch, tokens, kv_heads, value_dim))
        require(all(isinstance(x, str) for x in (feature_map, masking, normalizer, algorithm)), "names")
        require(feature_map in FEATURE_MAPS and masking in MASKINGS, "names")
        require(normalizer in NORMALIZERS and algorithm in ALGORITHMS, "names")
        scale = 1.0 if scale is None else scale
        require(all(isinstance(x, (int, float)) and isfinite(x) for x in (scale, eps, feature_eps)), "numbers")
        causal = masking != "none"
        require(not causal or normalizer != "authors", "normalizer")
        self._place(batch, tokens, sizes, extents, masking, cu_seqlens, initial_tokens)

        matrix = mixing_matrix(mixing, heads, q.dtype, batch)
        corner = causal or cu_seqlens is not None
        require(matrix.shape[-1] >= self.blocks if corner else matrix.shape[-1] == self.blocks, "blocks of mixing")
        matrix = matrix[..., : self.blocks, : self.blocks]
        matrix = matrix.tril() if causal else matrix
        require(bool(matrix.detach().isfinite().all()), "mixing is not finite")
        weight = torch.where(self.visible, matrix[..., self.block, :][..., self.block], torch.zeros(1).double())

        self.group, self.unit = heads // kv_heads, UNIT[accumulation(q.dtype)]
        self.terms = key_dim + tokens + self.blocks + 32
        limit = LARGEST[accumulation(q.dtype)]
        self.k, self.k_size = self._features(k, feature_map, feature_eps)
        self.v = self._wide(v)
        own_q, q_size, q_reach = self._queries(q, feature_map, feature_eps, scale)
        sizes, seen = weight.detach().abs(), self.visible.double()
        v_size = self.v.detach().abs()
        o = ((own_q @ self.k.transpose(-1, -2)) * weight) @ self.v
        size = ((q_size @ self.k_size.transpose(-1, -2)) * sizes) @ v_size
        reach = ((q_reach @ (self.k_size + 1).transpose(-1, -2)) * (sizes + seen)) @ (v_size + 1)

        require((q_den is None) == (k_den is None), "q_den and k_den")
        self.k_den, self.k_den_size = self.k, self.k_size
        own_den, den_q_size, den_q_reach = own_q, q_size, q_reach
        if q_den is not None:
            require(normalizer != "none", "q_den without a denominator")
            check_tokens(q_den, "q_den", q.dtype, q.shape)
            check_tokens(k_den, "k_den", q.dtype, k.shape)
            self.k_den, self.k_den_size = self._features(k_den, feature_map, feature_eps)
            own_den, den_q_size, den_q_reach = self._queries(q_den, feature_map, feature_eps, scale)
        self._check_state(q.dtype, normalizer, (kv_heads, key_dim, value_dim), extents, initial_S, initial_z)
        if initial_S is not None:
            before = torch.arange(initial_S.shape[2])
            seen_old = (before[None, :] <= self.block[:, None]).double()
            old = matrix[..., self.block, :][..., before] * seen_old  # [H, N, blocks] or [B, H, N, blocks]
            old_sizes, S_size = old.detach().abs(), initial_S.detach().abs()
            o = o + self._through(own_q, old, initial_S)
            size = size + self._through(q_size, old_sizes, S_size)
            reach = reach + self._through(q_reach, old_sizes + seen_old, S_size + 1)

        step = STEP[accumulation(q.dtype)]
        error = (size * self.unit + reach * step) * self.terms
        certain = (reach < limit) & (max(abs(scale), abs(eps), abs(feature_eps)) < limit)
        self.numerator, self.denominator = o.transpose(1, 2), None
        self.condition = 1.0
        if normalizer != "none":
            den = self._denominator(normalizer, own_den, self.k_den, weight, 1)
            den_size = self._denominator(normalizer, den_q_size, self.k_den_size, sizes, 1)
            den_reach = self._denominator(normalizer, den_q_reach, self.k_den_size + 1, sizes + seen, 2)
            if initial_S is not None:
                z_size = initial_z.detach().abs()[..., None]
                den = den + self._through(own_den, old, initial_z[..., None])
                den_size = den_size + self._through(den_q_size, old_sizes, z_size)
                den_reach = den_reach + self._through(den_q_reach, old_sizes + seen_old, z_size + 1)
            den = den + eps
            den_error = (den_size * self.terms + abs(eps)) * self.unit + (den_reach + 1) * self.terms * step
            self.denominator = den.transpose(1, 2)
            o = o / den
            plain = den.detach().abs()
            error = (error + o.detach().abs() * den_error) / (0.75 * plain)
            certain = certain & (den_error < 0.25 * plain) & (den_reach < limit) & (1 / plain < limit)
            if plain.numel():
                self.condition = float((plain / (den_size + abs(eps) + 1e-300)).min())
        self.o = o.transpose(1, 2)
        result = self.o.detach()
        error = error.transpose(1, 2) + 4 * UNIT[q.dtype] * result.abs() + STEP[q.dtype]
        self.o_bound = error.expand_as(result)
        self.certain = certain.transpose(1, 2).expand_as(result) & result.isfinite() & self.o_bound.isfinite()
        self.certain = self.certain & (result.abs() < LARGEST[q.dtype])

    def _place(self, batch, tokens, sizes, extents, masking, cu_seqlens, initial_tokens):
        """Block, place in the block and sequence of every token, and which tokens see which."""
        self.block, self.inner, self.blocks = places(sizes, extents)
        require(len(self.block) == tokens, "tokens of the partition")
        require(masking == "none" or len(sizes) == 1, "a causal grid")
        require(type(initial_tokens) is int and 0 <= initial_tokens < FAR, "initial_tokens")
        require(initial_tokens == 0 or masking != "none", "initial_tokens of a call that is not causal")
        require(masking != "block-causal" or initial_tokens % extents[0] == 0, "initial_tokens inside a block")
        self.initial_tokens, self.packed = initial_tokens, cu_seqlens is not None
        token = torch.arange(tokens)
        self.row, position, longest, self.rows = torch.zeros(tokens, dtype=torch.int64), token, tokens, batch
        if self.packed:
            require(isinstance(cu_seqlens, torch.Tensor) and cu_seqlens.dtype in (torch.int64, torch.int32), "packed")
            require(cu_seqlens.ndim == 1 and len(cu_seqlens) >= 2 and cu_seqlens.device.type == "cpu", "cu_seqlens")
            bounds = cu_seqlens.tolist()
            require(len(sizes) == 1 and batch == 1 and bounds[0] == 0 and bounds[-1] == tokens, "cu_seqlens")
            require(sorted(bounds) == bounds, "cu_seqlens")
            self.rows, longest = len(bounds) - 1, max(b - a for a, b in zip(bounds, bounds[1:], strict=False))
            self.row = torch.bucketize(token, torch.tensor(bounds[1:]), right=True)
            position = token - torch.tensor(bounds)[self.row]
        if len(sizes) == 1:
            self.block = (initial_tokens + position) // min(extents[0], FAR)
            self.inner = ((initial_tokens + position) % min(extents[0], FAR))[None]
            self.blocks = -(-(initial_tokens + longest) // extents[0])
        self.visible = self.row[:, None] == self.row[None, :]
        if masking == "token-causal":
            self.visible = self.visible & (token[:, None] >= token[None, :])
        elif masking == "block-causal":
            self.visible = self.visible & (self.block[:, None] >= self.block[None, :])

    def _wide(self, x):
        """[B, N, kv heads, D] to [B, H, N, D] in float64"""
        return x.double().repeat_interleave(self.group, 2).transpose(1, 2)

    def _features(self, x, feature_map, feature_eps):
        """(phi(x) + feature_eps, size of its terms), for each head of q"""
        mapped = FEATURE_MAPS[feature_map](x.double())
        size = mapped.detach().abs() + abs(feature_eps)
        repeat = [t.repeat_interleave(self.group, 2).transpose(1, 2) for t in (mapped + feature_eps, size)]
        return repeat[0], repeat[1]

    @staticmethod
    def _queries(q, feature_map, feature_eps, scale):
        """(scale (phi(q) + feature_eps), size of its terms, their reach)"""
        mapped = FEATURE_MAPS[feature_map](q.double()).transpose(1, 2)
        size = mapped.detach().abs() + abs(feature_eps)
        return scale * (mapped + feature_eps), abs(scale) * size, (abs(scale) + 1) * (size + 1)

    def _denominator(self, normalizer, q, k, weight, one):
        """[B, H, N, 1] of the tokens' features, with ``one`` for their value"""
        if normalizer == "paper":
            return ((q @ k.transpose(-1, -2)) * weight).sum(-1, keepdim=True) * one
        # The authors': tokens at the same place of every block, each by the sum of its own block.
        together = self.row[:, None] == self.row[None, :]
        same_slot = (self.inner[:, :, None] == self.inner[:, None, :]).all(0) & together
        same_block = ((self.block[:, None] == self.block[None, :]) & together).double()
        return (weight * same_slot) @ (q * (same_block @ k)).sum(-1, keepdim=True) * one

    def _check_state(self, dtype, normalizer, widths, extents, S, z):
        kv_heads, key_dim, value_dim = widths
        require((S is not None) == (self.initial_tokens > 0), "initial_S")
        require((z is not None) == (S is not None and normalizer != "none"), "initial_z")
        self.initial = (S, z)
        blocks = -(-self.initial_tokens // extents[0])
        for x, shape in (
            (S, (self.rows, kv_heads, blocks, key_dim, value_dim)),
            (z, (self.rows, kv_heads, blocks, key_dim)),
        ):
            if x is not None:
                check_tokens(x, "initial state", accumulation(dtype), shape)

    def _through(self, q, old, S):
        """q [B, H, N, D], old [H, N, blocks] or [B, H, N, blocks], S [rows, kv heads, blocks, D, E] -> [B, H, N, E]"""
        S, old = S.double().repeat_interleave(self.group, 1), old.expand(len(q), *old.shape[-3:])
        if self.packed:
            return torch.einsum("bhnd,bhnm,nhmde->bhne", q, old, S[self.row])
        return torch.einsum("bhnd,bhnm,bhmde->bhne", q, old, S)

    def state(self):
        """(S, its bound, z, its bound) after a causal call; a bound is infinite where nothing is certain"""
        where = torch.zeros(self.rows if self.packed else 1, self.blocks, len(self.row), dtype=torch.float64)
        where[self.row, self.block, torch.arange(len(self.row))] = 1.0
        results = []
        ones = torch.ones_like(self.v[..., :1])
        for k, size, v, first in (
            (self.k, self.k_size, self.v, self.initial[0]),
            (self.k_den, self.k_den_size, ones, self.initial[1]),
        ):
            k, size, v = (x.detach()[:, :: self.group] for x in (k, size, v))
            form = "rmn,bhnd,bhne->rhmde" if self.packed else "rmn,bhnd,bhne->bhmde"
            S = torch.einsum(form, where, k, v)
            bound = torch.einsum(form, where, size, v.abs())
            reach = torch.einsum(form, where, size + 1, v.abs() + 1)
            if first is not None:
                old = first.detach().double()
                old = old if first.ndim == 5 else old[..., None]
                S[:, :, : old.shape[2]] += old
                bound[:, :, : old.shape[2]] += old.abs()
                reach[:, :, : old.shape[2]] += old.abs()
            held = torch.float64 if self.unit == UNIT[torch.float64] else torch.float32
            error = (bound * self.unit + reach * STEP[held]) * self.terms
            results += [S, torch.where(reach < LARGEST[held], error, torch.inf)]
        return results[0], results[1], results[2][..., 0], results[3][..., 0]
