"""The fused operators, the partition's maps and the mixing matrices."""

import math

import torch

import mhla
from attention_call import tensor
from formula import FEATURE_MAPS, LARGEST, SMALLEST, UNIT, accumulation, places, require
from norms import rate_of, rms_norm
from tensors import DTYPES
from wrong import close, expect


def number(*values):
    require(all(type(x) in (int, float, bool) and math.isfinite(x) for x in values), "numbers")


def rounded(y, size, dtype):
    """What may be lost of a result whose terms have this size, and where that is certain."""
    bound = 256 * UNIT[accumulation(dtype)] * size + 4 * UNIT[dtype] * y.abs() + SMALLEST[dtype]
    certain = y.isfinite() & bound.isfinite() & (size < LARGEST[accumulation(dtype)]) & (y.abs() < LARGEST[dtype])
    return bound, certain


def check_x(x, axes):
    require(isinstance(x, torch.Tensor) and x.ndim == axes and x.dtype in UNIT, "x")
    require(x.layout == torch.strided, "x")


class GatedNorm:
    name = "gated_norm"
    names = "x weight gate norm eps batch tokens heads dim width"

    def arguments(self, random):
        batch, tokens, heads, dim = (
            random.choice((0, 1, 2)),
            random.randrange(6),
            random.randrange(1, 4),
            random.choice((1, 5, 8, 33)),
        )
        dtype, norm = random.choice(DTYPES), random.choice(("head", "channels"))
        a = {
            "x": tensor(random, batch, tokens, heads, dim, dtype=dtype),
            "norm": norm,
            "eps": random.choice((1e-6, 0.1)),
        }
        if random.random() < 0.5:
            a["weight"] = {
                "shape": [dim if norm == "head" else heads * dim],
                "dtype": random.choice(("float32", dtype)),
            }
        if random.random() < 0.5:
            a["gate"] = tensor(random, batch, tokens, heads, dim, dtype=dtype)
        return a

    def call(self, **a):
        return mhla.fused.gated_norm(**a)

    def check(self, result, x, norm="head", eps=1e-6, weight=None, gate=None):
        check_x(x, 4)
        require(norm in ("head", "channels"), "norm")
        number(eps)
        if x.device.type == "meta":
            expect(result.shape == x.shape, "shape on meta")
            return
        y, sure = rms_norm(x.detach().double(), weight, norm, eps, x.dtype)
        if gate is not None:
            require(gate.shape == x.shape and gate.dtype == x.dtype, "gate")
            y = y * torch.nn.functional.silu(gate.detach().double())
        bound, certain = rounded(y, y.abs(), x.dtype)
        close(result, y, bound, certain & sure, "y")


class Modulate:
    name = "modulate"
    names = "x scale shift weight bias eps batch tokens channels"

    def arguments(self, random):
        batch, tokens, channels = random.choice((0, 1, 2)), random.randrange(6), random.choice((1, 2, 7, 32))
        dtype = random.choice(DTYPES)
        a = {"x": tensor(random, batch, tokens, channels, dtype=dtype), "eps": random.choice((1e-6, 0.1))}
        shape = random.choice(([batch, channels], [batch, tokens, channels]))
        for name in ("scale", "shift"):
            if random.random() < 0.5:
                a[name] = {"shape": shape, "dtype": random.choice(("float32", dtype)), "seed": random.randrange(99)}
        for name in ("weight", "bias"):
            if random.random() < 0.4:
                a[name] = {"shape": [channels], "dtype": random.choice(("float32", dtype))}
        return a

    def call(self, **a):
        return mhla.fused.modulate(**a)

    def check(self, result, x, scale=None, shift=None, weight=None, bias=None, eps=1e-6):
        check_x(x, 3)
        number(eps)
        if x.device.type == "meta":
            expect(result.shape == x.shape, "shape on meta")
            return
        given = [None if t is None else t.detach().double() for t in (scale, shift, weight, bias)]
        for t, name in ((scale, "scale"), (shift, "shift")):
            require(t is None or tuple(t.shape) in ((x.shape[0], x.shape[2]), tuple(x.shape)), name)
        for t, name in ((weight, "weight"), (bias, "bias")):
            require(t is None or tuple(t.shape) == (x.shape[2],), name)
        wide = [t if t is None or t.ndim == 3 else t[:, None] for t in given[:2]]
        plain = x.detach().double()
        centred = plain - plain.mean(-1, keepdim=True)
        rate, sure = rate_of(centred, (-1,), eps, x.dtype)
        y, size = centred * rate, plain.abs().amax(-1, keepdim=True) * rate * torch.ones_like(plain)
        # What rounding of the mean does to the variance, as a share of it.
        size = size * (1 + (plain.abs().amax(-1, keepdim=True) * rate) ** 2)
        if given[2] is not None:
            y, size = y * given[2], size * given[2].abs()
        if given[3] is not None:
            y, size = y + given[3], size + given[3].abs()
        if wide[0] is not None:
            y, size = y * (1 + wide[0]), size * (1 + wide[0].abs())
        if wide[1] is not None:
            y, size = y + wide[1], size + wide[1].abs()
        bound, certain = rounded(y, size, x.dtype)
        close(result, y, bound, certain & sure, "y")


class RotaryFeatures:
    name = "rotary"
    names = (
        "x weight cos sin sizes pairs norm norm_eps feature_map feature_eps layout with_plain rotary theta "
        "offset dim tokens batch heads"
    )

    def arguments(self, random):
        batch, tokens, heads, dim = (
            random.choice((0, 1, 2)),
            random.randrange(1, 7),
            random.randrange(1, 3),
            random.choice((2, 5, 8)),
        )
        norm = random.choice(("none", "head", "channels"))
        a = {
            "x": tensor(random, batch, tokens, heads, dim, dtype=random.choice(DTYPES)),
            "norm": norm,
            "sizes": [tokens],
            "pairs": [random.randrange(dim // 2 + 1)],
            "theta": random.choice((1e4, 10.0)),
            "offset": random.choice((0, 0, 5)),
            "layout": random.choice(("half", "adjacent")),
            "feature_map": random.choice(list(FEATURE_MAPS)),
            "feature_eps": random.choice((0.0, 0.1)),
            "norm_eps": 1e-6,
        }
        if norm != "none" and random.random() < 0.5:
            a["weight"] = {"shape": [dim if norm == "head" else heads * dim]}
        return a

    def call(self, x, sizes, pairs, theta, offset, layout, norm, norm_eps, feature_map, feature_eps, weight=None):
        expected = torch.float64 if getattr(x, "dtype", None) == torch.float64 else torch.float32
        cos, sin = torch.ops.mhla.rotary_table(sizes, pairs, theta, offset, dtype=expected)
        device = getattr(x, "device", "cpu")
        return torch.ops.mhla.rotary_features(
            x,
            weight,
            cos.to(device),
            sin.to(device),
            sizes,
            pairs,
            norm,
            norm_eps,
            feature_map,
            feature_eps,
            layout,
            True,
        )

    def check(
        self, result, x, sizes, pairs, theta, offset, layout, norm, norm_eps, feature_map, feature_eps, weight=None
    ):
        check_x(x, 4)
        number(norm_eps, feature_eps, theta, offset)
        require(norm in ("none", "head", "channels") and layout in ("half", "adjacent"), "names")
        require(feature_map in FEATURE_MAPS and theta > 0, "names")
        require(len(sizes) == len(pairs) and 1 <= len(sizes) <= 3 and min(*sizes, *pairs, 0) == 0, "sizes")
        require(math.prod(sizes) == x.shape[1] and 2 * sum(pairs) <= x.shape[3], "pairs")
        if x.device.type == "meta":
            expect(result[0].shape == x.shape, "shape on meta")
            return
        plain, sure = x.detach().double(), True
        if norm != "none":
            plain, sure = rms_norm(plain, weight, norm, norm_eps, x.dtype)
        else:
            require(weight is None, "weight")
        plain = FEATURE_MAPS[feature_map](plain) + feature_eps
        axes = torch.meshgrid(*(torch.arange(s, dtype=torch.float64) + offset for s in sizes), indexing="ij")
        turns = [
            c.flatten()[:, None] * theta ** (-torch.arange(p, dtype=torch.float64) / max(p, 1))
            for c, p in zip(axes, pairs, strict=True)
        ]
        angle = torch.cat(turns, 1)[None, :, None, :]  # [1, N, 1, P]
        P = angle.shape[-1]
        first, second = (slice(0, P), slice(P, 2 * P)) if layout == "half" else (slice(0, 2 * P, 2), slice(1, 2 * P, 2))
        y = plain.clone()
        y[..., first] = plain[..., first] * angle.cos() - plain[..., second] * angle.sin()
        y[..., second] = plain[..., first] * angle.sin() + plain[..., second] * angle.cos()
        size = plain.abs().amax(-1, keepdim=True).expand_as(plain) + abs(feature_eps) if plain.numel() else plain
        sure = sure & (abs(feature_eps) < 1e30 and abs(offset) < 1e6 and 1e-3 < theta < 1e30)
        grows = 64 if feature_map in ("exp", "elu+1", "squared-relu") and norm != "none" else 1
        for actual, expected, what in ((result[0], y, "y"), (result[1], plain, "plain")):
            bound, certain = rounded(expected, grows * size, x.dtype)
            close(actual, expected, bound, certain & sure, what)


class PartitionCall:
    name = "partition"
    names = "sizes extents blocks tokens block_size partition kind mixing_init sigma threshold value"

    def arguments(self, random):
        axes = random.choice((1, 2, 3))
        return {
            "sizes": [random.randrange(7) for _ in range(axes)],
            "extents": [random.randrange(1, 5) for _ in range(axes)],
            "kind": random.choice(
                ("paper", "linear", "cos", "exp", "gaussian", "local", "uniform", "running-mean", "constant")
            ),
            "sigma": 3.0,
            "threshold": 1.5,
            "value": 1.0,
        }

    def call(self, sizes, extents, kind, sigma, threshold, value):
        partition = mhla.Partition(sizes, extents)
        if max(sizes) > 2**12 or math.prod(sizes) > 2**16 or partition.blocks > 2**10:  # allowed, and takes its time
            return None
        mixing = mhla.mixing_init(partition, kind, sigma=sigma, threshold=threshold, value=value, dtype=torch.float64)
        return partition.block_of, partition.block_order, partition.block_offsets, partition.blocks, mixing

    def check(self, result, sizes, extents, kind, sigma, threshold, value):
        if result is None:
            return
        block, order, offsets, blocks, mixing = result
        expected, _, count = places(sizes, extents)
        expect(torch.equal(block, expected), "block_of")
        expect(torch.equal(order, expected.sort(stable=True).indices), "block_order")
        expect(offsets.tolist() == [0, *expected.bincount(minlength=count).cumsum(0).tolist()], "block_offsets")
        expect(mixing.shape == (count, count) and bool(mixing.isfinite().all()), "mixing_init is not finite")
        if count and kind in ("paper", "uniform", "running-mean"):
            expect(bool(((mixing.sum(1) - 1).abs() < 1e-9).all()), "rows of mixing_init do not sum to one")


class MixingCall:
    name = "mixing"
    names = "mixing blocks beyond low high normalize_rows sizes extents trained source target tokens"

    def arguments(self, random):
        trained = random.randrange(1, 6)
        shape = random.choice(([trained, trained], [2, trained, trained]))
        return {
            "through": random.choice(("extend", "project", "resize")),
            "blocks": random.randrange(12),
            "mixing": {"shape": shape, "dtype": random.choice(DTYPES), "seed": random.randrange(99)},
            "beyond": random.choice(("error", "clamp", "running-mean", "interpolate")),
            "low": 0.0,
            "high": 1.0,
            "normalize_rows": random.random() < 0.5,
        }

    def call(self, through, mixing, blocks, beyond, low, high, normalize_rows):
        if through == "extend":
            slow = type(blocks) is int and 2**11 < blocks <= 2**15
            return None if slow else mhla.extend_causal_mixing(mixing, blocks, beyond)
        if through == "project":
            copied = mixing.detach().clone() if isinstance(mixing, torch.Tensor) else mixing
            return mhla.project_mixing(copied, normalize_rows=normalize_rows, low=low, high=high)
        trained = mixing.shape[-1] if getattr(mixing, "ndim", 0) else 2
        small = type(blocks) is int and 0 <= blocks < 2**9
        source, target = (mhla.Partition.line(n, 1) for n in (trained, blocks if small else 3))
        return mhla.resize_mixing(mixing, source, target)

    def check(self, result, through, mixing, blocks, beyond, low, high, normalize_rows):
        if result is None or mixing.device.type == "meta" or mixing.dtype not in UNIT:
            return
        require(mixing.is_floating_point() and mixing.ndim in (2, 3) and mixing.shape[-1] == mixing.shape[-2], "mixing")
        trained = mixing.shape[-1]
        if through == "project":
            require(low <= high and not mixing.isnan().any(), "low and high")
            expected = mixing.detach().double().clamp(low, high)
            if normalize_rows:
                sums = expected.sum(-1, keepdim=True)
                expected = expected / torch.where(sums == 0, torch.ones_like(sums), sums)
            bound, certain = rounded(expected, expected.abs(), mixing.dtype)
            close(
                result, expected, bound + 1e-3 * expected.abs() * (mixing.dtype == torch.float16), certain, "projected"
            )
            return
        if through == "resize":
            return
        require(blocks >= 0, "blocks")
        expect(result.shape[-2:] == (blocks, blocks), "shape of the extended matrix")
        same = min(trained, blocks)
        corner = result[..., :same, :same].tril(), mixing.detach()[..., :same, :same].tril()
        expect(torch.equal(*corner) or bool(corner[1].isnan().any()), "the trained corner changed")
        require(blocks <= trained or beyond != "error", "blocks beyond the trained ones")


class LayerCall:
    """``mhla.nn.MHLA``: made and run as it says, or refused by name."""

    name = "layer"
    names = (
        "dim heads partition kv_heads causal feature_map normalizer scale eps feature_eps mixing_init x state "
        "batch key_dim value_dim block_size sizes extents tokens q k v mixing mixing_per_head beyond"
    )

    def arguments(self, random):
        heads, kv_heads = random.choice(((1, 1), (2, 2), (2, 1), (4, 2)))
        dim, tokens, causal = 4 * heads, random.randrange(1, 17), random.random() < 0.5
        return {
            "dim": dim,
            "heads": heads,
            "kv_heads": kv_heads,
            "tokens": tokens,
            "block_size": random.randrange(1, 6),
            "causal": causal,
            "qk_norm": random.random() < 0.3,
            "mixing_per_head": random.random() < 0.3,
            "normalizer": random.choice(("none", "paper")),
            "feature_map": random.choice(list(FEATURE_MAPS)),
            "eps": 1e-6,
            "scale": 0.5,
            "x": tensor(random, random.choice((0, 1, 2)), tokens, dim),
        }

    def call(self, x, tokens, block_size, **settings):
        for size in (settings["dim"], settings["heads"], tokens, block_size):
            require(type(size) is int and size < 2**10, "a large layer, or no number")
        torch.manual_seed(0)
        layer = mhla.nn.MHLA(partition=mhla.Partition.line(tokens, block_size), **settings)
        with torch.no_grad():
            o = layer(x)
            if settings["causal"] is True and x.device.type == "cpu" and x.shape[0]:
                streamed = layer(x, layer.new_state(x.shape[0]))
                expect(o.shape == streamed.shape, "a streamed layer has another shape")
                close(streamed, o.double(), 1e-3 * (1 + o.double().abs()), o.isfinite() & (o.abs() < 1e3), "streamed")
        return o

    def check(self, result, x, **settings):
        expect(tuple(result.shape) == tuple(x.shape), f"shape {tuple(result.shape)} of x {tuple(x.shape)}")
        require(x.shape[-1] == settings["dim"], "x")
