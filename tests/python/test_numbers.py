"""Where a whole number is meant, a fraction, a bool or anything else is refused by name; any type of integer is not."""

import numpy
import pytest
import torch

import mhla

LINE = mhla.Partition.line(16, 4)
SIZES = {"batch": 1, "heads": 2, "kv_heads": 2, "key_dim": 4, "value_dim": 4, "block_size": 4}


def state_with(name):
    return lambda value: mhla.State(torch.ones(4, 4), **{**SIZES, name: value})


def attention_with(**options):
    q, k, v = (torch.rand(1, 16, 2, 4) for _ in range(3))
    return mhla.attention(q, k, v, torch.ones(4, 4), **{"partition": 4, "causal": True, **options})


# The argument as the message names it, a call with a value for it, and a value that is right.
CASES = {
    **{f"state, {name}": (name, state_with(name), right) for name, right in SIZES.items()},
    "partition": ("partition", lambda n: attention_with(partition=n), 4),
    "initial_tokens": ("initial_tokens", lambda n: attention_with(initial_tokens=n), 0),
    "cu_seqlens": ("cu_seqlens", lambda n: attention_with(cu_seqlens=[0, n]), 16),
    "line, tokens": ("tokens", lambda n: mhla.Partition.line(n, 4), 16),
    "line, block size": ("block_size", lambda n: mhla.Partition.line(16, n), 4),
    "grid, sizes": ("sizes", lambda n: mhla.Partition.grid((4, n), (2, 2)), 4),
    "grid, blocks": ("blocks", lambda n: mhla.Partition.grid((4, 4), (2, n)), 2),
    "by_extent, sizes": ("sizes", lambda n: mhla.Partition.by_extent((n,), (4,)), 16),
    "by_extent, extents": ("extents", lambda n: mhla.Partition.by_extent((16,), (n,)), 4),
    "layer, dim": ("dim", lambda n: mhla.nn.MHLA(n, 2, LINE), 8),
    "layer, heads": ("heads", lambda n: mhla.nn.MHLA(8, n, LINE), 2),
    "layer, kv_heads": ("kv_heads", lambda n: mhla.nn.MHLA(8, 2, LINE, kv_heads=n), 1),
    "layer, batch": ("batch", lambda n: mhla.nn.MHLA(8, 2, LINE, causal=True).new_state(n), 3),
    "extended blocks": ("blocks", lambda n: mhla.extend_causal_mixing(torch.ones(4, 4), n, "clamp"), 6),
    "rotary, tokens": ("tokens", lambda n: mhla.fused.Rotary.line(n, 8), 16),
    "rotary, dim": ("dim", lambda n: mhla.fused.Rotary.line(16, n), 8),
    "rotary, offset": ("offset", lambda n: mhla.fused.Rotary.line(16, 8, offset=n), 2),
    "rotary, sizes": ("sizes", lambda n: mhla.fused.Rotary.grid((n, 4), 8), 4),
    "rotary grid, dim": ("dim", lambda n: mhla.fused.Rotary.grid((4, 4), n), 8),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wrong", [1.5, 16.5, 4.0, float("nan"), True, "4", 2**63, torch.tensor(True), [4]])
def test_what_is_no_whole_number_is_refused_by_name(case, wrong):
    name, call, _ = CASES[case]
    with pytest.raises((TypeError, ValueError), match=f"^{name} is "):
        call(wrong)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", [int, numpy.int64, numpy.int32, torch.tensor])
def test_integers_of_any_type_are_taken(case, kind):
    _, call, right = CASES[case]
    call(kind(right))


@pytest.mark.parametrize("wrong", [16, "0, 16", b"ab", [[0, 16]], [0, None]])
def test_cu_seqlens_that_are_no_list_of_integers_are_refused(wrong):
    with pytest.raises(TypeError, match="^cu_seqlens is "):
        attention_with(cu_seqlens=wrong)


def test_sizes_of_a_partition_are_ints():
    partition = mhla.Partition((numpy.int64(16),), (torch.tensor(4),))
    assert [type(n) for n in (*partition.sizes, *partition.extents)] == [int, int]
    assert partition == LINE


def test_a_layer_names_a_partition_of_another_type():
    with pytest.raises(TypeError, match="^partition is a int; it must be a Partition"):
        mhla.nn.MHLA(8, 2, 4)
