"""Parity with the authors' models where the operator and the fused operators work together (tests/parity)."""

import json
import struct
from pathlib import Path

import torch
from torch.nn import functional

import mhla
from fused_oracle import relative_rms
from mhla import fused

LIMIT = 1e-5


class Case:
    """One file: inputs, parameters and expected outputs by name."""

    def __init__(self, name, device):
        data = (Path(__file__).parents[1] / "parity" / f"{name}.safetensors").read_bytes()
        (header_size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + header_size])
        self.config = json.loads(header.pop("__metadata__")["config"])
        self.tensors = {}
        for key, entry in header.items():
            assert entry["dtype"] == "F32"
            begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
            values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
            self.tensors[key] = values.view(entry["shape"]).to(device)

    def __getitem__(self, key):
        return self.tensors[key]

    def linear(self, key, x):
        return functional.linear(x, self[f"param/{key}.weight"], self.tensors.get(f"param/{key}.bias"))


def test_attention_layer_of_the_language_model(device):
    case = Case("nlp_layer_200", device)
    heads, x = case.config["heads"], case["in/x"]
    q, k, v, gate = (case.linear(f"{name}_proj", x).unflatten(-1, (heads, -1)) for name in "qkvg")
    rotary = fused.Rotary.line(x.shape[1], q.shape[-1], device=device)
    q, k = (fused.rotary_features(t, rotary) for t in (q, k))
    o = mhla.attention(
        q,
        k,
        v,
        case["param/mixing_matrix"].view(32, 32),
        partition=case.config["chunk"],
        feature_map="identity",
        normalizer="none",
        causal=True,
        scale=q.shape[-1] ** -0.5,
    )
    o = fused.gated_norm(o, case["param/g_norm_swish_gate.weight"], gate, eps=case.config["eps"])
    assert relative_rms(case.linear("o_proj", o.flatten(2)), case["out/o"]) <= LIMIT


def wan_self_attention(case, name, x, grid):
    heads = case.config["heads"]
    q, k, v, gate = (case.linear(f"{name}.{part}", x).unflatten(-1, (heads, -1)) for part in "qkvg")
    rotary = fused.Rotary.grid(grid, q.shape[-1], device=x.device)
    (q, q_den), (k, k_den) = (
        fused.rotary_features(
            t,
            rotary,
            norm="channels",
            weight=case[f"param/{name}.norm_{part}.weight"],
            feature_eps=1e-6,
            return_plain=True,
        )
        for t, part in ((q, "q"), (k, "k"))
    )
    partition = mhla.Partition.grid(grid, case.config["block_layout"])
    mixing = case[f"param/{name}.block_attn.conv.weight"].flatten(1)
    o = mhla.attention(
        q,
        k,
        v,
        mixing,
        partition=partition,
        feature_map="identity",
        normalizer="authors",
        q_den=q_den,
        k_den=k_den,
    )
    o = fused.gated_norm(o, case[f"param/{name}.g_norm.weight"], gate).flatten(2)
    video = v.flatten(2).transpose(1, 2).unflatten(2, grid)
    weight, bias = (case[f"param/{name}.lepe.{part}"] for part in ("weight", "bias"))
    lepe = functional.conv3d(video, weight, bias, padding=1, groups=video.shape[1])
    return case.linear(f"{name}.o", o + lepe.flatten(2).transpose(1, 2))


def wan_cross_attention(case, name, x, text):
    def normed(part, source):
        return functional.rms_norm(
            case.linear(f"{name}.{part}", source), x.shape[-1:], case[f"param/{name}.norm_{part}.weight"], 1e-6
        )

    q, k, v = (
        t.unflatten(-1, (case.config["heads"], -1)).transpose(1, 2)
        for t in (normed("q", x), normed("k", text), case.linear(f"{name}.v", text))
    )
    return case.linear(f"{name}.o", functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def wan_block(case, name, x, text, e0, grid):
    shift1, scale1, gate1, shift2, scale2, gate2 = (case[f"param/{name}.modulation"] + e0).unbind(1)
    x = x + gate1[:, None] * wan_self_attention(case, f"{name}.self_attn", fused.modulate(x, scale1, shift1), grid)
    weight, bias = (case[f"param/{name}.norm3.{part}"] for part in ("weight", "bias"))
    x = x + wan_cross_attention(case, f"{name}.cross_attn", fused.modulate(x, weight=weight, bias=bias), text)
    hidden = functional.gelu(case.linear(f"{name}.ffn.0", fused.modulate(x, scale2, shift2)), approximate="tanh")
    return x + gate2[:, None] * case.linear(f"{name}.ffn.2", hidden)


def test_video_transformer_with_gate_lepe_and_a_denominator_of_plain_features(device):
    with torch.backends.cudnn.flags(allow_tf32=False):
        check_video_transformer(Case("wan_mhla_lepe_norm", device), device)


def check_video_transformer(case, device):
    config = case.config
    x = functional.conv3d(
        case["in/x"], case["param/patch_embedding.weight"], case["param/patch_embedding.bias"], stride=config["patch"]
    )
    grid = tuple(x.shape[2:])
    x = x.flatten(2).transpose(1, 2).contiguous()
    half = config["freq_dim"] // 2
    angle = case["in/t"].double() * 10000 ** (-torch.arange(half, dtype=torch.float64, device=device) / half)
    time = torch.cat([angle.cos(), angle.sin()]).float()[None]
    e = case.linear("time_embedding.2", functional.silu(case.linear("time_embedding.0", time)))
    e0 = case.linear("time_projection.1", functional.silu(e)).unflatten(1, (6, -1))
    context = case["in/context"]
    text = functional.pad(context, (0, 0, 0, config["text_len"] - len(context)))[None]
    text = functional.gelu(case.linear("text_embedding.0", text), approximate="tanh")
    text = case.linear("text_embedding.2", text)
    for layer in range(config["layers"]):
        x = wan_block(case, f"blocks.{layer}", x, text, e0, grid)
    shift, scale = (case["param/head.modulation"] + e[:, None]).unbind(1)
    patches = case.linear("head.head", fused.modulate(x, scale, shift))
    patches = patches.view(1, *grid, *config["patch"], -1)
    out = torch.einsum("bfhwpqrc->bcfphqwr", patches).reshape(case["out/out"].shape)
    assert relative_rms(out, case["out/out"]) <= LIMIT
