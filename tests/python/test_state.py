"""Streaming equals the one-shot call, and a state can be copied, stored and sent."""

import copy
import pickle

import pytest
import torch

import mhla
from oracle import random_inputs

TOKENS, BLOCK = 23, 4


def make_state(mixing, **options):
    defaults = {"batch": 2, "heads": 4, "kv_heads": 2, "key_dim": 5, "value_dim": 4, "block_size": BLOCK}
    return mhla.State(mixing, **{**defaults, "dtype": torch.float64, **options})


def inputs(per_head=False):
    return random_inputs(mhla.Partition.line(TOKENS, BLOCK), heads=4, kv_heads=2, per_head=per_head)


@pytest.mark.parametrize("prefilled", [0, 1, 3, 4, 5, 16, 23])
@pytest.mark.parametrize("normalizer", ["none", "paper"])
@pytest.mark.parametrize("per_head", [False, True])
def test_prefill_then_steps_equal_one_call(prefilled, normalizer, per_head):
    q, k, v, mixing = inputs(per_head)
    expected = mhla.attention(q, k, v, mixing, partition=BLOCK, causal=True, normalizer=normalizer, scale=0.5)
    state = make_state(mixing, normalizer=normalizer, scale=0.5)
    outputs = [state.prefill(q[:, :prefilled], k[:, :prefilled], v[:, :prefilled])]
    for t in range(prefilled, TOKENS):
        outputs.append(state.step(q[:, t], k[:, t], v[:, t])[:, None])
    torch.testing.assert_close(torch.cat(outputs, 1), expected, rtol=1e-12, atol=1e-12)
    assert state.tokens == TOKENS


def test_a_matrix_per_batch_row_is_refused_by_name():
    with pytest.raises(ValueError, match=r"mixing has shape \[2, 4, 6, 6\]; it must be \[M, M\] or \[H, M, M\]"):
        make_state(torch.rand(2, 4, 6, 6))


@pytest.mark.parametrize("duplicate", [mhla.State.fork, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_goes_on_by_itself(duplicate):
    q, k, v, mixing = inputs()
    state = make_state(mixing)
    state.prefill(q[:, :9], k[:, :9], v[:, :9])
    other = duplicate(state)
    tail = state.prefill(q[:, 9:], k[:, 9:], v[:, 9:])
    assert (state.tokens, other.tokens) == (TOKENS, 9)
    assert torch.equal(other.prefill(q[:, 9:], k[:, 9:], v[:, 9:]), tail)
    assert other.nbytes == state.nbytes > 0


def test_damaged_data_is_refused():
    data = make_state(inputs()[3]).serialize()
    for damaged in (b"", data[:-1], b"x" + data[1:], data + b"x"):
        with pytest.raises(ValueError):
            mhla.State.restore(damaged)


def test_more_blocks_than_trained_follow_the_policy():
    q, k, v, mixing = inputs()
    with pytest.raises(ValueError, match="beyond|blocks"):
        make_state(mixing[:3, :3]).prefill(q, k, v)
    extended = mhla.extend_causal_mixing(mixing[:3, :3], 6, "clamp")
    expected = mhla.attention(q, k, v, extended, partition=BLOCK, causal=True)
    actual = make_state(mixing[:3, :3], beyond="clamp").prefill(q, k, v)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q[:, :, :3], k, v), "^q "),
        (lambda q, k, v: (q, k[:, :5], v), "^k "),
        (lambda q, k, v: (q, k, v.float()), "^v "),
        (lambda q, k, v: (q, k, v[0]), "^v "),
        (lambda q, k, v: (q.transpose(2, 3).contiguous().transpose(2, 3), k, v), "^q "),
    ],
)
def test_wrong_tensors_are_named_and_change_nothing(change, message):
    q, k, v, mixing = inputs()
    state = make_state(mixing)
    with pytest.raises(ValueError, match=message):
        state.prefill(*change(q, k, v))
    assert state.tokens == 0


def test_step_names_a_tensor_of_wrong_rank():
    q, k, v, mixing = inputs()
    with pytest.raises(ValueError, match="^k has 4 axes"):
        make_state(mixing).step(q[:, 0], k[:, :1], v[:, 0])


def test_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="^dtype is torch.int32"):
        make_state(torch.ones(2, 2), dtype=torch.int32)
