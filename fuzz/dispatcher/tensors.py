"""Arguments as JSON, so that a call can be written down, and the tensors they stand for.

A tensor is ``{"shape": [...], "dtype": "float32", "values": "normal", "seed": 7, "device": "cpu", "layout": "plain"}``;
everything but the shape may be left out. Lists and other values are themselves; NaN and infinities are JSON's
``NaN`` and ``Infinity`` as Python writes them.
"""

import torch

DTYPES = ("float32", "float64", "bfloat16", "float16")
OTHER_DTYPES = ("int64", "int32", "bool", "uint8", "complex64", "float8_e4m3fn")
VALUES = ("normal", "positive", "zeros", "nan", "inf", "large", "tiny", "one_nan")
LAYOUTS = (
    "plain",
    "gap",
    "transposed",
    "expanded",
    "flipped",
    "negated",
    "sparse",
    "shifted",
    "subclass",
    "conjugated",
)

_generator = torch.Generator()


def _fill(shape, values, seed):
    _generator.manual_seed(seed)
    x = torch.randn(shape, generator=_generator, dtype=torch.float64)
    if values == "positive":
        return x.abs() + 0.1
    if values == "zeros":
        return torch.zeros_like(x)
    if values in ("nan", "inf"):
        return torch.full_like(x, float(values))
    if values == "large":
        return x * 1e30
    if values == "tiny":
        return x * 1e-40
    if values == "one_nan" and x.numel():
        x.view(-1)[seed % x.numel()] = float("nan")
    return x


def _lay_out(x, layout):
    if layout == "gap" and x.ndim:  # rows of a larger tensor
        wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), float("nan")).to(x.dtype)
        wide[..., : x.shape[-1]] = x
        return wide[..., : x.shape[-1]]
    if layout == "transposed" and x.ndim >= 2:  # the last axis is not contiguous
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "expanded" and x.ndim and x.shape[0]:  # every row is the first
        return x[:1].expand(x.shape)
    if layout == "flipped" and x.ndim >= 3:  # tokens and heads change places in memory
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "negated":
        return torch._neg_view(-x) if x.dtype not in (torch.bool, torch.uint8) else x
    if layout == "conjugated" and x.is_floating_point() and x.dtype in (torch.float32, torch.float64):
        return torch.complex(x, x).conj().real  # a plain view with strides of two
    if layout == "sparse":
        return x.to_sparse()
    if layout == "shifted":  # not aligned
        memory = torch.empty(x.numel() + 1, dtype=x.dtype)
        memory[1:] = x.reshape(-1)
        return memory[1:].view(x.shape)
    if layout == "subclass":
        return torch.nn.Parameter(x, requires_grad=False)
    return x


def is_tensor(value):
    return isinstance(value, dict) and "shape" in value


def make(value):
    """The argument that ``value`` stands for."""
    if isinstance(value, list):
        return [make(entry) for entry in value]
    if not is_tensor(value):
        return value
    dtype = getattr(torch, value.get("dtype", "float32"))
    if "data" in value:  # the numbers themselves
        x = torch.tensor(value["data"], dtype=dtype).reshape(value["shape"])
    else:
        x = _fill(value["shape"], value.get("values", "normal"), value.get("seed", 0))
        x = x.to(dtype) if dtype.is_floating_point or dtype.is_complex else x.nan_to_num(0).clamp(-9, 9).to(dtype)
    if value.get("device", "cpu") == "meta":
        return x.to("meta")
    x = _lay_out(x, value.get("layout", "plain"))
    return x.requires_grad_() if value.get("grad") and x.is_floating_point() else x
