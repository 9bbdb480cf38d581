"""Saved states: the same bytes on both devices, checked in full before anything is made of them."""

import struct
import subprocess
import sys

import pytest
import torch

import mhla
from mhla._state_decode import DecodeState
from test_decode import make_state, one_call, random_tokens, relative_rms

POLICIES = ["error", "clamp", "running-mean", "interpolate"]
FNV = (0xCBF29CE484222325, 0x100000001B3)
# Bytes of the fields that the tests change.
BATCH, BLOCK_SIZE, MIXING_BLOCKS, MAX_TOKENS, TOKENS = 16, 56, 64, 120, 132


def to_bytes(tensor):
    return bytes(tensor.tolist())


def from_bytes(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def with_checksum(data):
    value = FNV[0]
    for byte in data[:-8]:
        value = ((value ^ byte) * FNV[1]) % 2**64
    return data[:-8] + struct.pack("<Q", value)


def with_field(data, offset, value):
    return with_checksum(data[:offset] + struct.pack("<q", value) + data[offset + 8 :])


def saved(tokens=7, **options):
    q, k, v, mixing = random_tokens(tokens, "cpu", trained=options.pop("trained", 6), batch=1, heads=1, kv_heads=1)
    state = make_state(mixing, batch=1, heads=1, kv_heads=1, **options)
    state.prefill(q, k, v)
    return to_bytes(state.serialize())


def test_every_flipped_bit_of_a_decoding_state_is_found():
    data = saved()
    DecodeState.restore(from_bytes(data), "cpu")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="^bytes "):
            DecodeState.restore(from_bytes(flipped), "cpu")


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (TOKENS, -1),
        (TOKENS, 2**40),
        (TOKENS, 2**62),
        (TOKENS, 25),
        (TOKENS, 8),
        (TOKENS, -(2**63)),
        (BATCH, 0),
        (BATCH, 2**40),
        (BLOCK_SIZE, 0),
        (BLOCK_SIZE, 2**61),
        (MIXING_BLOCKS, 1),
        (MIXING_BLOCKS, 2**62),
        (MAX_TOKENS, -1),
        (MAX_TOKENS, 6),
    ],
)
@pytest.mark.parametrize("restore", [mhla.State.restore, lambda data: DecodeState.restore(from_bytes(data), "cpu")])
@pytest.mark.parametrize("beyond", ["error", "clamp", "running-mean"])
def test_fields_that_cannot_be_are_refused(restore, offset, value, beyond):
    data = saved(beyond=beyond)
    with pytest.raises(ValueError):
        restore(with_field(data, offset, value))


def test_other_bytes_are_refused():
    data = saved()
    for wrong in (b"x", b"PK" + data[2:], data[:-1], data + b"x", data[: len(data) // 2]):
        with pytest.raises(ValueError, match="^bytes "):
            mhla.State.restore(wrong)
    with pytest.raises(ValueError, match="^data is empty"):
        mhla.State.restore(b"")
    for wrong in ("text", None, [1, 2]):
        with pytest.raises(TypeError, match="^data is a "):
            mhla.State.restore(wrong)


@pytest.mark.parametrize("beyond", POLICIES)
@pytest.mark.parametrize("at", [0, 3, 8, 9, 20])
@pytest.mark.parametrize("summary_dtype", [torch.float32, torch.bfloat16])
def test_a_decoding_state_continues_bit_for_bit(beyond, at, summary_dtype):
    q, k, v, mixing = random_tokens(24, "cpu", dtype=torch.float32, trained=6 if beyond == "error" else 2)
    options = {"dtype": torch.float32, "summary_dtype": summary_dtype, "beyond": beyond, "max_tokens": 24}
    state = make_state(mixing, **options)
    state.prefill(q[:, :at], k[:, :at], v[:, :at])
    data = state.serialize()
    other = DecodeState.restore(data, "cpu")
    assert torch.equal(other.serialize(), data)
    rest = [x[:, at:] for x in (q, k, v)]
    assert torch.equal(other.step(*rest), state.step(*rest))
    assert other.tokens == 24


@pytest.mark.parametrize("beyond", POLICIES)
@pytest.mark.parametrize("at", [0, 3, 8, 9, 20])
@pytest.mark.parametrize("normalizer", ["none", "paper"])
def test_a_state_of_cuda_goes_on_on_the_cpu(device, beyond, at, normalizer):
    q, k, v, mixing = random_tokens(24, device, trained=6 if beyond == "error" else 2, per_head=at == 9)
    state = make_state(mixing, beyond=beyond, max_tokens=24, normalizer=normalizer)
    outputs = [state.prefill(q[:, :at], k[:, :at], v[:, :at]).cpu()]
    other = mhla.State.restore(to_bytes(state.serialize()), "cpu")
    assert other.tokens == at
    outputs.append(other.prefill(*[x[:, at:].cpu() for x in (q, k, v)]))
    expected = one_call(q, k, v, mixing, beyond=beyond, normalizer=normalizer).cpu()
    torch.testing.assert_close(torch.cat(outputs, 1), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("beyond", POLICIES[:3])
@pytest.mark.parametrize("at", [0, 4, 8, 20])
@pytest.mark.parametrize("normalizer", ["none", "paper"])
def test_a_state_of_the_cpu_goes_on_on_cuda_from_the_end_of_a_block(device, beyond, at, normalizer):
    q, k, v, mixing = random_tokens(24, "cpu", trained=6 if beyond == "error" else 2)
    sizes = {"batch": 2, "heads": 4, "kv_heads": 2, "key_dim": 5, "value_dim": 4, "block_size": 4}
    state = mhla.State(
        mixing, **sizes, dtype=torch.float64, scale=0.7, feature_eps=1e-3, beyond=beyond, normalizer=normalizer
    )
    outputs = [state.prefill(q[:, :at], k[:, :at], v[:, :at])]
    other = DecodeState.restore(from_bytes(state.serialize()), device)
    outputs.append(other.step(*[x[:, at:].to(device) for x in (q, k, v)]).cpu())
    expected = one_call(q, k, v, mixing, beyond=beyond, normalizer=normalizer)
    torch.testing.assert_close(torch.cat(outputs, 1), expected, rtol=1e-11, atol=1e-11)


def test_an_open_block_of_the_cpu_cannot_go_to_cuda():
    q, k, v, mixing = random_tokens(7, "cpu")
    state = mhla.State(mixing, batch=2, heads=4, kv_heads=2, key_dim=5, value_dim=4, block_size=4, dtype=torch.float64)
    state.prefill(q, k, v)
    with pytest.raises(ValueError, match="^bytes of a state hold 7 tokens, saved on the CPU.*end of a block of 4"):
        DecodeState.restore(from_bytes(state.serialize()), "cpu")


def test_without_a_gpu_a_state_of_cuda_asks_for_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    data = saved()
    with pytest.raises(ValueError, match="^device is cuda, which is not there; device='cpu'"):
        mhla.State.restore(data)
    assert mhla.State.restore(data, "cpu").tokens == 7


def test_positions_that_cannot_be_are_not_saved():
    q, k, v, mixing = random_tokens(6, "cpu")
    state = make_state(mixing)
    state.step(q, k, v)
    for position in (-1, 25, 2**40):
        state.positions[1] = position
        with pytest.raises(ValueError, match=f"{position} as the tokens of batch row 1"):
            state.serialize()
        with pytest.raises(ValueError, match=f"^memory.tokens of batch row 1 is {position}"):
            state.step(q[:, :1], k[:, :1], v[:, :1])


def test_saving_needs_no_numpy():
    """In a process where NumPy cannot be imported."""
    script = """
import sys
sys.modules["numpy"] = None
import torch, mhla
state = mhla.State(torch.ones(2, 2), batch=1, heads=1, key_dim=2, value_dim=2, block_size=2)
x = torch.ones(1, 3, 1, 2)
state.prefill(x, x, x)
assert mhla.State.restore(state.serialize()).tokens == 3
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.gpu
def test_a_state_of_cuda_comes_back_where_it_was():
    q, k, v, mixing = random_tokens(23, "cuda", dtype=torch.float32)
    sizes = {"batch": 2, "heads": 4, "kv_heads": 2, "key_dim": 5, "value_dim": 4, "block_size": 4}
    state = mhla.State(mixing.float(), **sizes, scale=0.7, feature_eps=1e-3)
    head = state.prefill(q[:, :9], k[:, :9], v[:, :9])
    data = state.serialize()
    rest = [x[:, 9:] for x in (q, k, v)]
    tail = state.step(*rest)
    assert torch.equal(mhla.State.restore(data).step(*rest), tail)
    on_cpu = mhla.State.restore(data, "cpu").prefill(*[x.cpu() for x in rest])
    assert relative_rms(on_cpu, tail.double().cpu()) <= 1e-5
    assert relative_rms(torch.cat([head, tail], 1), one_call(q, k, v, mixing.float())) <= 1e-5
