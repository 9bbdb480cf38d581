"""The operator as its O(N^2) definition in plain PyTorch, in whatever precision its inputs have."""

import torch

import mhla

FEATURE_MAPS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "elu+1": lambda x: torch.nn.functional.elu(x) + 1,
    "exp": torch.exp,
    "squared-relu": lambda x: torch.relu(x).square(),
}


def dense_attention(
    q,
    k,
    v,
    mixing,
    *,
    partition,
    feature_map="relu",
    normalizer="paper",
    causal=False,
    scale=1.0,
    eps=1e-6,
    feature_eps=0.0,
    q_den=None,
    k_den=None,
):
    """o_t = sum_s m[block(t), block(s)] (phi(q_t) . phi(k_s)) v_s, over the tokens s that t may see."""

    def features(x, heads):
        mapped = FEATURE_MAPS[feature_map](x) + feature_eps
        return mapped.repeat_interleave(heads // x.shape[2], dim=2)

    heads, block, slot = q.shape[2], partition.block_of.to(q.device), partition.slot_of.to(q.device)
    token = torch.arange(q.shape[1], device=q.device)
    visible = {
        False: torch.ones(len(token), len(token), dtype=torch.bool, device=q.device),
        True: token[:, None] >= token[None, :],
        "block": block[:, None] >= block[None, :],
    }[causal]
    mixing = mixing.to(q.dtype).expand(len(q), heads, *mixing.shape[-2:])
    weight = mixing[:, :, block][..., block] * visible
    phi_q, phi_k = scale * features(q, heads), features(k, heads)
    v = v.repeat_interleave(heads // v.shape[2], dim=2)
    scores = torch.einsum("bthd,bshd->bhts", phi_q, phi_k) * weight
    o = torch.einsum("bhts,bshe->bthe", scores, v)
    if normalizer == "none":
        return o
    if q_den is not None:
        phi_q, phi_k = scale * features(q_den, heads), features(k_den, heads)
    if normalizer == "paper":
        denominator = (torch.einsum("bthd,bshd->bhts", phi_q, phi_k) * weight).sum(-1).transpose(1, 2)
    else:
        same_block = (block[:, None] == block[None, :]).to(q.dtype)
        z = torch.einsum("us,bshd->buhd", same_block, phi_k)
        same_slot = (slot[:, None] == slot[None, :]).to(q.dtype)
        denominator = torch.einsum("bhtu,buh->bth", weight * same_slot, (phi_q * z).sum(-1))
    return o / (denominator + eps)[..., None]


def summary_attention(q, k, v, mixing, *, partition, eps=1e-6):
    """What one would write in PyTorch for equal blocks: relu features, paper normalizer, precision of the inputs."""
    order, blocks = partition.block_order.to(q.device), partition.blocks
    blocked = [x[:, order].unflatten(1, (blocks, -1)).permute(0, 3, 1, 2, 4) for x in (q.relu(), k.relu(), v)]
    q, k, v = blocked  # [B, H, M, tokens of a block, D]
    mixing = mixing.to(q.dtype)
    S = torch.einsum("ij,bhjde->bhide", mixing, k.transpose(-1, -2) @ v)
    z = torch.einsum("ij,bhjd->bhid", mixing, k.sum(-2))
    o = (q @ S) / (q @ z[..., None] + eps)
    return o.permute(0, 2, 3, 1, 4).flatten(1, 2)[:, order.argsort()]


def relative_rms(actual, expected):
    """Root mean square of the difference, relative to that of ``expected``."""
    difference = actual.double() - expected.double()
    return (difference.square().mean().sqrt() / expected.double().square().mean().sqrt()).item()


def random_inputs(
    partition,
    *,
    batch=2,
    heads=2,
    kv_heads=None,
    key_dim=5,
    value_dim=4,
    per_head=False,
    per_row=False,
    seed=0,
    device="cpu",
):
    """q, k, v and positive mixing matrices in double precision; the same numbers on every device."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tokens, kv_heads = partition.tokens, kv_heads or heads
    q = normal(batch, tokens, heads, key_dim)
    k = normal(batch, tokens, kv_heads, key_dim)
    v = normal(batch, tokens, kv_heads, value_dim)
    shape = (batch, heads) if per_row else (heads,) if per_head else ()
    mixing = normal(*shape, partition.blocks, partition.blocks).abs() + 0.1
    return tuple(x.to(device) for x in (q, k, v, mixing))


LINE = mhla.Partition.line(13, 4)
GRID = mhla.Partition.grid((5, 4), (2, 2))
VIDEO = mhla.Partition.grid((2, 3, 4), (1, 2, 2))
