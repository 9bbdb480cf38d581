"""A decoding state in tensors equals the one-shot call: prefill, steps of any size, policies, types, graphs."""

import copy
import itertools
import pickle
import random

import pytest
import torch

import mhla
from mhla._state_decode import DecodeState
from oracle import relative_rms

SIZES = {"batch": 2, "heads": 4, "kv_heads": 2, "key_dim": 5, "value_dim": 4, "block_size": 4}
POLICIES = ["clamp", "running-mean", "interpolate"]


def make_state(mixing, **options):
    defaults = {
        **SIZES,
        "dtype": torch.float64,
        "feature_map": "relu",
        "normalizer": "paper",
        "scale": 0.7,
        "eps": 1e-6,
        "feature_eps": 1e-3,
        "beyond": "error",
    }
    return DecodeState(mixing, **{**defaults, **options})


def random_tokens(tokens, device, *, seed=0, dtype=torch.float64, trained=6, per_head=False, **sizes):
    s = {**SIZES, **sizes}
    generator = torch.Generator().manual_seed(seed)

    def draw(heads, width):
        return torch.randn(s["batch"], tokens, heads, width, generator=generator, dtype=torch.float64)

    q, k, v = draw(s["heads"], s["key_dim"]), draw(s["kv_heads"], s["key_dim"]), draw(s["kv_heads"], s["value_dim"])
    shape = (s["heads"], trained, trained) if per_head else (trained, trained)
    mixing = 0.05 + torch.rand(shape, generator=generator, dtype=torch.float64)
    return [x.to(device, dtype) for x in (q, k, v)] + [mixing.to(device)]


def one_call(q, k, v, mixing, block_size=4, beyond="error", **options):
    blocks = -(-q.shape[1] // block_size)
    extended = mixing if blocks <= mixing.shape[-1] else mhla.extend_causal_mixing(mixing, blocks, beyond)
    settings = {"scale": 0.7, "feature_eps": 1e-3, **options}
    return mhla.attention(q.double(), k.double(), v.double(), extended, partition=block_size, causal=True, **settings)


def consume(state, q, k, v, pieces):
    """``pieces``: (prefill or step, tokens) in turn."""
    outputs, begin = [], 0
    for method, tokens in pieces:
        part = slice(begin, begin + tokens)
        outputs.append(getattr(state, method)(q[:, part], k[:, part], v[:, part]))
        begin += tokens
    assert begin == q.shape[1]
    return torch.cat(outputs, 1)


def test_a_matrix_per_batch_row_is_refused_by_name():
    with pytest.raises(ValueError, match=r"mixing has shape \[2, 4, 6, 6\]; it must be \[M, M\] or \[H, M, M\]"):
        make_state(torch.rand(2, 4, 6, 6))


@pytest.mark.parametrize("prefilled", [0, 1, 4, 7, 16, 23])
@pytest.mark.parametrize("normalizer", ["none", "paper"])
@pytest.mark.parametrize("per_head", [False, True])
def test_prefill_then_steps_equal_one_call(device, prefilled, normalizer, per_head):
    q, k, v, mixing = random_tokens(23, device, per_head=per_head)
    state = make_state(mixing, normalizer=normalizer)
    o = consume(state, q, k, v, [("prefill", prefilled), *[("step", 1)] * (23 - prefilled)])
    torch.testing.assert_close(o, one_call(q, k, v, mixing, normalizer=normalizer), rtol=1e-12, atol=1e-12)
    assert state.tokens == 23
    assert state.positions.tolist() == [23, 23]


@pytest.mark.parametrize("beyond", POLICIES)
@pytest.mark.parametrize("trained", [1, 2, 5])
def test_pieces_of_any_size_follow_the_policy(device, beyond, trained):
    generator = random.Random(trained)
    for seed in range(6):
        tokens = generator.choice([40, 61, 99])
        q, k, v, mixing = random_tokens(tokens, device, seed=seed, trained=trained, per_head=seed % 2 == 1)
        pieces = []
        while sum(size for _, size in pieces) < tokens:
            left = tokens - sum(size for _, size in pieces)
            method = generator.choice(["prefill", "step"])
            pieces.append((method, min(left, generator.choice([1, 2, 4, 7, 30] if method == "prefill" else [1, 3, 9]))))
        state = make_state(mixing, beyond=beyond, max_tokens=tokens)
        o = consume(state, q, k, v, pieces)
        torch.testing.assert_close(o, one_call(q, k, v, mixing, beyond=beyond), rtol=1e-11, atol=1e-11)


def test_a_prefill_longer_than_its_pieces_keeps_a_bounded_state(device):
    tokens = 4 * 200
    for beyond in ("clamp", "running-mean"):
        q, k, v, mixing = random_tokens(tokens, device, trained=3)
        state = make_state(mixing, beyond=beyond)
        size = state.nbytes
        o = consume(state, q, k, v, [("prefill", tokens - 3), ("step", 3)])
        torch.testing.assert_close(o, one_call(q, k, v, mixing, beyond=beyond), rtol=1e-11, atol=1e-11)
        assert state.nbytes == size


def test_a_running_mean_needs_no_matrix(device):
    q, k, v, _ = random_tokens(30, device)
    state = make_state(torch.empty(0, 0, dtype=torch.float64, device=device), beyond="running-mean")
    o = consume(state, q, k, v, [("prefill", 10), ("step", 11), ("prefill", 9)])
    mean = mhla.mixing_init(mhla.Partition.line(30, 4), "running-mean", dtype=torch.float64, device=device)
    torch.testing.assert_close(o, one_call(q, k, v, mean), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("dtype", "summary_dtype", "tolerance"),
    [
        (torch.float32, torch.float32, 1e-5),
        (torch.float16, torch.float32, 2e-3),
        (torch.bfloat16, torch.float32, 8e-3),
        (torch.bfloat16, torch.bfloat16, 8e-3),
        (torch.float32, torch.bfloat16, 8e-3),
    ],
)
@pytest.mark.parametrize("feature_map", ["relu", "elu+1"])
def test_precision_is_that_of_the_types(device, dtype, summary_dtype, tolerance, feature_map):
    sizes = {"key_dim": 64, "value_dim": 128, "block_size": 16}
    q, k, v, mixing = random_tokens(75, device, dtype=dtype, **sizes)
    state = make_state(
        mixing.float(), dtype=dtype, summary_dtype=summary_dtype, feature_map=feature_map, max_tokens=75, **sizes
    )
    o = consume(state, q, k, v, [("prefill", 37), *[("step", 1)] * 30, ("step", 8)])
    assert o.dtype == dtype
    assert relative_rms(o, one_call(q, k, v, mixing.float(), 16, feature_map=feature_map)) <= tolerance


def restored(state):
    return DecodeState.restore(state.serialize(), state.positions.device)


@pytest.mark.parametrize("duplicate", [DecodeState.fork, restored])
def test_a_copy_goes_on_by_itself(device, duplicate):
    q, k, v, mixing = random_tokens(23, device)
    state = make_state(mixing)
    state.prefill(q[:, :9], k[:, :9], v[:, :9])
    other = duplicate(state)
    tail = state.step(q[:, 9:], k[:, 9:], v[:, 9:])
    assert (state.tokens, other.tokens) == (23, 9)
    assert torch.equal(other.step(q[:, 9:], k[:, 9:], v[:, 9:]), tail)


def test_too_many_tokens_are_refused(device):
    q, k, v, mixing = random_tokens(25, device)
    state = make_state(mixing)
    with pytest.raises(ValueError, match="^tokens is 25 after 0; at most 24"):
        state.prefill(q, k, v)
    state.prefill(q[:, :24], k[:, :24], v[:, :24])
    with pytest.raises(ValueError, match="^tokens is 1 after 24; at most 24"):
        state.step(q[:, 24], k[:, 24], v[:, 24])
    with pytest.raises(ValueError, match="^max_tokens is 25"):
        make_state(mixing, max_tokens=25)
    with pytest.raises(ValueError, match="^max_tokens is 0; beyond interpolate"):
        make_state(mixing, beyond="interpolate")


@pytest.mark.parametrize("method", ["prefill", "step"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q[:, :, :2], k, v), "^q "),
        (lambda q, k, v: (q, k[:, :2], v), "^k "),
        (lambda q, k, v: (q, k, v.float()), "^v "),
        (lambda q, k, v: (q, k, v[0]), "^v "),
    ],
)
def test_wrong_tensors_are_named_and_change_nothing(method, change, message):
    q, k, v, mixing = random_tokens(5, "cpu")
    state = make_state(mixing)
    with pytest.raises(ValueError, match=message):
        getattr(state, method)(*change(q, k, v))
    assert state.tokens == 0


def test_wrong_memory_is_named():
    q, k, v, mixing = random_tokens(1, "cpu")
    for name in ("S", "P_z", "tokens"):
        state = make_state(mixing)
        state._memory = state._memory._replace(**{name: getattr(state._memory, name)[:1]})
        with pytest.raises(ValueError, match=rf"^memory\.{name} has shape"):
            state.step(q, k, v)


def test_rows_at_different_tokens_cannot_be_prefilled(device):
    q, k, v, mixing = random_tokens(6, device)
    state = make_state(mixing)
    state.step(q[:, :3], k[:, :3], v[:, :3])
    state.positions[1] = 2
    with pytest.raises(ValueError, match=r"^positions are \[3, 2\]"):
        state.prefill(q[:, 3:], k[:, 3:], v[:, 3:])


def test_steps_of_several_tokens_on_the_cpu_equal_one_call():
    q, k, v, mixing = random_tokens(11, "cpu")
    state = mhla.State(mixing, **SIZES, dtype=torch.float64, scale=0.7, feature_eps=1e-3)
    o = consume(state, q, k, v, [("step", 3), ("step", 8)])
    torch.testing.assert_close(o, one_call(q, k, v, mixing), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("argument", ["max_tokens", "summary_dtype"])
def test_settings_of_cuda_states_are_refused_on_the_cpu(argument):
    with pytest.raises(ValueError, match=f"^{argument} is .*; it must be None"):
        mhla.State(torch.ones(2, 2), **SIZES, **{argument: 8})


@pytest.mark.gpu
def test_a_state_on_cuda_is_used_like_one_on_the_cpu():
    q, k, v, mixing = random_tokens(23, "cuda")
    state = mhla.State(mixing, **SIZES, dtype=torch.float64, scale=0.7, feature_eps=1e-3, max_tokens=24)
    outputs = [state.prefill(q[:, :9], k[:, :9], v[:, :9])]
    for duplicate in (mhla.State.fork, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))):
        state = duplicate(state)
        t = state.tokens
        outputs.append(state.step(q[:, t], k[:, t], v[:, t])[:, None])
    outputs.append(state.step(q[:, 12:], k[:, 12:], v[:, 12:]))
    torch.testing.assert_close(torch.cat(outputs, 1), one_call(q, k, v, mixing), rtol=1e-12, atol=1e-12)
    assert state.nbytes > 0


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("summary_dtype", [torch.float32, torch.bfloat16])
def test_a_captured_step_is_replayed_over_block_borders(size, summary_dtype):
    sizes = {"key_dim": 32, "value_dim": 64}
    q, k, v, mixing = random_tokens(63, "cuda", dtype=torch.bfloat16, trained=3, **sizes)
    options = {**SIZES, **sizes, "dtype": torch.bfloat16, "beyond": "clamp", "summary_dtype": summary_dtype}
    state = mhla.State(mixing, **options)
    state.prefill(q[:, :6], k[:, :6], v[:, :6])
    eager = state.fork()
    token = [x[:, :size].clone() for x in (q, k, v)]
    warm = state.fork()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        warm.step(*token)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = state.step(*token)
    for begin in range(6, 63, size):
        part = slice(begin, begin + size)
        for buffer, x in zip(token, (q, k, v), strict=True):
            buffer.copy_(x[:, part])
        graph.replay()
        assert torch.equal(o, eager.step(q[:, part], k[:, part], v[:, part])), begin
    assert state.tokens == eager.tokens == 63


@pytest.mark.gpu
def test_neither_a_first_prefill_nor_a_step_waits_for_the_device():
    q, k, v, mixing = random_tokens(24, "cuda")
    make_state(mixing).prefill(q, k, v)
    state = make_state(mixing)
    torch.cuda.set_sync_debug_mode("error")
    try:
        state.prefill(q[:, :9], k[:, :9], v[:, :9])
        for t in range(9, 24):
            state.step(q[:, t], k[:, t], v[:, t])
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_many_heads_and_few_give_the_same(device="cuda"):
    """The columns of a head are divided differently; sums only round differently."""
    for batch, kv_heads in itertools.product([1, 64], [1, 4]):
        sizes = {"batch": batch, "heads": 4, "kv_heads": kv_heads, "key_dim": 128, "value_dim": 256, "block_size": 8}
        q, k, v, mixing = random_tokens(20, device, dtype=torch.float32, **sizes)
        state = make_state(mixing.float(), dtype=torch.float32, **sizes)
        o = consume(state, q, k, v, [("step", 1)] * 20)
        assert relative_rms(o, one_call(q, k, v, mixing.float(), 8)) <= 1e-5
