"""The operator as PyTorch sees it: schema, fake tensors, autograd registration, torch.compile, autocast."""

import pytest
import torch

import mhla
from oracle import GRID, LINE, random_inputs

OPCHECK_CASES = {
    "image": ([5, 4], [3, 2], {}),
    "authors": ([5, 4], [3, 2], {"normalizer": "authors", "feature_eps": 1e-6}),
    "causal": ([20], [4], {"masking": "token-causal", "normalizer": "none"}),
    "state": ([20], [4], {"masking": "token-causal", "state_blocks": 5}),
    "kept": ([256], [64], {"normalizer": "none"}),
    "packed": ([20], [4], {"masking": "block-causal", "cu_seqlens": torch.tensor([0, 7, 20])}),
}


@pytest.mark.parametrize("case", OPCHECK_CASES)
@pytest.mark.parametrize("matrices", [{}, {"per_head": True}, {"per_row": True}])
def test_opcheck_accepts_the_forward_operator(case, matrices, device):
    sizes, extents, options = OPCHECK_CASES[case]
    inputs = random_inputs(mhla.Partition.by_extent(sizes, extents), batch=1, device=device, **matrices)
    inputs = [x.float().requires_grad_() for x in inputs]
    options = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    torch.library.opcheck(torch.ops.mhla.attention.default, (*inputs, sizes, extents), options)


def gradients(attend, tensors):
    return torch.autograd.grad(attend(*tensors).square().mean(), tensors)


def test_gradients_from_kept_summaries_are_those_of_the_dense_form(device):
    """Which keeps none."""
    line = mhla.Partition.line(256, 64)
    tensors = [x.requires_grad_() for x in random_inputs(line, device=device)]

    def summary(*tensors):
        return mhla.attention(*tensors, partition=line, algorithm="summary")

    expected = gradients(lambda *tensors: mhla.attention(*tensors, partition=line, algorithm="dense"), tensors)
    compiled = torch.compile(summary, fullgraph=True, backend="aot_eager")
    for attend in (summary, compiled):
        torch.testing.assert_close(gradients(attend, tensors), expected, rtol=1e-9, atol=1e-12)


NOT_KEPT = {
    "size": lambda x: x,
    "stride": lambda x: x[::2],
    "type": lambda x: x.double(),
    "axes": lambda x: x[None],
    "expanded": lambda x: x[:1].expand(64),
}


@pytest.mark.parametrize("spoil", NOT_KEPT)
def test_backward_refuses_what_forward_did_not_keep(spoil, device):
    line = mhla.Partition.line(256, 64)
    q, k, v, mixing = random_inputs(line, device=device)
    kept = NOT_KEPT[spoil](torch.zeros(64, dtype=torch.uint8, device=device))
    with pytest.raises(ValueError, match="kept"):
        torch.ops.mhla.attention_backward(
            q, k, v, mixing, [256], [64], normalizer="none", d_o=torch.rand_like(v), kept=kept
        )


def test_opcheck_accepts_denominator_features_and_initial_state(device):
    q, k, v, _ = (x.float().requires_grad_() for x in random_inputs(LINE, device=device))
    options = {
        "masking": "token-causal",
        "q_den": torch.rand_like(q).requires_grad_(),
        "k_den": torch.rand_like(k).requires_grad_(),
        "initial_S": torch.rand(2, 2, 2, 5, 4, device=device, requires_grad=True),
        "initial_z": torch.rand(2, 2, 2, 5, device=device, requires_grad=True),
        "initial_tokens": 6,
        "state_blocks": 5,
    }
    mixing = torch.rand(6, 6, device=device)
    torch.library.opcheck(torch.ops.mhla.attention.default, (q, k, v, mixing, [13], [4]), options)


@pytest.mark.parametrize("per_row", [False, True])
def test_opcheck_accepts_the_backward_operator(per_row, device):
    q, k, v, mixing = (x.float() for x in random_inputs(GRID, per_row=per_row, device=device))
    o = mhla.attention(q, k, v, mixing, partition=GRID)
    options = {"o": o, "d_o": torch.rand_like(o)}
    torch.library.opcheck(torch.ops.mhla.attention_backward.default, (q, k, v, mixing, [5, 4], [3, 2]), options)


def loss(q, k, v, mixing, causal):
    partition = LINE if causal else GRID
    o = mhla.attention(q.sin(), k, v, mixing.clamp(0, 1), partition=partition, causal=causal)
    return (o * o.shape[1]).square().mean()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("causal", "per_row"), [(False, False), (False, True), (True, False)])
def test_compiled_without_graph_breaks_equals_eager_forward_and_backward(backend, causal, per_row, device):
    partition = LINE if causal else GRID
    inputs = [x.float().requires_grad_() for x in random_inputs(partition, per_row=per_row, device=device)]
    eager = loss(*inputs, causal)
    compiled = torch.compile(loss, fullgraph=True, backend=backend)(*inputs, causal)
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(torch.autograd.grad(compiled, inputs), torch.autograd.grad(eager, inputs))


def test_one_compilation_serves_all_lengths(device):
    compilations = []

    def backend(graph, example_inputs):
        compilations.append(graph)
        return graph

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def call(q, k, v, mixing):
        return mhla.attention(q, k, v, mixing, partition=4, causal=True)

    mixing = torch.rand(9, 9, device=device)
    for tokens in (13, 17, 33):
        q, k, v, _ = (x.float() for x in random_inputs(mhla.Partition.line(tokens, 4), device=device))
        expected = mhla.attention(q, k, v, mixing, partition=4, causal=True)
        torch.testing.assert_close(call(q, k, v, mixing), expected)
    assert len(compilations) == 1


def test_compiled_module_trains_like_the_eager_one(device):
    torch.manual_seed(0)
    layer = mhla.nn.MHLA(16, 2, GRID, qk_norm=True).to(device)
    x = torch.randn(2, 20, 16, device=device)
    layer(x).square().mean().backward()
    expected = {name: parameter.grad.clone() for name, parameter in layer.named_parameters()}
    layer.zero_grad()
    torch.compile(layer, fullgraph=True, backend="aot_eager")(x).square().mean().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)


def test_second_derivatives_are_refused_by_name(device):
    q, k, v, mixing = (x.requires_grad_() for x in random_inputs(GRID, device=device))
    o = mhla.attention(q, k, v, mixing, partition=GRID)
    (d_q,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="mhla::attention_backward is not implemented"):
        d_q.sum().backward()


def test_autocast_runs_in_its_dtype_and_keeps_the_matrix(device):
    q, k, v, mixing = (x.float().requires_grad_() for x in random_inputs(GRID, device=device))
    with torch.autocast(device, dtype=torch.bfloat16):
        o = mhla.attention(q, k.detach().bfloat16(), v, mixing, partition=GRID)
    assert o.dtype == torch.bfloat16
    expected = mhla.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), mixing, partition=GRID)
    assert torch.equal(o, expected)
    o.float().square().sum().backward()
    assert q.grad.dtype == torch.float32 and mixing.grad.dtype == torch.float32


def test_low_precision_mixing_gets_a_gradient_of_its_own_dtype(device):
    q, k, v, mixing = (x.bfloat16().requires_grad_() for x in random_inputs(GRID, device=device))
    mhla.attention(q, k, v, mixing, partition=GRID).sum().backward()
    assert mixing.grad.dtype == torch.bfloat16
    assert mixing.grad.isfinite().all()
