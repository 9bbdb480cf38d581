"""Tensors of every kind give the right result or an error that names the argument."""

import math

import pytest
import torch
from torch._subclasses import FakeTensorMode

import mhla
from mhla._state_decode import DecodeState

SIZES = {"batch": 1, "heads": 2, "kv_heads": 2, "key_dim": 4, "value_dim": 4, "block_size": 4}
LINE = mhla.Partition.line(8, 4)


class Named(torch.Tensor):
    """A subclass that changes nothing."""


def draw(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)))


def tokens():
    return [draw(1, 8, 2, 4) + n for n in range(3)]


def fake(x):
    with FakeTensorMode() as mode:
        return mode.from_tensor(x)


# As they are, or written differently: the values are the same.
SAME = {
    "negated view": lambda x: torch._neg_view(-x),
    "subclass": lambda x: x.as_subclass(Named),
    "parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "strided view": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
}
# Each refused. What a message says of them differs; it begins with the argument.
REFUSED = {
    "sparse": torch.Tensor.to_sparse,
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "mkldnn": torch.Tensor.to_mkldnn,
    "complex": lambda x: x.to(torch.complex64),
    "conjugate": lambda x: x.to(torch.complex64).conj(),
    "integer": torch.Tensor.long,
    "bool": torch.Tensor.bool,
    "meta": lambda x: x.to("meta"),
}
STATES = {
    "state": lambda mixing: mhla.State(mixing, **SIZES),
    "decoding state": lambda mixing: DecodeState(
        mixing,
        **SIZES,
        dtype=torch.float32,
        feature_map="relu",
        normalizer="paper",
        scale=1.0,
        eps=1e-6,
        feature_eps=0.0,
        beyond="error",
    ),
}


@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("place", range(4))
def test_the_operator_reads_the_values(kind, place):
    given = [*tokens(), draw(2, 2)]
    expected = mhla.attention(*given, partition=4)
    given[place] = SAME[kind](given[place])
    torch.testing.assert_close(mhla.attention(*given, partition=4), expected, rtol=0, atol=0, check_device=False)


@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("place", range(4))
def test_a_state_reads_the_values(make, kind, place):
    for method, given in (("prefill", tokens()), ("step", [x[:, 0] for x in tokens()])):
        given = [*given, draw(2, 2)]
        expected = getattr(STATES[make](given[3]), method)(*given[:3])
        given[place] = SAME[kind](given[place])
        assert torch.equal(getattr(STATES[make](given[3]), method)(*given[:3]), expected)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", ["q", "k", "v", "mixing", "q_den", "k_den"])
@pytest.mark.parametrize("partition", [4, LINE])
def test_the_operator_names_what_it_cannot_read(kind, name, partition):
    q, k, v = tokens()
    given = {"q": q, "k": k, "v": v, "mixing": draw(2, 2), "q_den": q, "k_den": k}
    given[name] = REFUSED[kind](given[name])
    named = "k" if (name, kind) == ("q", "meta") else name  # all others are on the wrong device then
    with pytest.raises(ValueError, match=f"^{named} "):
        mhla.attention(**given, partition=partition)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("make", STATES)
def test_a_state_names_a_matrix_it_cannot_read(kind, make):
    with pytest.raises(ValueError, match="^mixing "):
        STATES[make](REFUSED[kind](torch.ones(2, 2)))


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("place", range(3))
def test_a_state_names_what_it_cannot_read(kind, make, place):
    for method, given in (("prefill", tokens()), ("step", [x[:, 0] for x in tokens()]), ("step", tokens())):
        state = STATES[make](torch.ones(2, 2))
        if make == "state" and given[0].ndim == 4:
            method = "prefill"  # where mhla.State.step leads
        given[place] = REFUSED[kind](given[place])
        with pytest.raises(ValueError, match=f"^{'qkv'[place]} "):
            getattr(state, method)(*given)
        assert state.tokens == 0


@pytest.mark.parametrize("kind", ["fake", "jagged", "batched"])
def test_a_state_refuses_tensors_without_values(kind):
    q, k, v = tokens()
    state = mhla.State(torch.ones(2, 2), **SIZES)
    with pytest.raises(ValueError, match="^q "):
        if kind == "batched":
            torch.vmap(lambda x: state.prefill(x, k, v))(q[None])
        else:
            other = fake(q) if kind == "fake" else torch.nested.nested_tensor(list(q), layout=torch.jagged)
            state.prefill(other, k, v)


@pytest.mark.parametrize("wrong", [[1.0], None, 3])
def test_what_is_no_tensor_is_named(wrong):
    q, k, v = tokens()
    with pytest.raises(TypeError, match="^mixing is a .*; it must be a Tensor"):
        mhla.State(wrong, **SIZES)
    for method in ("prefill", "step"):
        with pytest.raises(TypeError, match="^k is a .*; it must be a Tensor"):
            getattr(mhla.State(torch.ones(2, 2), **SIZES), method)(q, wrong, v)


@pytest.mark.parametrize("kind", REFUSED)
def test_fused_operators_name_what_they_cannot_read(kind):
    x, gate, _ = tokens()
    with pytest.raises(ValueError, match="^gate "):
        mhla.fused.gated_norm(x, None, REFUSED[kind](gate))
    with pytest.raises(ValueError, match="^shift "):
        mhla.fused.modulate(x[:, :, 0], None, REFUSED[kind](draw(1, 4)))
    with pytest.raises(ValueError, match="^cos "):
        mhla.fused.rotary_features(x, mhla.fused.Rotary(REFUSED[kind](draw(8, 2)), draw(8, 2), (8,), (2,)))


@pytest.mark.parametrize("kind", ["sparse", "meta", "mkldnn", "integer", "complex"])
def test_functions_of_matrices_name_what_they_cannot_read(kind):
    with pytest.raises(ValueError, match="^mixing "):
        mhla.resize_mixing(REFUSED[kind](draw(2, 2)), LINE, LINE)


def packed(**options):
    q, k, v = tokens()
    return mhla.attention(q, k, v, draw(2, 2), partition=4, causal=True, **options)


@pytest.mark.parametrize("return_state", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_offsets_on_the_meta_device_are_refused(return_state, requires_grad):
    q, k, v = tokens()
    offsets = torch.tensor([0, 8], device="meta")
    with pytest.raises(ValueError, match="^cu_seqlens has .*meta"):
        mhla.attention(
            q.requires_grad_(requires_grad),
            k,
            v,
            draw(2, 2),
            partition=4,
            causal=True,
            cu_seqlens=offsets,
            return_state=return_state,
        )


def test_meta_tensors_with_offsets_anywhere_give_meta_results():
    given = [x.to("meta") for x in (*tokens(), draw(2, 2))]
    for device in ("cpu", "meta"):
        o = mhla.attention(*given, partition=4, causal=True, cu_seqlens=torch.tensor([0, 3, 8], device=device))
        assert (o.device.type, o.shape) == ("meta", (1, 8, 2, 4))


def test_offsets_are_read_whatever_their_kind():
    expected = packed(cu_seqlens=[0, 3, 8])
    offsets = torch.tensor([0, 3, 8])
    for given in (offsets.int(), torch._neg_view(-offsets), torch.stack([offsets, offsets], 1)[:, 0]):
        assert torch.equal(packed(cu_seqlens=given), expected)
        o, state = packed(cu_seqlens=given, return_state=True)
        assert torch.equal(o, expected)
        assert state.S.shape[2] == 2
    for wrong in (offsets.to_sparse(), offsets.float(), offsets.bool(), offsets.cfloat(), offsets[:, None]):
        for return_state in (False, True):
            with pytest.raises(ValueError, match="^cu_seqlens has "):
                packed(cu_seqlens=wrong, return_state=return_state)


def test_a_decoding_step_with_a_meta_tensor_is_refused():
    q, k, v = tokens()
    for part in ("S", "arrivals"):
        state = STATES["decoding state"](torch.ones(2, 2))
        state._memory = state._memory._replace(**{part: getattr(state._memory, part).to("meta")})
        with pytest.raises(ValueError, match="^memory"):
            state.step(q, k, v)
        with pytest.raises(ValueError, match="^memory"):
            state._open()


@pytest.mark.parametrize("make", STATES)
@pytest.mark.parametrize("method", ["prefill", "step"])
def test_differentiating_through_a_state_is_an_error(make, method):
    q, k, v = tokens()
    state = STATES[make](torch.ones(2, 2))
    if isinstance(state, DecodeState):
        state = mhla.State._wrap(state)
    o = getattr(state, method)(q, k.requires_grad_(), v)
    with pytest.raises(NotImplementedError, match="^State is not differentiable"):
        o.sum().backward()
    with torch.no_grad():
        again = getattr(mhla.State(torch.ones(2, 2), **SIZES), method)(q, k, v)
    assert not again.requires_grad
    torch.testing.assert_close(o.detach(), again)
    if isinstance(state._holder, DecodeState):
        assert not any(part.requires_grad for part in state._holder._memory)


def test_gradients_of_a_state_have_its_shape():
    q, k, v = tokens()
    d_S, d_z = torch.ones(1, 2, 2, 4, 4), torch.ones(1, 2, 2, 4)
    options = ("relu", "paper", "token-causal", "summary", 1.0, 1e-6, 0.0)
    settings = ((8,), (4,), *options, None, None, None, None, None, 0, 2)
    o = torch.ops.mhla.attention(q, k, v, torch.ones(2, 2), *settings)[0]

    def backward(d_S, d_z):
        return torch.ops.mhla.attention_backward(q, k, v, torch.ones(2, 2), *settings, o, o, d_S, d_z)

    assert all(x.isfinite().all() for x in backward(d_S, d_z))
    for wrong in (d_S[:, :, :1], d_S.double(), d_S[0], d_S.to_sparse()):
        with pytest.raises(ValueError, match="^d_S "):
            backward(wrong, d_z)
    with pytest.raises(ValueError, match="^d_z "):
        backward(d_S, d_z[..., :2])


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused_with_and_without_values(device, value):
    x, mixing = torch.ones(1, 8, 2, 4, device=device), torch.ones(2, 2, device=device)
    for name in ("scale", "eps", "feature_eps"):
        with pytest.raises(ValueError, match=f"^{name} is"):
            mhla.attention(x, x, x, mixing, partition=4, **{name: value})
    with pytest.raises(ValueError, match="^eps is"):
        mhla.fused.gated_norm(x, eps=value)
    with pytest.raises(ValueError, match="^eps is"):
        mhla.fused.modulate(x.flatten(2), eps=value)
    for name in ("norm_eps", "feature_eps"):
        with pytest.raises(ValueError, match=f"^{name} is"):
            mhla.fused.rotary_features(x, **{name: value})
