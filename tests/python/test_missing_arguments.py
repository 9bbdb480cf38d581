"""A tensor that is missing, or of a kind that cannot be taken, is refused by its name in every operator."""

import pytest
import torch

import mhla
from mhla._state_decode import DecodeState

OPS = torch.ops.mhla
ERRORS = (ValueError, TypeError, RuntimeError, NotImplementedError)
TOKENS = torch.rand(1, 4, 2, 6)
MATRIX = torch.ones(2, 2)

MISSING = {
    "attention, q": (lambda x: OPS.attention(x, TOKENS, TOKENS, MATRIX, [4], [2]), "q"),
    "attention, k and v": (lambda x: OPS.attention(TOKENS, x, x, MATRIX, [4], [2]), "k"),
    "attention, mixing": (lambda x: OPS.attention(TOKENS, TOKENS, TOKENS, x, [4], [2]), "mixing"),
    "gated_norm": (lambda x: mhla.fused.gated_norm(x), "x"),
    "modulate": (lambda x: mhla.fused.modulate(x), "x"),
    "rotary_features": (lambda x: mhla.fused.rotary_features(x), "x"),
    "project_mixing": (lambda x: mhla.project_mixing(x), "mixing"),
    "resize_mixing": (lambda x: mhla.resize_mixing(x, *2 * [mhla.Partition.line(2, 1)]), "mixing"),
    "extend_causal_mixing": (lambda x: mhla.extend_causal_mixing(x, 4, "clamp"), "mixing"),
}


@pytest.mark.parametrize("case", MISSING)
def test_a_missing_tensor_is_named(case):
    call, name = MISSING[case]
    with pytest.raises(ERRORS, match=f"^{name} is (missing|a NoneType); it must be a tensor"):
        call(None)


@pytest.mark.parametrize("case", ["gated_norm", "modulate", "rotary_features"])
def test_a_sparse_tensor_without_values_is_named(case):
    call, name = MISSING[case]
    with pytest.raises(ERRORS, match=f"^{name} has layout Sparse"):
        call(torch.empty(1, 4, 2, 6).to_sparse().to("meta"))


@pytest.mark.parametrize("case", ["project_mixing", "resize_mixing", "extend_causal_mixing"])
def test_a_matrix_of_no_heads_is_named(case):
    call, _ = MISSING[case]
    with pytest.raises(ERRORS, match="^mixing has heads 0"):
        call(torch.ones(0, 2, 2))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_gated_norm_has_a_norm(device):
    with pytest.raises(ERRORS, match="^norm is none; it must be head or channels"):
        mhla.fused.gated_norm(TOKENS.to(device), norm="none")


@pytest.mark.parametrize("dtype", [[], "float32", torch.int32, None])
def test_the_dtype_of_a_state_is_named(dtype):
    with pytest.raises(ValueError, match="^dtype is "):
        mhla.State(MATRIX, batch=1, heads=1, key_dim=2, value_dim=2, block_size=2, dtype=dtype)


@pytest.mark.parametrize("x", [None, 1.5, "text", True])
def test_the_input_of_a_layer_is_named(x):
    with pytest.raises(TypeError, match="^x is a "):
        mhla.nn.MHLA(8, 2, mhla.Partition.line(4, 2))(x)


SETTINGS = {
    "batch": 1,
    "heads": 1,
    "kv_heads": 1,
    "key_dim": 2,
    "value_dim": 2,
    "block_size": 2,
    "dtype": torch.float32,
    "feature_map": "relu",
    "normalizer": "paper",
    "scale": 1.0,
    "eps": 1e-6,
    "feature_eps": 0.0,
    "beyond": "error",
}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_decoding_state_refuses_a_matrix_that_is_not_finite(bad):
    DecodeState(torch.tensor([[1.0, bad], [1.0, 1.0]]), **SETTINGS)  # above the diagonal nothing is read
    with pytest.raises(ValueError, match="^mixing is not finite"):
        DecodeState(torch.tensor([[1.0, 0.0], [bad, 1.0]]), **SETTINGS)


@pytest.mark.parametrize(
    ("name", "value"),
    [("mixing", None), ("mixing", 3), ("mixing", MATRIX.to(torch.float8_e4m3fn)), ("beyond", 3), ("max_tokens", [4])],
)
def test_settings_of_a_decoding_state_are_named(name, value):
    arguments = {"mixing": MATRIX, **SETTINGS, name: value}
    with pytest.raises((ValueError, TypeError), match=f"^{name} "):
        DecodeState(arguments.pop("mixing"), **arguments)
