"""Forward and backward of ``mhla.attention`` in double precision, for every combination of options."""

import itertools

import pytest
import torch

import mhla
from oracle import FEATURE_MAPS, GRID, LINE, VIDEO, dense_attention, random_inputs

MODES = [
    (False, "none"),
    (False, "paper"),
    (False, "authors"),
    ("block", "none"),
    ("block", "paper"),
    (True, "none"),
    (True, "paper"),
]
COMBINATIONS = [
    (feature_map, mode, algorithm)
    for feature_map, mode, algorithm in itertools.product(FEATURE_MAPS, MODES, ("summary", "dense"))
    if (mode[1], algorithm) != ("authors", "dense")
]


def options_of(feature_map, mode, algorithm):
    causal, normalizer = mode
    return {
        "feature_map": feature_map,
        "normalizer": normalizer,
        "causal": causal,
        "scale": 0.7,
        "eps": 1e-3,
        "feature_eps": 0.05,
        "algorithm": algorithm,
    }


@pytest.mark.parametrize(("feature_map", "mode", "algorithm"), COMBINATIONS)
def test_output_equals_the_definition(feature_map, mode, algorithm, device):
    options = options_of(feature_map, mode, algorithm)
    for partition in [LINE] if mode[0] else [LINE, GRID, VIDEO]:
        for per_head, per_row, kv_heads in [(False, False, 4), (True, False, 2), (True, True, 2)]:
            inputs = random_inputs(
                partition, heads=4, kv_heads=kv_heads, per_head=per_head, per_row=per_row, device=device
            )
            actual = mhla.attention(*inputs, partition=partition, **options)
            options_of_oracle = {key: value for key, value in options.items() if key != "algorithm"}
            expected = dense_attention(*inputs, partition=partition, **options_of_oracle)
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("feature_map", "mode", "algorithm"), COMBINATIONS)
def test_gradients_equal_finite_differences(feature_map, mode, algorithm, device):
    options = options_of(feature_map, mode, algorithm)
    if feature_map == "identity" and mode[1] != "none":
        options["eps"] = 20.0  # keeps denominators of signed features away from zero
    partition = mhla.Partition.line(7, 3) if mode[0] else mhla.Partition.grid((3, 3), (2, 2))
    inputs = random_inputs(
        partition, batch=1, key_dim=3, value_dim=2, kv_heads=1, per_head=algorithm == "dense", device=device
    )
    inputs = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *x: mhla.attention(*x, partition=partition, **options), inputs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ["summary", "dense"])
def test_gradients_of_a_matrix_per_batch_row_equal_finite_differences(mode, algorithm, device):
    options = options_of("relu", mode, "summary" if mode[1] == "authors" else algorithm)
    partition = mhla.Partition.line(7, 3) if mode[0] else mhla.Partition.grid((3, 3), (2, 2))
    inputs = random_inputs(partition, key_dim=3, value_dim=2, per_row=True, device=device)
    inputs = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *x: mhla.attention(*x, partition=partition, **options), inputs)


@pytest.mark.parametrize("normalizer", ["paper", "authors"])
def test_separate_denominator_features_and_their_gradients(normalizer, device):
    q, k, v, mixing = random_inputs(LINE, batch=1, key_dim=3, value_dim=2, device=device)
    q_den, k_den, _, _ = random_inputs(LINE, batch=1, key_dim=3, value_dim=2, seed=1, device=device)
    options = {"partition": LINE, "normalizer": normalizer, "feature_eps": 0.1}
    actual = mhla.attention(q, k, v, mixing, q_den=q_den, k_den=k_den, **options)
    expected = dense_attention(q, k, v, mixing, q_den=q_den, k_den=k_den, **options)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    inputs = [x.requires_grad_() for x in (q, k, v, mixing, q_den, k_den)]

    def call(q, k, v, mixing, q_den, k_den):
        return mhla.attention(q, k, v, mixing, q_den=q_den, k_den=k_den, **options)

    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("normalizer", ["none", "paper"])
@pytest.mark.parametrize(("causal", "initial_tokens"), [(True, 5), (True, 6), ("block", 6)])
def test_gradients_flow_through_initial_and_final_state(normalizer, causal, initial_tokens, device):
    partition = mhla.Partition.line(7, 3)
    q, k, v, _ = random_inputs(partition, batch=2, key_dim=3, value_dim=2, device=device)
    blocks = -(-(initial_tokens + 7) // 3)
    generator = torch.Generator().manual_seed(3)
    mixing = torch.rand(blocks + 1, blocks + 1, generator=generator, dtype=torch.float64)
    S = torch.rand(2, 2, -(-initial_tokens // 3), 3, 2, generator=generator, dtype=torch.float64)
    z = torch.rand(2, 2, -(-initial_tokens // 3), 3, generator=generator, dtype=torch.float64) + 1
    states = (S, z) if normalizer == "paper" else (S,)

    def call(q, k, v, mixing, S, z=None):
        o, state = mhla.attention(
            q,
            k,
            v,
            mixing,
            partition=partition,
            causal=causal,
            normalizer=normalizer,
            initial_state=mhla.Summaries(S, z),
            initial_tokens=initial_tokens,
            return_state=True,
        )
        assert state.S.shape[2] == blocks
        return (o, *(tensor for tensor in state if tensor is not None))

    inputs = [x.to(device).requires_grad_() for x in (q, k, v, mixing, *states)]
    assert torch.autograd.gradcheck(call, inputs)


def test_gradient_of_the_state_alone_reaches_keys_and_values(device):
    partition = mhla.Partition.line(7, 3)
    q, k, v, mixing = (x.requires_grad_() for x in random_inputs(partition, device=device))
    _, state = mhla.attention(q, k, v, mixing, partition=partition, causal=True, return_state=True)
    d_k, d_v = torch.autograd.grad(state.S.sum(), (k, v))
    expected_v = k.relu().sum(-1, keepdim=True).expand_as(v)
    torch.testing.assert_close(d_v, expected_v, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(d_k, (k > 0) * v.sum(-1, keepdim=True), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cut", [1, 4, 6, 8, 12])
@pytest.mark.parametrize("normalizer", ["none", "paper"])
def test_a_causal_call_cut_in_two_equals_one_call(cut, normalizer, device):
    q, k, v, mixing = random_inputs(LINE, device=device)
    options = {"causal": True, "normalizer": normalizer}
    whole, state = mhla.attention(q, k, v, mixing, partition=4, return_state=True, **options)
    head, middle = mhla.attention(q[:, :cut], k[:, :cut], v[:, :cut], mixing, partition=4, return_state=True, **options)
    tail, final = mhla.attention(
        q[:, cut:],
        k[:, cut:],
        v[:, cut:],
        mixing,
        partition=4,
        initial_state=middle,
        initial_tokens=cut,
        return_state=True,
        **options,
    )
    torch.testing.assert_close(torch.cat([head, tail], 1), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(final.S, state.S, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True, "block"])
def test_packed_sequences_equal_a_loop(causal, device):
    offsets = [0, 5, 5, 6, 13]
    q, k, v, _ = random_inputs(mhla.Partition.line(13, 4), batch=1, device=device)
    mixing = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)
    inputs = [x.requires_grad_() for x in (q, k, v, mixing)]
    packed = mhla.attention(*inputs, partition=4, causal=causal, cu_seqlens=offsets)
    pieces = []
    for begin, end in itertools.pairwise(offsets):
        blocks = -(-(end - begin) // 4)
        piece = [x[:, begin:end] for x in (q, k, v)]
        pieces.append(mhla.attention(*piece, mixing[:blocks, :blocks], partition=4, causal=causal))
    expected = torch.cat(pieces, 1)
    torch.testing.assert_close(packed, expected, rtol=1e-12, atol=1e-12)
    weight = torch.rand(packed.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(device)
    actual_gradients = torch.autograd.grad((packed * weight).sum(), inputs)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)
    torch.testing.assert_close(actual_gradients, expected_gradients, rtol=1e-10, atol=1e-10)


def test_strided_views_give_the_same_as_copies(device):
    qkv = torch.randn(2, 20, 3, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, k, v = qkv.to(device).unbind(2)
    _, _, _, mixing = random_inputs(GRID, device=device)
    strided = mhla.attention(q, k, v, mixing, partition=GRID)
    copied = mhla.attention(q.contiguous(), k.contiguous(), v.contiguous(), mixing, partition=GRID)
    assert torch.equal(strided, copied)


def test_results_do_not_depend_on_the_number_of_threads():
    partition = mhla.Partition.grid((16, 16), (4, 4))
    inputs = [x.float().requires_grad_() for x in random_inputs(partition, heads=3, key_dim=16, value_dim=16)]
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            o = mhla.attention(*inputs, partition=partition)
            results.append([o, *torch.autograd.grad(o.square().sum(), inputs)])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


def test_no_tokens_give_an_empty_output(device):
    q = torch.zeros(2, 0, 3, 4, device=device)
    assert mhla.attention(q, q, q, torch.ones(0, 0, device=device), partition=4).shape == (2, 0, 3, 4)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_do_not_depend_on_what_changes_between_the_passes(causal, device):
    """The backward pass goes on with the plan of the forward pass only where it still holds."""
    partition = mhla.Partition.line(40, 8)
    inputs = random_inputs(partition, batch=1, key_dim=16, value_dim=16, device=device)
    leaves = [x.float().requires_grad_() for x in inputs]

    def other_strides(x):
        return x.transpose(1, 2).contiguous().transpose(1, 2) if x.ndim == 4 else x

    def gradients(unpack=lambda x: x, threads=1):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
            o = mhla.attention(*leaves, partition=partition, causal=causal)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return torch.autograd.grad(o.square().sum(), leaves)
        finally:
            torch.set_num_threads(before)

    expected = gradients()
    for actual in (gradients(other_strides), gradients(threads=3)):
        assert all(torch.equal(one, two) for one, two in zip(actual, expected, strict=True))
    with torch.profiler.profile() as profile:
        profiled = gradients()
    assert all(torch.equal(one, two) for one, two in zip(profiled, expected, strict=True))
    assert {"mhla::attention", "mhla::attention_backward"} <= {event.key for event in profile.key_averages()}
    for wrong in (lambda x: x[..., :1], lambda x: x.double() if x.is_floating_point() else x):
        with pytest.raises((ValueError, RuntimeError), match="it must be"):
            gradients(wrong)
