"""Sizes near the largest integer are refused by name: nothing wraps around, crashes or never ends."""

import sys

import pytest
import torch

import mhla

HUGE = sys.maxsize


def tokens(n=32, device="cpu"):
    return tuple(torch.rand(1, n, 2, 8, device=device) for _ in range(3))


@pytest.mark.parametrize("normalizer", ["none", "paper", "authors"])
@pytest.mark.parametrize("size", [HUGE, 2**60, 2**33])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_block_beyond_the_limit_is_refused(normalizer, size, device):
    mixing = torch.ones(1, 1, device=device)
    for partition in (size, mhla.Partition.line(32, size)):
        with pytest.raises(ValueError, match=r"^partition has blocks of extents \[\d+\]; .* at most 2\^32 tokens"):
            mhla.attention(*tokens(device=device), mixing, partition=partition, normalizer=normalizer)
    with pytest.raises(ValueError, match=r"^partition has blocks of extents"):
        q, k, v = (x.requires_grad_() for x in tokens(device=device))
        mhla.attention(q, k, v, mixing, partition=size, normalizer=normalizer)


@pytest.mark.parametrize("normalizer", ["none", "paper", "authors"])
@pytest.mark.parametrize("size", [2**30, 2**32])
def test_a_block_much_larger_than_its_tokens_is_one_block(normalizer, size):
    q, k, v = tokens()
    expected = mhla.attention(q, k, v, torch.ones(1, 1), partition=32, normalizer=normalizer)
    o = mhla.attention(q, k, v, torch.ones(1, 1), partition=size, normalizer=normalizer)
    assert torch.equal(o, expected)


def test_sizes_whose_product_wraps_around_are_no_tokens():
    for device in ("cpu", "meta"):
        q, k, v = (x[:, :0] for x in tokens(device=device))
        with pytest.raises(ValueError, match="^partition has sizes"):
            torch.ops.mhla.attention(q, k, v, torch.ones(0, 0, device=device), [2**32, 2**32], [1, 1])


@pytest.mark.parametrize("initial_tokens", [HUGE, HUGE - 31, 2**62])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_initial_tokens_near_the_largest_integer_are_refused(initial_tokens, device):
    state = mhla.Summaries(torch.zeros(1, 2, 1, 8, 8, device=device), torch.zeros(1, 2, 1, 8, device=device))
    mixing = torch.ones(8, 8, device=device)
    settings = {"partition": 8, "causal": True, "initial_state": state, "initial_tokens": initial_tokens}
    for return_state in (False, True):
        with pytest.raises(ValueError, match=rf"^initial_tokens is {initial_tokens}; it must be at most 2\^48"):
            mhla.attention(*tokens(device=device), mixing, **settings, return_state=return_state)


def state(block_size, beyond="clamp"):
    return mhla.State(torch.ones(2, 2), batch=1, heads=2, key_dim=8, value_dim=8, block_size=block_size, beyond=beyond)


@pytest.mark.parametrize("block_size", [2**61, HUGE, 2**32 + 1, 0, -1])
def test_a_state_refuses_block_sizes_outside_its_limits(block_size):
    with pytest.raises(ValueError, match=f"^block_size is {block_size}; it must be at (most 2\\^32|least 1)"):
        state(block_size)


@pytest.mark.parametrize("beyond", ["error", "clamp", "running-mean", "interpolate"])
def test_a_state_with_the_largest_blocks_works(beyond):
    q, k, v = tokens()
    large, fitting = state(2**32, beyond), state(32, beyond)
    assert torch.equal(large.prefill(q, k, v), fitting.prefill(q, k, v))
    assert large.tokens == 32


def test_mixing_matrices_refuse_sizes_that_would_wrap_around():
    with pytest.raises(ValueError, match=r"^blocks is 4294967296; it must be at most 2\^24"):
        torch.ops.mhla.extend_causal_mixing(torch.ones(1, 1), 2**32, "clamp")
    with pytest.raises(ValueError, match="^the number of blocks of `to` is 1099511627776"):
        torch.ops.mhla.resize_mixing(torch.ones(1, 1), [8], [8], [2**40], [1])
    with pytest.raises(ValueError, match="^the number of blocks of partition is"):
        torch.ops.mhla.mixing_init([2**40], [1], "uniform", 3.0, 1.5, 1.0)


def test_rotary_tables_refuse_sizes_that_would_wrap_around():
    with pytest.raises(ValueError, match=rf"^offset is {HUGE}; it must lie within 2\^48"):
        torch.ops.mhla.rotary_table([4], [2], 1e4, HUGE)
    with pytest.raises(ValueError, match=rf"^sizes has an entry {HUGE}; it must be at most 2\^48"):
        torch.ops.mhla.rotary_table([HUGE], [2], 1e4, 4)


def memory(block_size):
    """Of a decoding state for one row, one head and two blocks, as ``torch.ops.mhla.decode_step`` takes it."""
    none = torch.zeros(0)
    return [
        torch.zeros(1, 1, 2, 4, 4),
        none,
        torch.zeros(1, 1, 4, 4),
        none,
        torch.zeros(1, 1),
        none,
        none,
        torch.zeros(1, 1, block_size, 4),
        torch.zeros(1, 1, block_size, 4),
        torch.zeros(1, dtype=torch.int64),
        torch.zeros(1, 2, dtype=torch.int32),
    ]


@pytest.mark.parametrize("max_tokens", [0, 8])
def test_decoding_refuses_block_size_zero(max_tokens):
    x, mixing = torch.rand(1, 1, 1, 4), torch.ones(2, 2)
    with pytest.raises(ValueError, match=r"^memory.k has block size 0 \(axis 2\); it must be at least 1"):
        torch.ops.mhla.decode_step(x, x, x, mixing, memory(0), max_tokens, normalizer="none")
    with pytest.raises(ValueError, match=r"^memory.k has block size 0 \(axis 2\); it must be at least 1"):
        torch.ops.mhla.decode_open(mixing, memory(0), 1, max_tokens, "none")
    torch.ops.mhla.decode_open(mixing, memory(4), 1, max_tokens, "none")
    assert torch.ops.mhla.decode_step(x, x, x, mixing, memory(4), max_tokens, normalizer="none").shape == x.shape


@pytest.mark.parametrize("position", [-1, 8, 2**40, HUGE])
def test_decoding_refuses_positions_outside_its_memory(position):
    x, mixing, parts = torch.rand(1, 1, 1, 4), torch.ones(2, 2), memory(4)
    parts[9][0] = position
    with pytest.raises(
        ValueError, match=f"^memory.tokens of batch row 0 is {position}; before 1 more it may be 0 to 7"
    ):
        torch.ops.mhla.decode_step(x, x, x, mixing, parts, normalizer="none")


def test_inputs_may_be_expanded():
    q, k, v = tokens(1)
    expected = mhla.attention(*(x.repeat(1, 16, 1, 1) for x in (q, k, v)), torch.ones(2, 2), partition=8)
    o = mhla.attention(*(x.expand(1, 16, 2, 8) for x in (q, k, v)), torch.ones(2, 2), partition=8)
    assert torch.equal(o, expected)
