"""The fused operators as PyTorch sees them: schema, fake tensors, torch.compile; and what they refuse."""

import pytest
import torch

from fused_oracle import randn
from mhla import fused


def leaf(*shape, seed=0, device="cpu"):
    return randn(*shape, seed=seed, device=device, dtype=torch.float32).requires_grad_()


def test_opcheck_accepts_the_operators(device):
    x, gate = leaf(2, 3, 4, 8, device=device), leaf(2, 3, 4, 8, seed=1, device=device)
    weight, wide = leaf(8, seed=2, device=device), leaf(32, seed=3, device=device)
    cos, sin = torch.ops.mhla.rotary_table([3], [4], device=device)
    ops, opcheck = torch.ops.mhla, torch.library.opcheck
    opcheck(ops.gated_norm.default, (x, weight, gate))
    opcheck(ops.gated_norm.default, (x, wide, None, "channels"))
    opcheck(ops.rotary_features.default, (x, weight, cos, sin, [3], [4], "head", 1e-6, "elu+1", 0.0, "half", True))
    opcheck(ops.rotary_features.default, (x, None, None, None, [], []))
    tokens, rows = leaf(2, 3, 8, device=device), leaf(2, 8, seed=4, device=device)
    opcheck(ops.modulate.default, (tokens, rows, rows, weight, weight))
    opcheck(ops.modulate.default, (tokens, leaf(2, 3, 8, seed=5, device=device)))
    with torch.no_grad():
        opcheck(ops.gated_norm_backward.default, (gate.detach(), x.detach(), weight.detach(), gate.detach()))
        opcheck(ops.modulate_backward.default, (tokens.detach(), tokens.detach(), rows.detach()))
        opcheck(
            ops.rotary_features_backward.default,
            (x.detach(), None, x.detach(), weight.detach(), cos, sin, [3], [4], "head"),
        )


def block(x, gate, weight, scale, shift):
    rotary = fused.Rotary.line(x.shape[1], x.shape[3], device=x.device)
    features, plain = fused.rotary_features(x.sin(), rotary, norm="head", weight=weight, return_plain=True)
    y = fused.gated_norm(features + plain, weight, gate)
    return fused.modulate(y.flatten(2), scale, shift).square().mean()


def block_inputs(tokens, device):
    return (
        leaf(2, tokens, 4, 8, device=device),
        leaf(2, tokens, 4, 8, seed=1, device=device),
        leaf(8, seed=2, device=device),
        leaf(2, 32, seed=3, device=device),
        leaf(2, 32, seed=4, device=device),
    )


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_graph_breaks_equals_eager_forward_and_backward(backend, device):
    inputs = block_inputs(5, device)
    eager = block(*inputs)
    compiled = torch.compile(block, fullgraph=True, backend=backend)(*inputs)
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(torch.autograd.grad(compiled, inputs), torch.autograd.grad(eager, inputs))


def test_one_compilation_serves_all_lengths():
    compilations = []

    def backend(graph, example_inputs):
        compilations.append(graph)
        return graph

    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=backend)
    for tokens in (5, 8, 13):
        inputs = [t.detach() for t in block_inputs(tokens, "cpu")]
        torch.testing.assert_close(compiled(*inputs), block(*inputs))
    assert len(compilations) == 1


def test_second_derivatives_are_refused_by_name():
    x = leaf(1, 2, 3, 4)
    (d_x,) = torch.autograd.grad(fused.gated_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="mhla::gated_norm_backward is not implemented"):
        d_x.sum().backward()


@pytest.mark.gpu
def test_cuda_calls_can_be_captured_in_a_graph_on_a_stream_of_their_own():
    inputs = block_inputs(70, "cuda")
    expected = torch.autograd.grad(block(*inputs), inputs)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.autograd.grad(block(*inputs), inputs)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = torch.autograd.grad(block(*inputs), inputs)
    for d in captured:
        d.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    for ours, exact in zip(captured, expected, strict=True):
        assert torch.equal(ours, exact)


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements():
    tokens, width = 2**16 + 3, 2**15 + 8
    if torch.cuda.mem_get_info()[0] < 16 << 30:
        pytest.skip("less than 16 GiB of free GPU memory")
    x = torch.ones(1, tokens, width, dtype=torch.bfloat16, device="cuda")
    x[:, -1] = randn(width, device="cuda", dtype=torch.bfloat16)
    tail = fused.modulate(x[:, -1:].clone())
    y = fused.modulate(x)
    assert torch.equal(y[:, -1:], tail)
    assert torch.equal(y[:, 0], torch.zeros_like(y[:, 0]))
    del y
    y = fused.gated_norm(x.unsqueeze(2))
    assert torch.equal(y[0, -1:], fused.gated_norm(x[:, -1:].unsqueeze(2).clone())[0])


@pytest.mark.gpu
def test_tensors_on_two_devices_are_refused():
    x, weight = leaf(1, 2, 3, 4, device="cuda"), leaf(4)
    with pytest.raises(ValueError, match="weight has device cpu; it must be that of x, cuda:0"):
        fused.gated_norm(x, weight)


X = torch.rand(2, 6, 3, 8)
TOKENS = torch.rand(2, 6, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fused.gated_norm(X[0]), r"x has 3 axes; it must be 4, \[batch, tokens, heads, width\]"),
        (lambda: fused.gated_norm(X.int()), "x has dtype Int; it must be float32"),
        (lambda: fused.gated_norm(X.transpose(2, 3)), "x has stride 8; the last axis must be contiguous"),
        (lambda: fused.gated_norm(X[..., :0]), "x has width 0; it must be at least 1"),
        (lambda: fused.gated_norm(X, torch.rand(9)), r"weight has shape \[9\]; it must be \[8\]"),
        (lambda: fused.gated_norm(X, torch.rand(8), norm="channels"), r"weight has shape \[8\]; it must be \[24\]"),
        (lambda: fused.gated_norm(X, gate=X[:1]), r"gate has shape \[1, 6, 3, 8\]; it must be that of x"),
        (lambda: fused.gated_norm(X, gate=X.double()), "gate has dtype Double; beside x of Float"),
        (lambda: fused.gated_norm(X, gate=X.half()), "gate has dtype Half; it must be that of x, Float"),
        (lambda: fused.gated_norm(X, norm="token"), "norm is 'token'; it may be none, head, channels"),
        (lambda: fused.gated_norm(X, norm="none"), "norm is none; it must be head or channels"),
        (lambda: fused.gated_norm(X, eps=-1.0), "eps is -1.000000; it must be finite and not negative"),
        (lambda: fused.modulate(X), r"x has 4 axes; it must be 3, \[batch, tokens, channels\]"),
        (
            lambda: fused.modulate(TOKENS, torch.rand(8)),
            r"scale has shape \[8\]; it must be \[2, 8\] or \[2, 6, 8\]",
        ),
        (
            lambda: fused.modulate(TOKENS, torch.rand(2, 8), torch.rand(2, 6, 8)),
            "shift has 3 axes; it must be those of scale, 2",
        ),
        (lambda: fused.modulate(TOKENS, weight=torch.rand(8).double()), "weight has dtype Double; beside x of Float"),
        (lambda: fused.modulate(TOKENS, bias=torch.rand(7)), r"bias has shape \[7\]; it must be \[8\]"),
        (lambda: fused.rotary_features(X, weight=torch.rand(8)), "weight is given; it must not be with norm 'none'"),
        (lambda: fused.rotary_features(X, feature_map="cos"), "feature_map is 'cos'; it may be"),
        (
            lambda: fused.rotary_features(X, fused.Rotary.line(5, 8)),
            "sizes hold 5 tokens; they must hold those of x, 6",
        ),
        (
            lambda: fused.rotary_features(X, fused.Rotary.line(6, 10)),
            "pairs are 5 in all; they must be at most half the width of x, 8",
        ),
        (
            lambda: fused.rotary_features(X, fused.Rotary.line(6, 8, layout="thirds")),
            "layout is 'thirds'; it may be half, adjacent",
        ),
        (
            lambda: fused.rotary_features(X, fused.Rotary(torch.rand(23), torch.rand(24), (6,), (4,))),
            "cos has 23 entries; it must have 24",
        ),
        (
            lambda: fused.rotary_features(X, fused.Rotary(torch.rand(24), None, (6,), (4,))),
            "sin is missing; cos and sin must be given together",
        ),
        (lambda: fused.Rotary.tables(torch.rand(6), torch.rand(6)), r"both must be \[N, P\] or \[B, N, P\]"),
        (lambda: fused.Rotary.grid((), 8), "sizes has 0 entries; it must have from 1 to 3"),
        (lambda: fused.Rotary.line(6, 8, theta=0.0), "theta is 0; it must be finite and positive"),
    ],
)
def test_a_bad_argument_is_named(call, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()
