"""The short way from Python into the operator takes plain calls and leaves all others to torch.ops."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import mhla
from mhla import _attention
from oracle import GRID, LINE, random_inputs

OPERATOR = torch.ops.mhla.attention.default


class Named(torch.Tensor):
    """A subclass, which operators return in turn."""


OTHERS = random_inputs(GRID, seed=1)
CASES = {
    "plain": (GRID, {}),
    "block size": (LINE, {"partition": 4, "causal": True, "normalizer": "none"}),
    "whole numbers": (GRID, {"scale": 2, "eps": 1}),
    "separate denominator": (GRID, {"q_den": OTHERS[0], "k_den": OTHERS[1]}),
    "packed": (LINE, {"cu_seqlens": [0, 7, 13], "causal": "block"}),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ways_give_the_same(case, monkeypatch):
    partition, options = CASES[case]
    options = {"partition": partition, **options}
    inputs = random_inputs(partition, batch=1 if "cu_seqlens" in options else 2)
    short = mhla.attention(*inputs, **options)
    monkeypatch.setattr(_attention, "_direct", lambda *arguments: NotImplemented)
    assert torch.equal(short, mhla.attention(*inputs, **options))


def test_gradients_take_the_short_way_too():
    leaves = [x.requires_grad_() for x in random_inputs(GRID)]
    mhla.attention(*leaves, partition=GRID).sum().backward()
    assert all(x.grad is not None for x in leaves)


def test_a_subclass_of_tensor_comes_back():
    q, k, v, mixing = random_inputs(GRID)
    assert type(mhla.attention(q.as_subclass(Named), k, v, mixing, partition=GRID)) is Named


@pytest.mark.parametrize("kind", [TorchFunctionMode, TorchDispatchMode])
def test_modes_see_the_operator(kind):
    seen = []

    def note(self, function, types, arguments=(), options=None):
        seen.append(function)
        return function(*arguments, **(options or {}))

    inputs = random_inputs(GRID)
    name = "__torch_function__" if kind is TorchFunctionMode else "__torch_dispatch__"
    with type("Noting", (kind,), {name: note})():
        mhla.attention(*inputs, partition=GRID)
    assert OPERATOR in seen


def test_errors_are_of_the_same_kind():
    q, k, v, mixing = random_inputs(GRID)
    with pytest.raises(ValueError, match="^q has 3 axes"):
        mhla.attention(q[0], k, v, mixing, partition=GRID)
    with pytest.raises(ValueError, match="^feature_map is"):
        mhla.attention(q, k, v, mixing, partition=GRID, feature_map="tanh")
    with pytest.raises((RuntimeError, TypeError, UnicodeEncodeError)):
        mhla.attention(q, k, v, mixing, partition=GRID, feature_map="\ud800")
