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


# (partition, Dk, Dv, causal): blocks of one size and ragged ones, many small blocks, one block, long sums.
SHAPES = [
    (mhla.Partition.grid((16, 16), (4, 4)), 32, 40, False),
    (mhla.Partition.grid((9, 14), (3, 4)), 128, 64, False),
    (mhla.Partition.line(300, 64), 32, 40, False),
    (mhla.Partition.line(300, 64), 128, 64, True),
    (mhla.Partition.line(500, 500), 32, 40, True),
    (mhla.Partition.line(64, 2), 32, 40, True),
]

STORED_ROUNDINGS = 3  # of a value on its way into a bf16 or f16 output on CUDA: weight, S, S~


class ErrorBound:
    """What rounding may do to the output of one call.

    An output element is a sum over source tokens s and columns d of terms m[i, b] phi(q_d) phi(k_sd) v_s, divided by a
    denominator of positive terms. With unit roundoff u of the accumulator, each of the ``depth`` roundings that a term
    passes on its way changes the sum by at most u times the sum A of the terms' absolute values. Roundings are as good
    as independent, so that together they reach sqrt(depth) u A (Higham and Mary, SIAM J. Sci. Comput. 41, 2019), not
    depth u A. The result is rounded to the element type, at most u_o |o|. On CUDA the weights, S and S~ of bf16 and f16
    calls (dense: the weighted scores) are rounded to the element type too, each at most u_o A.

    In the root mean square a rounding is u / sqrt(3) times 0.73 for mantissas spread evenly over an octave, and partial
    sums are well below A: an eighth of sqrt(depth) u A.
    """

    def __init__(self, q, k, v, mixing, algorithm, partition, **options):
        doubles = [x.double() for x in (q, k, v, mixing)]
        self.exact = dense_attention(*doubles, partition=partition, **options)
        doubles[2] = doubles[2].abs()
        absolute = dense_attention(*doubles, partition=partition, **options)
        largest_block = partition.block_of.bincount().max().item()
        depth = q.shape[-1] + (partition.tokens if algorithm == "dense" else largest_block + partition.blocks)
        roundoff = torch.finfo(q.dtype).eps / 2 if q.dtype != torch.float32 else 0.0
        stored = STORED_ROUNDINGS * roundoff if q.is_cuda else 0.0
        summed = depth**0.5 * torch.finfo(torch.float32).eps / 2
        self.largest = roundoff * self.exact.abs() + (summed + stored) * absolute
        squares = (0.45 * roundoff * self.exact) ** 2 + ((summed + stored) / 8 * absolute) ** 2
        self.rms = squares.mean().sqrt().item()

    def shares(self, o):
        """Largest error and RMS as parts of what is allowed: at most 1."""
        error = (o.double() - self.exact).abs()
        return (error / self.largest).max().item(), error.square().mean().sqrt().item() / self.rms


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("algorithm", ["summary", "dense"])
@pytest.mark.parametrize("normalizer", ["none", "paper"])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_errors_are_those_of_the_arithmetic(dtype, algorithm, normalizer, shape, device):
    partition, key_dim, value_dim, causal = SHAPES[shape]
    options = {"partition": partition, "normalizer": normalizer, "causal": causal}
    for seed in range(4):
        inputs = random_inputs(partition, key_dim=key_dim, value_dim=value_dim, seed=seed, device=device)
        q, k, v = (x.to(dtype) for x in inputs[:3])
        mixing = inputs[3].float()
        o = mhla.attention(q, k, v, mixing, algorithm=algorithm, **options)
        largest, rms = ErrorBound(q, k, v, mixing, algorithm, **options).shares(o)
        assert largest <= 1, seed
        assert rms <= 1, seed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_summaries_rounded_to_the_element_type_break_the_bound(dtype):
    """So does, all the more, a sum in the element type."""
    (q, k, v), mixing = rounded_inputs(dtype, "cpu")
    bound = ErrorBound(q, k, v, mixing, "summary", PARTITION)
    largest, rms = bound.shares(summary_attention(q, k, v, mixing, partition=PARTITION))
    assert largest > 1
    assert rms > 1


def test_products_in_tf32_break_the_bound():
    (q, k, v), mixing = rounded_inputs(torch.float32, "cpu")
    bound = ErrorBound(q, k, v, mixing, "summary", PARTITION)

    def tf32(x):
        return (x.view(torch.int32) + (1 << 12) & ~((1 << 13) - 1)).view(torch.float32)

    o = mhla.attention(tf32(q), tf32(k), tf32(v), mixing, partition=PARTITION, algorithm="summary")
    largest, rms = bound.shares(o)
    assert largest > 1
    assert rms > 1
