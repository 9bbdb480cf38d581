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
