"""tools/convert_checkpoint.py: PyTorch checkpoints become safetensors files, and nothing in them is run."""

import json
import pathlib
import struct
import subprocess
import sys

import torch

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "convert_checkpoint.py"


def convert(*arguments):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True)


def read(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def test_tensors_keep_names_shapes_and_bytes(tmp_path):
    weight, count = torch.randn(3, 4), torch.tensor(5)
    torch.save({"epoch": 3, "model": {"module.a.weight": weight, "b": count}}, tmp_path / "in.pth")
    result = convert(tmp_path / "in.pth", tmp_path / "out.safetensors")
    assert result.returncode == 0, result.stderr
    header, data = read(tmp_path / "out.safetensors")
    assert header["a.weight"] == {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    assert header["b"] == {"dtype": "I64", "shape": [], "data_offsets": [48, 56]}
    assert data == weight.numpy().tobytes() + count.numpy().tobytes()


def test_half_precision_and_another_state_dict(tmp_path):
    torch.save({"state_dict": {}, "state_dict_ema": {"w": torch.ones(2)}}, tmp_path / "in.pth")
    result = convert(tmp_path / "in.pth", tmp_path / "out.safetensors", "--key", "state_dict_ema", "--half")
    assert result.returncode == 0, result.stderr
    assert read(tmp_path / "out.safetensors")[0]["w"]["dtype"] == "F16"


def vit(width, patch, tokens, layer):
    shapes = {
        "pos_embed": (1, tokens, width),
        "patch_embed.proj.weight": (width, 3, patch, patch),
        "head.weight": (10, width),
    }
    shapes |= {f"blocks.{i}.attn.{name}": shape for i in range(2) for name, shape in layer.items()}
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def config_of(state, tmp_path):
    torch.save({"model": state}, tmp_path / "in.pth")
    result = convert(tmp_path / "in.pth", tmp_path / "out.safetensors")
    assert result.returncode == 0, result.stderr
    metadata = read(tmp_path / "out.safetensors")[0]["__metadata__"]
    return json.loads(metadata["mhla.config"]) if "mhla.config" in metadata else result.stdout


def test_vision_transformers_are_recognised(tmp_path):
    softmax = vit(192, 16, 197, {"qkv.weight": (576, 192)}) | {"cls_token": torch.zeros(1, 1, 192)}
    expected = {
        "model": "deit_tiny",
        "preset": "authors",
        "attention": ["softmax"],
        "image_size": [224, 224],
        "patch": 16,
        "classes": 10,
        "blocks": [4, 4],
        "depth": 2,
        "lepe": False,
    }
    assert config_of(softmax, tmp_path) == expected
    layer = {"norm.weight": (384,), "piece_attn.conv.weight": (16, 16, 1, 1), "lepe.weight": (384, 1, 5, 5)}
    changes = {"model": "deit_small", "attention": ["mhla"], "lepe": True}
    assert config_of(vit(384, 16, 256, layer), tmp_path) == expected | changes
    assert config_of(vit(384, 4, 256, layer), tmp_path) == expected | changes | {"patch": 4, "image_size": [64, 64]}


def test_other_models_have_no_config(tmp_path):
    distilled = vit(192, 16, 198, {"qkv.weight": (576, 192)}) | {"dist_token": torch.zeros(1, 1, 192)}
    for state in (distilled, {"w": torch.ones(2)}, vit(100, 16, 196, {"qkv.weight": (300, 100)})):
        assert "without mhla.config" in config_of(state, tmp_path)


class Intruder:
    def __reduce__(self):
        return (print, ("code of the checkpoint was run",))


def test_code_in_a_checkpoint_is_refused(tmp_path):
    torch.save({"model": {"w": Intruder()}}, tmp_path / "in.pth")
    result = convert(tmp_path / "in.pth", tmp_path / "out.safetensors")
    assert result.returncode != 0
    assert "in.pth cannot be read" in result.stderr
    assert "code of the checkpoint was run" not in result.stdout
    assert not (tmp_path / "out.safetensors").exists()


def test_errors_name_the_argument(tmp_path):
    torch.save({"model": {"w": torch.ones(2)}, "epoch": 1}, tmp_path / "in.pth")
    result = convert(tmp_path / "in.pth", tmp_path / "out.safetensors", "--key", "weights")
    assert result.returncode != 0
    assert "--key is weights" in result.stderr and "model, epoch" in result.stderr
