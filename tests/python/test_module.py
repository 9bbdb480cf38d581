"""``mhla.nn.MHLA`` as a layer in a model."""

import copy
import pickle

import pytest
import torch

import mhla

GRID = mhla.Partition.grid((6, 6), (3, 3))
LINE = mhla.Partition.line(32, 8)


def test_training_lowers_the_loss_and_projection_keeps_the_matrix_valid(device):
    torch.manual_seed(0)
    layer = mhla.nn.MHLA(16, 4, GRID, qk_norm=True, qkv_bias=True).to(device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    x, target = torch.randn(4, 36, 16, device=device), torch.randn(4, 36, 16, device=device)
    initial = layer.mixing.detach().clone()
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.mse_loss(layer(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layer.project_()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
    assert not torch.equal(layer.mixing, initial)
    assert layer.mixing.min() >= 0 and layer.mixing.max() <= 1


def test_forward_is_projections_around_the_operator(device):
    torch.manual_seed(0)
    layer = mhla.nn.MHLA(12, 3, GRID, kv_heads=1, normalizer="authors", feature_eps=1e-6).double().to(device)
    x = torch.randn(2, 36, 12, dtype=torch.float64, device=device)
    q, k, v = layer.qkv(x).split([12, 4, 4], -1)
    q, k, v = (part.reshape(2, 36, -1, 4) for part in (q, k, v))
    o = mhla.attention(q, k, v, layer.mixing, partition=GRID, normalizer="authors", feature_eps=1e-6)
    torch.testing.assert_close(layer(x), layer.proj(o.reshape(2, 36, 12)))


@pytest.mark.parametrize("tokens", [1, 8, 19, 32])
def test_causal_layer_takes_shorter_inputs_and_streams_them(tokens):
    torch.manual_seed(0)
    layer = mhla.nn.MHLA(12, 3, LINE, causal=True, normalizer="none", scale=0.5, mixing_per_head=True).double()
    x = torch.randn(2, tokens, 12, dtype=torch.float64)
    with torch.no_grad():
        whole = layer(x)
        state = layer.new_state(2)
        streamed = torch.cat([layer(x[:, t : t + 1], state) for t in range(tokens)], 1)
    torch.testing.assert_close(streamed, whole, rtol=1e-10, atol=1e-10)


def test_later_tokens_do_not_change_earlier_outputs_of_a_causal_layer(device):
    torch.manual_seed(0)
    layer = mhla.nn.MHLA(12, 3, LINE, causal=True).to(device)
    x = torch.randn(1, 32, 12, device=device)
    changed = x.clone()
    changed[:, 20:] = 0
    torch.testing.assert_close(layer(x)[:, :20], layer(changed)[:, :20])
    assert not torch.equal(layer(x)[:, 20:], layer(changed)[:, 20:])


def test_layer_survives_state_dict_copy_and_pickle():
    torch.manual_seed(0)
    layer = mhla.nn.MHLA(16, 4, GRID, mixing_per_head=True, qk_norm=True)
    x = torch.randn(1, 36, 16)
    twin = mhla.nn.MHLA(16, 4, GRID, mixing_per_head=True, qk_norm=True)
    twin.load_state_dict(layer.state_dict())
    for other in (twin, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
    assert "grid 6x6" in repr(layer)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mhla.nn.MHLA(16, 3, GRID), "^heads is 3"),
        (lambda: mhla.nn.MHLA(16, 4, GRID, kv_heads=3), "^kv_heads is 3"),
        (lambda: mhla.nn.MHLA(16, 4, GRID, causal="later"), "^causal is 'later'"),
        (lambda: mhla.nn.MHLA(16, 4, GRID, mixing_init="nearest"), "nearest"),
        (lambda: mhla.nn.MHLA(16, 4, GRID)(torch.zeros(1, 36, 15)), "^x has shape"),
        (lambda: mhla.nn.MHLA(16, 4, GRID)(torch.zeros(1, 35, 16)), "partition has 36 tokens"),
        (lambda: mhla.nn.MHLA(16, 4, GRID).new_state(1), "^causal is False"),
        (lambda: mhla.nn.MHLA(16, 4, LINE, causal=True)(torch.zeros(1, 33, 16)), "mixing is for 4 blocks"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
