"""The fused operators composed from PyTorch's own operations, and inputs for them."""

import torch

LIMITS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}

FEATURE_MAPS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "elu+1": lambda x: torch.nn.functional.elu(x) + 1,
    "exp": torch.exp,
    "squared-relu": lambda x: torch.relu(x).square(),
}


def rms_norm(x, weight, norm, eps):
    """x [B, N, H, D]; the mean over D or over H and D."""
    axes = {"head": (-1,), "channels": (-2, -1)}[norm]
    y = x * torch.rsqrt(x.square().mean(axes, keepdim=True) + eps)
    return y if weight is None else y * (weight.view(x.shape[2:]) if norm == "channels" else weight)


def angles(sizes, pairs, theta=10000.0, offset=0):
    """[N, P] in double: the angle of every pair of every token of a grid in raster order."""
    coordinates = torch.meshgrid(*(torch.arange(s, dtype=torch.float64) + offset for s in sizes), indexing="ij")
    parts = [
        c.flatten()[:, None] * theta ** (-torch.arange(p, dtype=torch.float64) / max(p, 1))
        for c, p in zip(coordinates, pairs, strict=True)
    ]
    return torch.cat(parts, dim=1)


def rotate(x, angle, layout):
    """x [B, N, H, D] by angle [N, P] or [B, N, P], as complex numbers."""
    pairs = angle.shape[-1]
    turn = torch.polar(torch.ones_like(angle), angle).unsqueeze(-2)  # [.., N, 1, P]
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if layout == "half":
        z = torch.complex(turned[..., :pairs], turned[..., pairs:]) * turn
        turned = torch.cat([z.real, z.imag], dim=-1)
    else:
        z = torch.complex(turned[..., 0::2], turned[..., 1::2]) * turn
        turned = torch.stack([z.real, z.imag], dim=-1).flatten(-2)
    return torch.cat([turned, rest], dim=-1)


def rotary_features(
    x, angle, layout="half", *, norm="none", weight=None, norm_eps=1e-6, feature_map="relu", feature_eps=0.0
):
    """(rotated, plain)"""
    if norm != "none":
        x = rms_norm(x, weight, norm, norm_eps)
    plain = FEATURE_MAPS[feature_map](x) + feature_eps
    return (plain if angle is None else rotate(plain, angle, layout)), plain


def gated_norm(x, weight=None, gate=None, *, norm="head", eps=1e-6):
    y = rms_norm(x, weight, norm, eps)
    return y if gate is None else y * torch.nn.functional.silu(gate)


def modulate(x, scale=None, shift=None, *, weight=None, bias=None, eps=1e-6):
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    wide = [t if t is None or t.ndim == 3 else t[:, None] for t in (scale, shift)]
    y = y if scale is None else y * (1 + wide[0])
    return y if shift is None else y + wide[1]


def randn(*shape, seed=0, device="cpu", dtype=torch.float64):
    """The same numbers on every device and, up to rounding, in every dtype."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype)


def relative_rms(actual, expected):
    error = (actual.double() - expected.double()).norm()
    return (error / expected.double().norm().clamp_min(1e-300)).item()
