"""The fused operators against the same formulas in PyTorch: values, gradients, precision, layouts."""

import pytest
import torch

import fused_oracle as oracle
from fused_oracle import LIMITS, randn, relative_rms
from mhla import fused

DTYPES = [torch.float64, *LIMITS]

# B, N, H, D and how the tokens lie: (sizes, pairs, layout), or None.
ROTARY_CASES = {
    "language model": ((2, 7, 4, 128), ([7], [64], "half")),
    "video": ((1, 2 * 3 * 5, 3, 128), ([2, 3, 5], [22, 21, 21], "adjacent")),
    "image": ((2, 12, 2, 16), ([3, 4], [4, 4], "adjacent")),
    "rest of the head left alone, half": ((1, 5, 2, 48), ([5], [8], "half")),
    "rest of the head left alone, adjacent": ((1, 5, 2, 48), ([5], [7], "adjacent")),
    "odd width, half": ((2, 3, 3, 7), ([3], [3], "half")),
    "odd width, adjacent": ((2, 3, 3, 7), ([3], [3], "adjacent")),
    "an axis without pairs": ((1, 6, 2, 8), ([2, 3], [0, 4], "half")),
    "no rotation": ((2, 5, 3, 72), None),
    "long token": ((1, 3, 40, 256), ([3], [128], "half")),
    "very long token": ((1, 2, 100, 256), ([2], [128], "adjacent")),
    "two elements": ((1, 1, 1, 2), None),
    "no tokens": ((2, 0, 2, 8), ([0], [4], "half")),
}
NORMS = ["none", "head", "channels"]


def rotary_inputs(case, norm, device, dtype):
    shape, layout = ROTARY_CASES[case]
    x = randn(*shape, device=device, dtype=dtype)
    width = {"none": 0, "head": shape[3], "channels": shape[2] * shape[3]}[norm]
    weight = randn(width, seed=1, device=device, dtype=dtype) if norm != "none" else None
    if layout is None:
        return x, weight, None, None, "half"
    sizes, pairs, kind = layout
    cos, sin = torch.ops.mhla.rotary_table(sizes, pairs, dtype=torch.float64, device=device)
    rotary = fused.Rotary(cos, sin, tuple(sizes), tuple(pairs), kind)
    return x, weight, rotary, oracle.angles(sizes, pairs).to(device), kind


def gradients(outputs, inputs):
    weights = [randn(*y.shape, seed=2, device=y.device, dtype=y.dtype) for y in outputs]
    return torch.autograd.grad(outputs, inputs, weights)


def assert_close(actual, expected, dtype):
    """Every tensor of a tuple within the limit of its dtype; double to 1e-11."""
    for i, (ours, exact) in enumerate(zip(actual, expected, strict=True)):
        assert ours.shape == exact.shape
        if ours.numel() > 0:
            assert relative_rms(ours, exact) <= LIMITS.get(dtype, 1e-11), f"tensor {i}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("case", ROTARY_CASES)
def test_rotary_features_and_gradients_equal_the_formula(case, norm, dtype, device):
    x, weight, rotary, angle, layout = rotary_inputs(case, norm, device, dtype)
    leaves = [t.requires_grad_() for t in (x, weight) if t is not None]
    options = {"norm": norm, "feature_map": "relu", "feature_eps": 1e-2}
    ours = fused.rotary_features(x, rotary, weight=weight, return_plain=True, **options)
    assert all(y.dtype == dtype for y in ours)
    doubles = [t.detach().double().requires_grad_() for t in leaves]
    exact = oracle.rotary_features(doubles[0], angle, layout, weight=None if weight is None else doubles[1], **options)
    assert_close(ours, exact, dtype)
    assert_close(gradients(ours, leaves), gradients(exact, doubles), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("feature_map", oracle.FEATURE_MAPS)
def test_every_feature_map_equals_the_formula(feature_map, dtype, device):
    x, weight, rotary, angle, layout = rotary_inputs("language model", "head", device, dtype)
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    ours = fused.rotary_features(x, rotary, norm="head", weight=weight, feature_map=feature_map)
    doubles = [t.detach().double().requires_grad_() for t in leaves]
    exact, _ = oracle.rotary_features(
        doubles[0], angle, layout, norm="head", weight=doubles[1], feature_map=feature_map
    )
    assert_close([ours], [exact], dtype)
    assert_close(gradients([ours], leaves), gradients([exact], doubles), dtype)


def test_a_table_for_each_batch_row_rotates_each_row_by_its_own(device):
    x = randn(3, 5, 2, 16, device=device)
    angle = randn(3, 5, 8, seed=3, device=device)
    rotary = fused.Rotary.tables(angle.cos(), angle.sin(), layout="adjacent")
    exact, _ = oracle.rotary_features(x, angle, "adjacent", feature_map="identity")
    assert_close([fused.rotary_features(x, rotary, feature_map="identity")], [exact], torch.float64)


def test_tables_from_theta_are_accurate_at_far_positions(device):
    rotary = fused.Rotary.line(4, 128, offset=1_000_000, device=device)
    exact = oracle.angles([4], [64], offset=1_000_000)
    torch.testing.assert_close(rotary.cos.cpu().view(4, 64).double(), exact.cos(), rtol=0, atol=1e-7)
    torch.testing.assert_close(rotary.sin.cpu().view(4, 64).double(), exact.sin(), rtol=0, atol=1e-7)
    grid = fused.Rotary.grid((2, 3, 5), 128, dtype=torch.float64, device=device)
    assert grid.pairs == (22, 21, 21)
    x = randn(1, 30, 2, 128, device=device)
    exact = oracle.rotate(x, oracle.angles([2, 3, 5], [22, 21, 21]).to(device), "adjacent")
    torch.testing.assert_close(fused.rotary_features(x, grid, feature_map="identity"), exact)


def test_positions_go_on_where_an_earlier_call_ended(device):
    x = randn(1, 9, 2, 8, device=device)
    whole = fused.rotary_features(x, fused.Rotary.line(9, 8, device=device))
    tail = fused.rotary_features(x[:, 4:], fused.Rotary.line(5, 8, offset=4, device=device))
    assert torch.equal(whole[:, 4:], tail)


GATED_SHAPES = {
    "language model": (2, 5, 4, 256),
    "video": (1, 6, 12, 128),
    "odd": (3, 4, 3, 7),
    "width of a head no power of two": (2, 3, 16, 72),
    "long token": (1, 2, 40, 256),
    "very long token": (1, 2, 100, 256),
    "two elements": (1, 1, 1, 2),
    "no tokens": (2, 0, 2, 8),
    "many rows": (5, 300, 3, 8),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["head", "channels"])
@pytest.mark.parametrize("given", ["", "weight", "gate", "weight gate"])
@pytest.mark.parametrize("case", GATED_SHAPES)
def test_gated_norm_and_gradients_equal_the_formula(case, given, norm, dtype, device):
    shape = GATED_SHAPES[case]
    x = randn(*shape, device=device, dtype=dtype)
    width = shape[3] if norm == "head" else shape[2] * shape[3]
    options = {}
    if "weight" in given:
        options["weight"] = randn(width, seed=1, device=device, dtype=dtype)
    if "gate" in given:
        options["gate"] = randn(*shape, seed=2, device=device, dtype=dtype)
    leaves = [t.requires_grad_() for t in (x, *options.values())]
    ours = fused.gated_norm(x, **options, norm=norm)
    assert ours.dtype == dtype
    doubles = [t.detach().double().requires_grad_() for t in leaves]
    exact = oracle.gated_norm(doubles[0], **dict(zip(options, doubles[1:], strict=True)), norm=norm)
    assert_close([ours], [exact], dtype)
    assert_close(gradients([ours], leaves), gradients([exact], doubles), dtype)


MODULATE_SHAPES = {
    "DiT-S": (3, 5, 384),
    "DiT-XL": (2, 3, 1152),
    "Wan": (1, 70, 1536),
    "odd": (4, 3, 7),
    "short rows": (3, 50, 16),
    "long token": (1, 3, 10240),
    "very long token": (1, 2, 25600),
    "no tokens": (2, 0, 8),
    "many tokens": (2, 1200, 24),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("given", ["", "weight bias", "scale shift", "scale", "shift", "scale shift weight bias"])
@pytest.mark.parametrize("case", MODULATE_SHAPES)
def test_modulate_and_gradients_equal_the_formula(case, given, per_token, dtype, device):
    shape = MODULATE_SHAPES[case]
    rows = shape if per_token else (shape[0], shape[2])
    x = randn(*shape, device=device, dtype=dtype)
    options = {
        name: randn(*(rows if name in ("scale", "shift") else shape[2:]), seed=i, device=device, dtype=dtype)
        for i, name in enumerate(given.split(), start=1)
    }
    leaves = [t.requires_grad_() for t in (x, *options.values())]
    ours = fused.modulate(x, **options)
    assert ours.dtype == dtype
    doubles = [t.detach().double().requires_grad_() for t in leaves]
    exact = oracle.modulate(doubles[0], **dict(zip(options, doubles[1:], strict=True)))
    assert_close([ours], [exact], dtype)
    assert_close(gradients([ours], leaves), gradients([exact], doubles), dtype)


@pytest.mark.parametrize("parameter", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_parameters_may_have_a_type_of_their_own(dtype, parameter, device):
    x = randn(2, 3, 32, device=device, dtype=dtype)
    scale, shift = (randn(2, 32, seed=i, device=device, dtype=parameter).requires_grad_() for i in (1, 2))
    weight, bias = (randn(32, seed=i, device=device, dtype=parameter).requires_grad_() for i in (3, 4))
    ours = fused.modulate(x, scale, shift, weight=weight, bias=bias)
    assert ours.dtype == dtype
    doubles = [t.detach().double().requires_grad_() for t in (scale, shift, weight, bias)]
    exact = oracle.modulate(x.double(), doubles[0], doubles[1], weight=doubles[2], bias=doubles[3])
    assert_close([ours], [exact], dtype)
    d_y = randn(2, 3, 32, seed=5, device=device, dtype=dtype)
    ours = torch.autograd.grad(ours, (scale, shift, weight, bias), d_y)
    assert all(d.dtype == parameter for d in ours)
    assert_close(ours, torch.autograd.grad(exact, doubles, d_y.double()), parameter)

    x, gate = (randn(2, 3, 4, 8, seed=i, device=device, dtype=dtype) for i in (6, 7))
    for norm, width in (("head", 8), ("channels", 32)):
        weight = randn(width, seed=8, device=device, dtype=parameter).requires_grad_()
        (d_weight,) = torch.autograd.grad(fused.gated_norm(x, weight, gate, norm=norm).sum(), weight)
        exact = weight.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(oracle.gated_norm(x.double(), exact, gate.double(), norm=norm).sum(), exact)
        assert_close([d_weight], [expected], parameter)
        (d_weight,) = torch.autograd.grad(
            fused.rotary_features(x, norm=norm, weight=weight, feature_map="elu+1").sum(), weight
        )
        plain, _ = oracle.rotary_features(x.double(), None, norm=norm, weight=exact, feature_map="elu+1")
        assert_close([d_weight], torch.autograd.grad(plain.sum(), exact), parameter)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slices_of_larger_tensors_give_the_same_bits(dtype, device):
    """q of a joint qkv projection, transposed heads, misaligned slices."""
    joint = randn(2, 5, 3, 4, 64, device=device, dtype=dtype)
    weight = randn(4 * 64, seed=1, device=device, dtype=dtype)
    rotary = fused.Rotary.line(5, 64, device=device)
    by_head = randn(2, 4, 5, 64, device=device, dtype=dtype).transpose(1, 2)
    misaligned = randn(2, 5, 4, 65, device=device, dtype=dtype)[..., 1:]
    for x in (joint[:, :, 1], by_head, misaligned):
        for norm in NORMS:
            gain = {"none": None, "head": weight[:64], "channels": weight}[norm]
            ours = fused.rotary_features(x, rotary, norm=norm, weight=gain)
            same = fused.rotary_features(x.contiguous(), rotary, norm=norm, weight=gain)
            torch.testing.assert_close(ours, same, rtol=LIMITS[dtype], atol=LIMITS[dtype])
            assert x is misaligned or torch.equal(ours, same)
    x = randn(2, 5, 6, 32, device=device, dtype=dtype)
    rows = randn(2, 6 * 32, device=device, dtype=dtype).view(2, 6, 32)
    ours = fused.modulate(x[:, :, 3], rows[:, 1], rows[:, 2])
    assert torch.equal(ours, fused.modulate(x[:, :, 3].contiguous(), rows[:, 1].clone(), rows[:, 2].clone()))


def test_results_are_the_same_bits_every_time(device):
    x = randn(3, 100, 4, 32, device=device, dtype=torch.float32).requires_grad_()
    gate = randn(3, 100, 4, 32, seed=1, device=device, dtype=torch.float32).requires_grad_()
    weight = randn(32, seed=2, device=device, dtype=torch.float32).requires_grad_()
    scale = randn(3, 128, seed=3, device=device, dtype=torch.float32).requires_grad_()
    rotary = fused.Rotary.line(100, 32, device=device)

    def everything():
        outputs = (
            fused.gated_norm(x, weight, gate),
            fused.rotary_features(x, rotary, norm="head", weight=weight),
            fused.modulate(x.flatten(2), scale, scale),
        )
        return outputs + torch.autograd.grad([y.square().sum() for y in outputs], (x, gate, weight, scale))

    first = everything()
    threads = torch.get_num_threads()
    for run in range(100):
        torch.set_num_threads(1 + run % 3)
        for ours, expected in zip(everything(), first, strict=True):
            assert torch.equal(ours, expected)
    torch.set_num_threads(threads)


def test_not_a_number_stays_where_it_is(device):
    x = randn(2, 3, 2, 16, device=device, dtype=torch.float32)
    x[1, 1, 0, 5] = torch.nan
    bad = torch.zeros(2, 3, 2, dtype=torch.bool, device=device)
    bad[1, 1, 0] = True
    for y in (fused.gated_norm(x), fused.rotary_features(x, norm="head")):
        assert torch.equal(y.isnan().any(-1), bad)
    zeros = torch.zeros(1, 2, 2, 16, device=device)
    assert torch.equal(fused.gated_norm(zeros), zeros)
    assert torch.equal(fused.modulate(zeros[0]), zeros[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_whose_squares_leave_float32_are_normalised_to_zeros(device, dtype):
    x = randn(1, 3, 2, 8, device=device, dtype=dtype)
    x[0, 1] *= 1e30
    shift = randn(1, 16, seed=1, device=device, dtype=dtype)
    results = (
        (fused.gated_norm(x, norm="channels"), fused.gated_norm(x[:, ::2], norm="channels"), 0),
        (fused.rotary_features(x, norm="channels"), fused.rotary_features(x[:, ::2], norm="channels"), 0),
        (fused.modulate(x.flatten(2), shift=shift), fused.modulate(x.flatten(2)[:, ::2], shift=shift), shift[0]),
    )
    for y, without, expected in results:
        assert (y[:, 1] == expected).all()
        assert torch.equal(y[:, ::2], without)


def test_gradients_agree_with_finite_differences(device):
    x, gate = (randn(2, 3, 2, 6, seed=i, device=device).requires_grad_() for i in (0, 1))
    weights = {"head": randn(6, seed=2, device=device), "channels": randn(12, seed=3, device=device)}
    rotary = fused.Rotary.line(3, 4, dtype=torch.float64, device=device)
    for norm, weight in weights.items():
        weight.requires_grad_()
        assert torch.autograd.gradcheck(lambda *t, n=norm: fused.gated_norm(*t, norm=n), (x, weight, gate))
        for feature_map in ("elu+1", "exp", "squared-relu"):
            assert torch.autograd.gradcheck(
                lambda a, w, n=norm, f=feature_map: fused.rotary_features(
                    a, rotary, norm=n, weight=w, feature_map=f, return_plain=True
                ),
                (x, weight),
            )
    tokens = randn(2, 3, 5, device=device).requires_grad_()
    weight, bias = (randn(5, seed=i, device=device).requires_grad_() for i in (4, 5))
    for shape in ((2, 5), (2, 3, 5)):
        scale, shift = (randn(*shape, seed=i, device=device).requires_grad_() for i in (6, 7))
        assert torch.autograd.gradcheck(
            lambda a, s, t, w, b: fused.modulate(a, s, t, weight=w, bias=b), (tokens, scale, shift, weight, bias)
        )
