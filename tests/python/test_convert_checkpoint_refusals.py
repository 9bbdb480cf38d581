"""tools/convert_checkpoint.py: what cannot be converted is refused in one line that names it, and leaves no file."""

import importlib.util
import sys

import pytest
import torch

from test_convert_checkpoint import TOOL, read

ONE = torch.ones(2)


@pytest.fixture
def convert(tmp_path, monkeypatch):
    """Converts a state dict, in this process; returns the message of a refusal, None where there is none."""
    spec = importlib.util.spec_from_file_location("convert_checkpoint", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    def run(state, *arguments, output="out.safetensors"):
        torch.save(state, tmp_path / "in.pth")
        monkeypatch.setattr(sys, "argv", ["convert_checkpoint", *map(str, (tmp_path / "in.pth", tmp_path / output))])
        sys.argv.extend(arguments)
        try:
            return tool.main()
        except SystemExit as refusal:
            assert refusal.code.startswith("convert_checkpoint: ") and "\n" not in refusal.code
            assert [path.name for path in tmp_path.iterdir()] == ["in.pth"]
            return refusal.code

    return run


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"module.a": ONE, "a": ONE}, '"module.a" and "a" are the same without "module."'),
        ({"__metadata__": ONE}, '"__metadata__" is the name of a tensor'),
        ({"a\ud800": ONE}, '"a\\ud800" is the name of a tensor; it must be valid Unicode'),
        ({1: ONE, "b": ONE}, "1 is the name of a tensor; it must be text"),
        ({(1, 2): ONE}, "(1, 2) is the name of a tensor; it must be text"),
        ({"\x1b[2J": torch.eye(3).to_sparse()}, 'tensor "\\x1b[2J" is sparse_coo; only dense tensors'),
        ({"a": torch.ones(3, device="meta")}, 'tensor "a" is on the meta device'),
        ({"a": torch.ones(2, dtype=torch.complex64)}, 'tensor "a" has dtype torch.complex64'),
        ({"a": torch.ones(1).expand(2**44)}, 'tensor "a" has 17,592,186,044,416 elements'),
    ],
    ids=["same_name", "metadata", "surrogate", "integer", "tuple", "sparse", "meta", "complex", "huge"],
)
def test_a_tensor_that_cannot_be_stored_is_named(state, reason, convert):
    assert reason in convert(state)


def test_values_beyond_half_precision_are_named(convert):
    assert 'tensor "a" has values beyond half precision' in convert({"a": torch.tensor([1e6])}, "--half")


def test_an_output_that_cannot_be_written_is_named(convert):
    refusal = convert({"a": ONE}, output="none/out.safetensors")
    assert "out.safetensors cannot be written: No such file or directory" in refusal


def test_names_with_and_without_the_prefix_are_kept_on_demand(convert, tmp_path):
    assert convert({"module.a": ONE, "a": ONE + 1}, "--prefix", "") is None
    assert set(read(tmp_path / "out.safetensors")[0]) == {"__metadata__", "module.a", "a"}


def test_a_negated_view_is_stored_with_its_values(convert, tmp_path):
    assert convert({"a": torch._neg_view(torch.ones(3))}) is None
    assert read(tmp_path / "out.safetensors")[1] == (-torch.ones(3)).numpy().tobytes()


def test_a_vision_transformer_without_pixels_or_blocks_is_not_recognised(convert, capsys):
    layer = {f"blocks.0.attn.{name}": torch.zeros(0, 0, 1, 1) for name in ("piece_attn.conv.weight", "qkv.weight")}
    state = {"pos_embed": torch.zeros(1, 196, 192), "head.weight": torch.zeros(10, 192)} | layer
    assert convert(state | {"patch_embed.proj.weight": torch.zeros(192, 3, 0, 0)}) is None
    assert "without mhla.config" in capsys.readouterr().out
