"""Bad input to ``mhla.attention`` raises an error that names the argument."""

import pytest
import torch

import mhla

GRID = mhla.Partition.grid((4, 4), (2, 2))


def good():
    q, k, v = (torch.rand(2, 16, 4, 6) for _ in range(3))
    return {"q": q, "k": k, "v": v, "mixing": torch.rand(4, 4), "partition": GRID}


def strided(tensor):
    return tensor.transpose(2, 3).contiguous().transpose(2, 3)


NAN = torch.full((4, 4), float("nan"))
LINE = mhla.Partition.line(16, 4)
STATE = mhla.Summaries(torch.zeros(2, 4, 1, 6, 6), torch.zeros(2, 4, 1, 6))
CASES = {
    "rank of q": ({"q": torch.rand(16, 4, 6)}, "^q has 3 axes"),
    "rank of k": ({"k": torch.rand(2, 16, 24)}, "^k has 3 axes"),
    "rank of v": ({"v": torch.rand(2, 16, 4, 6, 1)}, "^v has 5 axes"),
    "rank of mixing": ({"mixing": torch.rand(4)}, "^mixing has 1 axes"),
    "mixing not square": ({"mixing": torch.rand(4, 3)}, "^mixing is 4 x 3"),
    "heads of mixing": ({"mixing": torch.rand(3, 4, 4)}, "^mixing has heads 3"),
    "heads of mixing per row": ({"mixing": torch.rand(2, 3, 4, 4)}, r"^mixing has heads 3 \(axis 1\)"),
    "batch of mixing": ({"mixing": torch.rand(3, 2, 4, 4)}, "^mixing has batch 3"),
    "blocks of mixing": ({"mixing": torch.rand(5, 5)}, "^mixing is for 5 blocks"),
    "dtype of mixing": ({"mixing": torch.ones(4, 4, dtype=torch.int64)}, "^mixing has dtype Long"),
    "float8 mixing": ({"mixing": torch.ones(4, 4).to(torch.float8_e4m3fn)}, "^mixing has dtype Float8_e4m3fn"),
    "NaN in mixing": ({"mixing": NAN}, r"^mixing\[0\]\[0\]"),
    "device of mixing": ({"mixing": torch.rand(4, 4, device="meta")}, "mixing"),
    "heads of k": ({"k": torch.rand(2, 16, 3, 6), "v": torch.rand(2, 16, 3, 6)}, "^k has heads 3"),
    "no heads of k": ({"k": torch.rand(2, 16, 0, 6), "v": torch.rand(2, 16, 0, 6)}, "^k has heads 0"),
    "no heads of q": ({"q": torch.rand(2, 16, 0, 6)}, "^q has heads 0"),
    "no key width": ({"q": torch.rand(2, 16, 4, 0), "k": torch.rand(2, 16, 4, 0)}, "^q has key width 0"),
    "large key width": ({"q": torch.rand(2, 16, 1, 4097), "k": torch.rand(2, 16, 1, 4097)}, "^q has key width 4097"),
    "no value width": ({"v": torch.rand(2, 16, 4, 0)}, "^v has value width 0"),
    "large value width": ({"v": torch.rand(2, 16, 4, 4097)}, "^v has value width 4097"),
    "heads of v": ({"v": torch.rand(2, 16, 2, 6)}, "^v has heads 2"),
    "batch of k": ({"k": torch.rand(1, 16, 4, 6)}, "^k has batch 1"),
    "tokens of v": ({"v": torch.rand(2, 15, 4, 6)}, "^v has tokens 15"),
    "key width": ({"k": torch.rand(2, 16, 4, 5)}, "^k has key width 5"),
    "dtype of q": ({"q": torch.ones(2, 16, 4, 6, dtype=torch.int32)}, "^q has dtype Int"),
    "dtype of k": ({"k": torch.rand(2, 16, 4, 6).double()}, "^k has dtype Double"),
    "last axis of q": ({"q": strided(torch.rand(2, 16, 4, 6))}, "^q has stride 4"),
    "last axis of v": ({"v": strided(torch.rand(2, 16, 4, 6))}, "^v has stride 4"),
    "sparse k": ({"k": torch.rand(2, 16, 4, 6).to_sparse()}, "k"),
    "tokens of partition": ({"partition": mhla.Partition.line(15, 4)}, "^partition has 15 tokens"),
    "type of partition": ({"partition": (4, 4)}, "^partition is a tuple"),
    "zero block size": ({"partition": 0}, "^partition is 0"),
    "feature map": ({"feature_map": "tanh"}, "^feature_map is 'tanh'"),
    "normalizer": ({"normalizer": "softmax"}, "^normalizer is 'softmax'"),
    "causal": ({"causal": "both"}, "^causal is 'both'"),
    "type of causal": ({"causal": ["token"]}, "^causal is "),
    "algorithm": ({"algorithm": "fast"}, "^algorithm is 'fast'"),
    "scale": ({"scale": float("inf")}, "^scale is not finite"),
    "causal grid": ({"causal": True}, "^partition is a grid"),
    "causal authors": ({"partition": LINE, "causal": True, "normalizer": "authors"}, "^normalizer authors"),
    "q_den alone": ({"q_den": torch.rand(2, 16, 4, 6)}, "^k_den"),
    "q_den without denominator": ({"normalizer": "none", "q_den": torch.rand(2, 16, 4, 6)}, "^q_den is given"),
    "shape of k_den": ({"q_den": torch.rand(2, 16, 4, 6), "k_den": torch.rand(2, 16, 4, 7)}, "^k_den has size 7"),
    "cu_seqlens in a batch": ({"partition": LINE, "cu_seqlens": [0, 16]}, "^batch is 2; with cu_seqlens"),
    "type of cu_seqlens": ({"cu_seqlens": torch.tensor([0.0, 16.0])}, "^cu_seqlens has dtype Float"),
    "length of cu_seqlens": ({"cu_seqlens": [0]}, "^cu_seqlens has 1 entries"),
    "state of a call that is not causal": ({"return_state": True}, "^return_state"),
    "initial tokens without state": ({"partition": LINE, "causal": True, "initial_tokens": 4}, "^initial_S is missing"),
    "negative initial tokens": ({"partition": LINE, "causal": True, "initial_tokens": -1}, "^initial_tokens is -1"),
    "blocks of the initial state": (
        {"partition": LINE, "causal": True, "initial_tokens": 5, "initial_state": STATE},
        "^initial_S has blocks 1",
    ),
    "dtype of the initial state": (
        {
            "partition": LINE,
            "causal": True,
            "initial_tokens": 4,
            "initial_state": mhla.Summaries(STATE.S.double(), STATE.z),
        },
        "^initial_S has dtype Double",
    ),
    "missing z": (
        {
            "partition": LINE,
            "causal": True,
            "initial_tokens": 4,
            "initial_state": mhla.Summaries(STATE.S, None),
        },
        "^initial_z is missing",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_by_name(case):
    change, message = CASES[case]
    with pytest.raises((ValueError, TypeError, RuntimeError, NotImplementedError), match=message):
        mhla.attention(**{**good(), **change})


def test_the_unchanged_call_is_accepted():
    assert mhla.attention(**good()).isfinite().all()
