"""The calls of the attention operator: random arguments for them, and whether a result is right."""

import math

import torch

import mhla
from formula import ALGORITHMS, FEATURE_MAPS, LARGEST, STEP, UNIT, Attention, Unspecified, require
from gradient_bound import gradient_bounds
from tensors import DTYPES
from wrong import close, expect


def tensor(random, *shape, **more):
    spec = {"shape": list(shape), "seed": random.randrange(1000), **more}
    if random.random() < 0.15:
        spec["layout"] = random.choice(("gap", "expanded", "flipped", "shifted"))
    return spec


def partition_of(random, line):
    if line or random.random() < 0.5:
        return [random.randrange(40)], [random.choice((1, 2, 3, 4, 7, 16, 50))]
    axes = random.choice((2, 3))
    return [random.randrange(1, 7 if axes == 2 else 4) for _ in range(axes)], [
        random.randrange(1, 5) for _ in range(axes)
    ]


def option(random, names, first):
    return first if random.random() < 0.4 else random.choice(names)


class AttentionCall:
    """``mhla.attention`` by the direct path or ``torch.ops.mhla.attention``, its gradients, and its shapes on meta."""

    name = "attention"
    names = (
        "q k v mixing partition sizes extents feature_map normalizer causal masking algorithm scale eps "
        "feature_eps q_den k_den cu_seqlens initial_state initial_S initial_z initial_tokens return_state "
        "state_blocks batch"
    )

    def arguments(self, random):
        masking = random.choice(("none", "none", "block-causal", "token-causal", "token-causal"))
        packed = random.random() < 0.15
        sizes, extents = partition_of(random, masking != "none" or packed)
        tokens = 1
        for size in sizes:
            tokens *= size
        heads, kv_heads = random.choice(((1, 1), (2, 2), (2, 1), (4, 2), (3, 3)))
        batch = 1 if packed else random.choice((1, 1, 2, 3, 0))
        key_dim, value_dim = random.choice((1, 4, 5, 8, 16, 33)), random.choice((1, 3, 8, 16, 32))
        dtype = option(random, DTYPES, "float32")
        normalizer = random.choice(("none", "paper", "authors") if masking == "none" else ("none", "paper"))
        kind = {
            "dtype": dtype,
            "values": random.choice(("normal", "normal", "positive")),
            "grad": random.random() < 0.2,
        }
        a = {
            "through": random.choice(("direct", "direct", "ops", "meta")),
            "q": tensor(random, batch, tokens, heads, key_dim, **kind),
            "k": tensor(random, batch, tokens, kv_heads, key_dim, **kind),
            "v": tensor(random, batch, tokens, kv_heads, value_dim, dtype=dtype, grad=kind["grad"]),
            "sizes": sizes,
            "extents": extents,
            "masking": masking,
            "normalizer": normalizer,
            "feature_map": option(random, list(FEATURE_MAPS), "relu"),
            "algorithm": "summary" if normalizer == "authors" else option(random, ALGORITHMS, "automatic"),
            "scale": random.choice((1.0, 0.25, -2.0)),
            "eps": random.choice((1e-6, 1e-6, 0.0, 0.5)),
            "feature_eps": random.choice((0.0, 0.0, 1e-3, 0.5)),
            "return_state": False,
        }
        longest, rows = tokens, batch
        if packed:
            cuts = sorted(random.randrange(tokens + 1) for _ in range(random.randrange(3)))
            bounds = [0, *cuts, tokens]
            a["cu_seqlens"] = {"shape": [len(bounds)], "data": bounds, "dtype": random.choice(("int64", "int32"))}
            longest, rows = max(y - x for x, y in zip(bounds, bounds[1:], strict=False)), len(bounds) - 1
        initial = 0
        if masking != "none" and random.random() < 0.3:
            initial = random.randrange(20)
            initial -= initial % extents[0] if masking == "block-causal" else 0
        if initial:
            accumulated = {"dtype": "float64" if dtype == "float64" else "float32"}
            blocks = -(-initial // extents[0])
            a["initial_tokens"] = initial
            a["initial_S"] = tensor(random, rows, kv_heads, blocks, key_dim, value_dim, **accumulated)
            if normalizer != "none":
                values = {"values": "positive", **accumulated}
                a["initial_z"] = tensor(random, rows, kv_heads, blocks, key_dim, **values)
        a["return_state"] = masking != "none" and random.random() < 0.3
        if normalizer != "none" and random.random() < 0.15:
            a["q_den"], a["k_den"] = ({**a[x], "seed": random.randrange(1000)} for x in ("q", "k"))
        blocks = -(-(initial + longest) // extents[0])
        if len(sizes) > 1:
            blocks = 1
            for size, extent in zip(sizes, extents, strict=True):
                blocks *= -(-size // extent)
        if masking != "none" or packed:
            blocks += random.choice((0, 0, 0, 2))
        kinds = random.random()
        matrices = (batch, heads) if kinds < 0.1 else (heads,) if kinds < 0.3 else ()
        shape = (*matrices, blocks, blocks)
        values = random.choice(("positive", "positive", "normal"))
        a["mixing"] = tensor(
            random, *shape, dtype=random.choice(("float32", "float64", dtype)), values=values, grad=kind["grad"]
        )
        return a

    def call(self, through, return_state, **a):
        if not isinstance(a["masking"], str):
            raise Unspecified("causal")
        if through == "direct":
            causal = {"none": False, "token-causal": True, "block-causal": "block"}.get(a["masking"], a["masking"])
            state = (a.get("initial_S"), a.get("initial_z")) if a.get("initial_S") is not None else None
            sizes, extents = a["sizes"], a["extents"]
            line = isinstance(sizes, list) and len(sizes) == 1 and isinstance(extents, list) and extents
            partition = extents[0] if line else mhla.Partition(sizes, extents)
            rest = {x: a[x] for x in a if x not in ("masking", "sizes", "extents", "initial_S", "initial_z")}
            return mhla.attention(
                **rest, partition=partition, causal=causal, initial_state=state, return_state=return_state
            )
        if through == "meta":
            a = {x: value.to("meta") if isinstance(value, torch.Tensor) else value for x, value in a.items()}
            return torch.ops.mhla.attention(**a)[0]
        if return_state:
            formula = Attention(**{x: v.detach() if isinstance(v, torch.Tensor) else v for x, v in a.items()})
            o, S, z = torch.ops.mhla.attention(**a, state_blocks=formula.blocks)
            return o, (S, None if a["normalizer"] == "none" else z)
        return torch.ops.mhla.attention(**a)[0]

    def check(self, result, through, return_state, **a):
        if through == "meta":
            q, v = a["q"], a["v"]
            require(all(math.isfinite(a[x] or 0.0) for x in ("scale", "eps", "feature_eps")), "numbers")
            expect(tuple(result.shape) == (*q.shape[:3], v.shape[3]), f"o on meta has shape {tuple(result.shape)}")
            return
        if through == "ops":  # torch takes True for 1
            a = {x: int(value) if isinstance(value, bool) else value for x, value in a.items()}
        if through == "direct" and len(a["sizes"]) == 1:
            a["sizes"], a["extents"] = [a["q"].shape[1]], a["extents"][:1]
        leaves = {
            x: value.detach().double().requires_grad_() if value.requires_grad else value.detach()
            for x, value in a.items()
            if isinstance(value, torch.Tensor)
        }
        plain = {x: value.detach() if isinstance(value, torch.Tensor) else value for x, value in a.items()}
        formula = Attention(**plain)
        o = result[0] if return_state else result
        expect(o.dtype == a["q"].dtype, f"o has dtype {o.dtype}")
        close(o, formula.o, formula.o_bound, formula.certain, "o")
        if return_state:
            require(a["masking"] != "none" or o.numel() == 0, "the state of a call that is not causal")
            S, S_bound, z, z_bound = formula.state()
            if o.numel() == 0:
                return
            for actual, expected, bound, what in ((result[1][0], S, S_bound, "S"), (result[1][1], z, z_bound, "z")):
                if actual is not None:
                    certain = (expected.abs() < LARGEST[actual.dtype]) & bound.isfinite()
                    close(actual, expected, bound, certain, what)
        wanted = [x for x, value in a.items() if isinstance(value, torch.Tensor) and value.requires_grad]
        if wanted and formula.condition > 0.05 and bool(formula.certain.all()) and o.numel():
            self._check_gradients(o, wanted, a, {**a, **leaves})

    @staticmethod
    def _check_gradients(o, wanted, a, leaves):
        names = ("q", "k", "v", "mixing", "q_den", "k_den", "initial_S", "initial_z")
        if any(x not in names for x in wanted):
            return
        # The formula looks at dtypes: float64 leaves of numbers that the dtype can hold.
        typed = {x: _Rounded.apply(leaves[x], a[x].dtype) if x in wanted else leaves[x] for x in leaves}
        expected = Attention(**typed)
        d_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(o.dtype)
        actual = torch.autograd.grad(o, [a[x] for x in wanted], d_o, allow_unused=True)
        inputs, d_o = [leaves[x] for x in wanted], d_o.double()
        formula = torch.autograd.grad(expected.o, inputs, d_o, allow_unused=True, retain_graph=True)
        bounds = gradient_bounds(typed, expected, wanted, d_o)
        for x, mine, theirs, bound in zip(wanted, actual, formula, bounds, strict=True):
            if mine is None or theirs is None:
                expect(theirs is None or not theirs.any(), f"no gradient of {x}")
                continue
            bound = bound + 2 * UNIT[mine.dtype] * theirs.abs() + STEP[mine.dtype]
            certain = bound.isfinite() & theirs.isfinite() & (theirs.abs() < LARGEST[mine.dtype])
            close(mine, theirs, bound, certain, f"gradient of {x}")


class _Rounded(torch.autograd.Function):
    """The numbers in another dtype, whose gradient stays in float64."""

    @staticmethod
    def forward(ctx, x, dtype):
        return x.to(dtype)

    @staticmethod
    def backward(ctx, d):
        return d.double(), None
