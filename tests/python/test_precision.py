"""Low precision against the double definition: over the whole output and in its worst block."""

import pytest
import torch

import mhla
from oracle import dense_attention, random_inputs, relative_rms, summary_attention

LIMITS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}
PARTITION = mhla.Partition.grid((16, 16), (4, 4))


def rounded_inputs(dtype, device):
    q, k, v, _ = random_inputs(PARTITION, heads=3, key_dim=32, value_dim=40, device=device)
    return [x.to(dtype) for x in (q, k, v)], mhla.mixing_init(PARTITION, device=device)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(
    ("normalizer", "algorithm"),
    [("none", "summary"), ("none", "dense"), ("paper", "summary"), ("paper", "dense"), ("authors", "summary")],
)
def test_output_is_within_the_limit_in_every_block(dtype, normalizer, algorithm, device):
    inputs, mixing = rounded_inputs(dtype, device)
    actual = mhla.attention(*inputs, mixing, partition=PARTITION, normalizer=normalizer, algorithm=algorithm)
    assert actual.dtype == dtype
    doubles = [x.double() for x in inputs]
    expected = dense_attention(*doubles, mixing.double(), partition=PARTITION, normalizer=normalizer)
    assert relative_rms(actual, expected) <= LIMITS[dtype]
    for block in range(PARTITION.blocks):
        chosen = (PARTITION.block_of == block).to(device)
        assert relative_rms(actual[:, chosen], expected[:, chosen]) <= LIMITS[dtype], f"block {block}"


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("algorithm", ["summary", "dense"])
def test_gradients_are_within_the_limit(dtype, algorithm, device):
    inputs, mixing = rounded_inputs(dtype, device)
    weight = torch.randn(2, 256, 3, 40, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    leaves = [x.requires_grad_() for x in (*inputs, mixing)]
    o = mhla.attention(*leaves, partition=PARTITION, algorithm=algorithm)
    actual = torch.autograd.grad(o, leaves, weight)
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    expected = torch.autograd.grad(dense_attention(*doubles, partition=PARTITION), doubles, weight.double())
    for name, ours, exact in zip(("q", "k", "v", "mixing"), actual, expected, strict=True):
        assert relative_rms(ours, exact) <= LIMITS[dtype], name


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("algorithm", ["summary", "dense"])
def test_largest_error_is_at_most_twice_that_of_pytorch(dtype, algorithm, device):
    inputs, mixing = rounded_inputs(dtype, device)
    expected = dense_attention(*(x.double() for x in inputs), mixing.double(), partition=PARTITION)
    ours = mhla.attention(*inputs, mixing, partition=PARTITION, algorithm=algorithm)
    same_formula = {"summary": summary_attention, "dense": dense_attention}[algorithm]
    theirs = same_formula(*inputs, mixing, partition=PARTITION)
    largest = [(x.double() - expected).abs().max().item() for x in (ours, theirs)]
    assert largest[0] <= 2 * largest[1]
