"""One thread at a time uses a state; whoever comes second is told so, and nothing is harmed."""

import threading

import pytest
import torch

import mhla
from mhla._state_decode import DecodeState
from test_decode import SIZES, make_state, random_tokens

IN_USE = "^state is in use by another call; one thread at a time"


def cpu_state(mixing):
    return mhla.State(mixing, **SIZES, dtype=torch.float64, beyond="clamp")


def decoding_state(mixing):
    return make_state(mixing, beyond="clamp")


@pytest.mark.parametrize("make", [cpu_state, decoding_state])
def test_many_threads_on_one_state_leave_it_whole(make):
    q, k, v, mixing = random_tokens(8, "cpu", trained=3)
    state = make(mixing)
    token = [x[:, 0] for x in (q, k, v)]
    consumed, unexpected = [], []

    def use(call, tokens):
        for _ in range(60):
            try:
                call()
                consumed.append(tokens)
            except ValueError as error:
                if not str(error).startswith("state is in use by another call"):
                    unexpected.append(error)

    uses = [
        (lambda: state.prefill(q, k, v), 8),
        (lambda: state.step(*token), 1),
        (lambda: state.fork().step(*token), 0),
        (lambda: state.serialize(), 0),
        (lambda: state.tokens, 0),
    ]
    threads = [threading.Thread(target=use, args=each) for each in uses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected
    assert state.tokens == sum(consumed)
    assert state.step(*token).isfinite().all()


@pytest.mark.parametrize("method", ["prefill", "step", "fork", "serialize", "tokens"])
def test_a_second_use_of_a_decoding_state_is_refused_and_changes_nothing(method, monkeypatch):
    """The second call comes while the first one has its operator running."""
    q, k, v, mixing = random_tokens(4, "cpu")
    state, alone = make_state(mixing), make_state(mixing)
    refused = []

    def second():
        with pytest.raises(ValueError, match=IN_USE):
            result = getattr(state, method)
            result(*((q, k, v) if method in ("prefill", "step") else ()))
        refused.append(method)

    check_room = DecodeState._check_room

    def slow(self, *arguments):
        if self is state and not refused:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
        return check_room(self, *arguments)

    monkeypatch.setattr(DecodeState, "_check_room", slow)
    assert torch.equal(state.step(q, k, v), alone.step(q, k, v))
    assert refused == [method]
    assert torch.equal(state.serialize(), alone.serialize())


def test_a_refused_call_frees_the_state():
    q, k, v, mixing = random_tokens(4, "cpu")
    for state in (cpu_state(mixing), decoding_state(mixing)):
        with pytest.raises(ValueError, match="^k "):
            state.prefill(q, k[:, :1], v)
        assert state.tokens == 0
        assert state.prefill(q, k, v).isfinite().all()


@pytest.mark.parametrize("make", [cpu_state, decoding_state])
def test_a_fork_is_a_state_of_its_own(make):
    q, k, v, mixing = random_tokens(12, "cpu")
    state = make(mixing)
    state.prefill(q[:, :5], k[:, :5], v[:, :5])
    rest = [x[:, 5:] for x in (q, k, v)]
    outputs = [None] * 4

    def go_on(n, fork):
        outputs[n] = fork.prefill(*rest)

    threads = [threading.Thread(target=go_on, args=(n, state.fork())) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = state.prefill(*rest)
    assert all(torch.equal(o, expected) for o in outputs)
