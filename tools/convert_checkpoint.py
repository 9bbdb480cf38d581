#!/usr/bin/env python3
"""Converts a PyTorch checkpoint (.pth, .pt) to safetensors, which `mhla` reads.

    tools/convert_checkpoint.py deit_tiny_patch16_224.pth deit_tiny.safetensors

Only tensors are read (torch.load with weights_only): a checkpoint cannot run code here. Of a training checkpoint the
state dict is taken that --key names, or else the first of `model`, `state_dict`, `model_state_dict`.

Vision transformers (DeiT) with timm's softmax attention or the authors' MHLA are recognised by names and shapes: their
options go into the metadata, so that `mhla classify` and `mhla eval` can use the file. Any other serves `--init` alone.
"""

import argparse
import json
import math
import os
import struct
import sys

import torch

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
USUAL_KEYS = ("model", "state_dict", "model_state_dict")
MODELS = {192: "deit_tiny", 384: "deit_small", 768: "deit_base"}  # by width
MODULES = {"cls_token", "pos_embed", "patch_embed", "blocks", "norm", "fc_norm", "head"}
USUAL_IMAGE_SIZE = 224
METADATA = "__metadata__"  # the one name that no tensor of a safetensors file can have


def fail(message):
    sys.exit(f"convert_checkpoint: {message}")


def shown(name):
    """A name for a message, on one line whatever it holds."""
    if not isinstance(name, str):
        return ascii(name)
    return name if name.isprintable() else ascii(name)[1:-1]


def first_line(error):
    return next(iter(str(error).splitlines()), type(error).__name__)


def state_dict(checkpoint, key, source):
    if not isinstance(checkpoint, dict):
        fail(f"{source} holds a {type(checkpoint).__name__}, not a state dict")
    if key is None:
        key = next((name for name in USUAL_KEYS if isinstance(checkpoint.get(name), dict)), None)
    elif not isinstance(checkpoint.get(key), dict):
        fail(f"--key is {key}; {source} has: {', '.join(map(shown, checkpoint))}")
    state = checkpoint if key is None else checkpoint[key]
    others = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if others:
        fail(f"{source}: {', '.join(map(shown, others[:5]))} are not tensors; --key says where the state dict is")
    if not state:
        fail(f"{source} holds no tensors")
    return state


def layer_attention(names, layer):
    start = f"blocks.{layer}.attn."
    return "mhla" if start + "piece_attn.conv.weight" in names else "softmax" if start + "qkv.weight" in names else None


def vit_config(tensors):
    """The options of `mhla` for a vision transformer, or None where the tensors are of something else."""
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    depth = len({name.split(".")[1] for name in shapes if name.startswith("blocks.")})
    attention = [layer_attention(shapes, layer) for layer in range(depth)]
    known = {name.split(".")[0] for name in shapes} <= MODULES and attention and None not in attention
    patches, positions, head = (
        shapes.get(name, []) for name in ("patch_embed.proj.weight", "pos_embed", "head.weight")
    )
    if not known or (len(patches), len(positions), len(head)) != (4, 3, 2) or patches[0] not in MODELS:
        return None
    if min(*patches, *positions, *head) < 1:
        return None
    mixing = next((shape[0] for name, shape in shapes.items() if name.endswith("piece_attn.conv.weight")), 1)
    side, blocks = math.isqrt(positions[1]), math.isqrt(mixing)
    if side**2 + ("cls_token" in shapes) != positions[1] or blocks**2 != mixing or blocks < 1:
        return None
    # The authors' MHLA model fills the grid up to whole blocks.
    fits = math.ceil(math.ceil(USUAL_IMAGE_SIZE / patches[2]) / blocks) * blocks == side
    own_norm = any(name.endswith(".attn.norm.weight") for name in shapes)
    return {
        "model": MODELS[patches[0]],
        "preset": "authors" if "cls_token" in shapes or own_norm else "paper",
        "attention": attention[:1] if len(set(attention)) == 1 else attention,
        "image_size": [USUAL_IMAGE_SIZE if fits else side * patches[2]] * 2,
        "patch": patches[2],
        "classes": head[0],
        "blocks": [blocks, blocks] if "mhla" in attention else [4, 4],
        "depth": depth,
        "lepe": any(".attn.lepe." in name for name in shapes),
    }


def stored_name(name, prefix, source):
    if not isinstance(name, str):
        fail(f"{source}: {shown(name)} is the name of a tensor; it must be text")
    short = name.removeprefix(prefix)
    try:
        short.encode()
    except UnicodeEncodeError:
        fail(f'{source}: "{shown(name)}" is the name of a tensor; it must be valid Unicode')
    if short == METADATA:
        fail(f'{source}: "{METADATA}" is the name of a tensor; in safetensors it has another meaning')
    return short


def stored_tensor(tensor, name, half):
    """Its values as they lie in the file."""
    if tensor.is_meta:
        fail(f'tensor "{shown(name)}" is on the meta device and has no values')
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        fail(f'tensor "{shown(name)}" is {kind}; only dense tensors are converted')
    if tensor.dtype not in TYPES:
        fail(f'tensor "{shown(name)}" has dtype {tensor.dtype}, which is not converted')
    try:
        value = tensor.detach().resolve_neg().contiguous()
    except RuntimeError:
        fail(f'tensor "{shown(name)}" has {tensor.numel():,} elements, more than there is memory for')
    if not half or not value.is_floating_point():
        return value
    if torch.any(value.half().isinf() & value.isfinite()):
        fail(f'tensor "{shown(name)}" has values beyond half precision, 65504; convert it without --half')
    return value.half()


def renamed(state, prefix, half, source):
    tensors, origins = {}, {}
    for name, tensor in state.items():
        short = stored_name(name, prefix, source)
        if short in tensors:
            both = f'"{shown(origins[short])}" and "{shown(name)}"'
            fail(f'{source}: {both} are the same without "{prefix}"; --prefix "" keeps the names')
        tensors[short], origins[short] = stored_tensor(tensor, short, half), name
    return dict(sorted(tensors.items()))


def encode(tensors, metadata):
    header, offset = {METADATA: metadata}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        place = [offset, offset + size]
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for tensor in tensors.values():
        yield tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def write(path, pieces):
    """Beside the file first, so that there is never half of it."""
    partial = path + ".partial"
    try:
        with open(partial, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="PyTorch checkpoint to read")
    parser.add_argument("output", help="safetensors file to write")
    parser.add_argument("--key", help="entry of the checkpoint that is the state dict, for example state_dict_ema")
    parser.add_argument("--prefix", default="module.", help="taken off names that begin with it (default: %(default)s)")
    parser.add_argument("--half", action="store_true", help="store floating-point tensors in half precision")
    options = parser.parse_args()
    try:
        # Training scripts store their arguments beside the weights.
        with torch.serialization.safe_globals([argparse.Namespace]):
            checkpoint = torch.load(options.checkpoint, map_location="cpu", weights_only=True)
    except Exception as error:
        fail(f"{options.checkpoint} cannot be read: {first_line(error)}")
    state = state_dict(checkpoint, options.key, options.checkpoint)
    tensors = renamed(state, options.prefix, options.half, options.checkpoint)
    config = vit_config(tensors)
    metadata = {"format": "pt"} | ({"mhla.config": json.dumps(config)} if config else {})
    try:
        write(options.output, encode(tensors, metadata))
    except OSError as error:
        fail(f"{options.output} cannot be written: {error.strerror}")
    print(f"{options.output}: {len(tensors)} tensors, {sum(t.numel() for t in tensors.values()):,} elements")
    if config:
        print(
            f"{config['model']}, {', '.join(config['attention'])} attention, images of {config['image_size'][0]} pixels"
        )
    else:
        print("not recognised as a model of mhla: without mhla.config it serves `mhla train classify --init` alone")


if __name__ == "__main__":
    main()
