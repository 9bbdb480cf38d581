"""What only CUDA tensors can show: streams, graphs, precision settings, mixed devices, large tensors."""

import pytest
import torch

import mhla
from oracle import GRID, LINE, dense_attention, random_inputs, relative_rms

pytestmark = pytest.mark.gpu
IMAGE = mhla.Partition.grid((16, 16), (4, 4))
LIMITS = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 2e-3}
DTYPES = list(LIMITS)


def image_inputs(dtype=torch.float32, **sizes):
    q, k, v, mixing = random_inputs(IMAGE, **{"heads": 3, "key_dim": 32, "value_dim": 48, **sizes}, device="cuda")
    return [x.to(dtype) for x in (q, k, v)] + [mixing.double() if dtype == torch.float64 else mixing.float()]


def forward_and_gradients(inputs, **options):
    leaves = [x.detach().requires_grad_() for x in inputs]
    o = mhla.attention(*leaves, **options)
    return [o.detach(), *torch.autograd.grad(o.sum(), leaves)]


def assert_same_bits(actual, expected):
    assert all(torch.equal(one, two) for one, two in zip(actual, expected, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_current_stream_orders_the_work(dtype):
    inputs = image_inputs(dtype)
    expected = forward_and_gradients(inputs, partition=IMAGE)
    late = torch.full_like(inputs[0], float("nan"))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(inputs[0])  # work on another stream would not wait for this
        actual = forward_and_gradients([late, *inputs[1:]], partition=IMAGE)
    stream.synchronize()
    assert_same_bits(actual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"algorithm": "dense"}, {"normalizer": "authors"}, {"causal": True}])
def test_a_captured_graph_replays_on_new_inputs(dtype, options):
    options = {"partition": 16 if "causal" in options else IMAGE, **options}
    inputs = image_inputs(dtype)
    leaves = [x.clone().requires_grad_() for x in inputs]

    def step():
        o = mhla.attention(*leaves, **options)
        return [o, *torch.autograd.grad(o.sum(), leaves)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (1, 2):
        fresh = image_inputs(dtype, seed=seed)
        with torch.no_grad():
            for leaf, value in zip(leaves, fresh, strict=True):
                leaf.copy_(value)
        graph.replay()
        assert_same_bits(captured, forward_and_gradients(fresh, **options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"algorithm": "dense"}, {"normalizer": "authors"}, {"causal": True}])
def test_a_hundred_runs_give_the_same_bits(dtype, options):
    options = {"partition": 16 if "causal" in options else IMAGE, **options}
    inputs = image_inputs(dtype)
    first = forward_and_gradients(inputs, **options)
    for _ in range(100):
        assert_same_bits(forward_and_gradients(inputs, **options), first)


def test_a_call_never_waits_for_the_device():
    inputs = image_inputs()
    forward_and_gradients(inputs, partition=IMAGE)
    torch.cuda.set_sync_debug_mode("error")
    try:
        forward_and_gradients(inputs, partition=IMAGE)
        forward_and_gradients(inputs, partition=16, causal=True)
        mhla.project_mixing(inputs[3], normalize_rows=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ["summary", "dense"])
def test_views_that_are_not_aligned_are_read_and_differentiated_right(dtype, algorithm):
    q, k, v, mixing = image_inputs(dtype)
    wide = torch.cat([q, k, v], -1)
    views = [wide[..., 1:17], wide[..., 33:49], wide[..., 65:96]]
    actual = forward_and_gradients([*views, mixing], partition=IMAGE, algorithm=algorithm)
    doubles = [x.double().requires_grad_() for x in (*views, mixing)]
    o = dense_attention(*doubles, partition=IMAGE)
    expected = [o.detach(), *torch.autograd.grad(o.sum(), doubles)]
    for name, ours, exact in zip(("o", "d_q", "d_k", "d_v", "d_mixing"), actual, expected, strict=True):
        assert relative_rms(ours, exact) <= LIMITS[dtype], name


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_rows_are_found_alike_in_small_and_large_calls(dtype):
    """The kernel of a small call computes where its rows are; that of a large one reads it from a table."""
    ragged = mhla.Partition.grid((15, 14), (4, 4))
    q, k, v, mixing = random_inputs(ragged, batch=64, heads=3, key_dim=32, value_dim=48, device="cuda")
    inputs = [x.to(dtype) for x in (q, k, v)]
    mixing = mixing.double() if dtype == torch.float64 else mixing.float()
    large = forward_and_gradients([*inputs, mixing], partition=ragged, algorithm="dense")
    small = forward_and_gradients([*(x[:2] for x in inputs), mixing], partition=ragged, algorithm="dense")
    for name, ours, others in zip(("o", "d_q", "d_k", "d_v"), small, large, strict=False):
        assert relative_rms(ours, others[:2]) <= LIMITS[dtype], name


def test_float32_products_follow_the_setting_of_torch():
    partition = mhla.Partition.grid((32, 32), (4, 4))
    q, k, v, mixing = (x.float() for x in random_inputs(partition, key_dim=64, value_dim=64, device="cuda"))
    expected = dense_attention(*(x.double() for x in (q, k, v, mixing)), partition=partition)
    errors = {}
    setting = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            o = mhla.attention(q, k, v, mixing, partition=partition)
            errors[precision] = relative_rms(o, expected)
    finally:
        torch.set_float32_matmul_precision(setting)
    assert errors["highest"] <= 1e-5
    assert errors["high"] <= 2e-3


def test_offsets_of_packed_sequences_may_lie_on_either_device():
    q, k, v, _ = random_inputs(LINE, batch=1, device="cuda")
    mixing = torch.rand(4, 4, dtype=torch.float64, device="cuda")
    offsets = torch.tensor([0, 5, 13])
    options = {"partition": 4, "causal": True, "return_state": True}
    there, state_there = mhla.attention(q, k, v, mixing, cu_seqlens=offsets.cuda(), **options)
    here, state_here = mhla.attention(q, k, v, mixing, cu_seqlens=offsets, **options)
    assert_same_bits([there, *state_there], [here, *state_here])


def test_packed_calls_compile():
    q, k, v, _ = (x.float() for x in random_inputs(LINE, batch=1, device="cuda"))
    mixing = torch.rand(4, 4, device="cuda")
    offsets = torch.tensor([0, 5, 13])

    def call(q, k, v, mixing):
        return mhla.attention(q, k, v, mixing, partition=4, causal=True, cu_seqlens=offsets)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, k, v, mixing), call(q, k, v, mixing))


@pytest.mark.parametrize("argument", ["q", "k", "v", "mixing", "q_den", "k_den"])
def test_a_tensor_on_another_device_is_named(argument):
    tensors = dict(zip(("q", "k", "v", "mixing"), random_inputs(GRID, device="cuda"), strict=True))
    tensors |= {"q_den": tensors["q"], "k_den": tensors["k"]}
    tensors[argument] = tensors[argument].cpu()
    named = "k" if argument == "q" else argument  # the others are compared with q
    with pytest.raises(ValueError, match=f"^{named} has device .*; it must be that of q"):
        mhla.attention(**tensors, partition=GRID)


def test_an_initial_state_on_another_device_is_named():
    q, k, v, _ = random_inputs(LINE, device="cuda")
    mixing = torch.rand(6, 6, dtype=torch.float64, device="cuda")
    state = mhla.Summaries(torch.rand(2, 2, 1, 5, 4, dtype=torch.float64), torch.rand(2, 2, 1, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match="^initial_S has device cpu"):
        mhla.attention(q, k, v, mixing, partition=4, causal=True, initial_state=state, initial_tokens=4)


def test_a_state_on_the_cpu_names_a_tensor_that_is_not_there():
    q, k, v, mixing = random_inputs(LINE, device="cuda")
    state = mhla.State(
        mixing.cpu(), batch=2, heads=2, kv_heads=2, key_dim=5, value_dim=4, block_size=4, dtype=torch.float64
    )
    with pytest.raises(ValueError, match="^q has device cuda:0; it must be cpu"):
        state.prefill(q, k, v)
    assert state.tokens == 0


def test_the_device_of_the_tensors_is_used_whichever_is_current():
    last = torch.cuda.device_count() - 1
    inputs = [x.to(f"cuda:{last}") for x in image_inputs()]
    with torch.cuda.device(0):
        actual = forward_and_gradients(inputs, partition=IMAGE)
    assert actual[0].device.index == last
    assert_same_bits(
        [x.cpu() for x in actual], [x.cpu() for x in forward_and_gradients(image_inputs(), partition=IMAGE)]
    )


def test_more_than_two_to_the_31_elements():
    rows = 1030  # x 4096 x 8 x 64 = 2.16e9
    partition = mhla.Partition.grid((64, 64), (4, 4))
    free, _ = torch.cuda.mem_get_info()
    needed = 12 * rows * 4096 * 8 * 64 * 2
    if free < needed:
        pytest.skip(f"needs {needed >> 30} GiB of GPU memory; {free >> 30} are free")
    one = random_inputs(partition, batch=1, heads=8, key_dim=64, value_dim=64, device="cuda")
    q, k, v = (x.bfloat16().expand(rows, -1, -1, -1).contiguous().requires_grad_() for x in one[:3])
    o = mhla.attention(q, k, v, one[3].float(), partition=partition)
    d_q, d_k, d_v = torch.autograd.grad(o.sum(), (q, k, v))
    for tensor in (o, d_q, d_k, d_v):
        for row in (511, 512, 1023, 1024, rows - 1):
            assert torch.equal(tensor[row], tensor[0]), row
    expected = dense_attention(*(x[:1].detach().double() for x in (q, k, v)), one[3], partition=partition)
    assert relative_rms(o[:1], expected) <= 8e-3
