"""What ``python -m mhla.bench`` measures is right before it is fast."""

import json
import sys

import pytest
import torch

from mhla.bench import __main__ as program
from mhla.bench import comparison
from mhla.bench.comparison import Comparison
from mhla.bench.decode import decode
from mhla.bench.shapes import SHAPES, Shape
from mhla.bench.stopwatch import Stopwatch

VIDEO = Shape("small video", (4, 6, 4), (2, 3, 2), 8, (2, 2), (2, 2))


def rows_of(shape, device, impls, *, dtype="f64", normalizer="paper", backward=True):
    device = torch.device(device)
    return Comparison(shape, device, dtype, normalizer, backward).rows(impls, Stopwatch(device), 1e9, 1e-4)


@pytest.mark.parametrize("normalizer", ["none", "paper"])
@pytest.mark.parametrize("shape", [SHAPES["tiny"], SHAPES["tiny-causal"], VIDEO], ids=lambda shape: shape.name)
def test_every_implementation_computes_its_formula(shape, normalizer, device):
    rows = rows_of(shape, device, ["mhla", "composed", "linear", "sdpa"], normalizer=normalizer)
    assert [row["impl"] for row in rows] == ["mhla", "composed", "linear", "sdpa"]
    for row in rows:
        assert row["rel_err"] <= 1e-10, row
        assert 0 < row["ms_p10"] <= row["ms_median"] <= row["ms_p90"]
        assert row["pass"] == "fwd+bwd"
        assert row["floor_ms"] > 0


def test_the_floor_is_every_token_tensor_once():
    (forward,) = rows_of(SHAPES["tiny"], "cpu", ["mhla"], dtype="f32", backward=False)
    (both,) = rows_of(SHAPES["tiny"], "cpu", ["mhla"], dtype="f32")
    tensor_ms = 1e3 * (64 * 2 * 16 * 4) / 1e9
    assert forward["floor_ms"] == pytest.approx(4 * tensor_ms)
    assert both["floor_ms"] == pytest.approx(11 * tensor_ms)


def test_a_peer_that_cannot_run_is_left_out_with_the_reason():
    ours, cudnn = rows_of(SHAPES["tiny"], "cpu", ["mhla", "sdpa-cudnn"], backward=False)
    assert "ms_median" in ours
    assert "backend" in cudnn["left_out"]
    assert "ms_median" not in cudnn


def test_a_wrong_result_of_the_operator_is_not_timed(monkeypatch):
    monkeypatch.setattr(comparison, "composed", lambda q, k, v, *rest: 2 * v)
    (row,) = rows_of(SHAPES["tiny"], "cpu", ["mhla"], backward=False)
    assert "exceeds 1e-10" in row["failed"]
    assert "ms_median" not in row


def test_the_command_writes_rows_and_tables(tmp_path, monkeypatch, capsys):
    target = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["bench", "--device", "cpu", "--quick", "--json", str(target)])
    assert program.main() == 0
    rows = json.loads(target.read_text())
    assert {row["pass"] for row in rows} == {"fwd", "fwd+bwd"}
    assert {row["impl"] for row in rows} == {"mhla", "composed", "linear", "sdpa"}
    assert all(row["us_per_call"] > 0 for row in rows if "ms_median" not in row)
    text = capsys.readouterr().out
    assert "vs best peer" in text
    assert "us per call" in text


def test_a_missing_folder_is_named_before_anything_is_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "--quick", "--json", str(tmp_path / "none" / "rows.json")])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert f"no folder {tmp_path / 'none'}" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["nan", "inf", "-1"])
def test_a_time_that_is_none_is_refused(wrong, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "--quick", f"--min-time={wrong}"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert f"--min-time is {float(wrong)}" in capsys.readouterr().err


def test_decode_reports_every_context():
    rows = decode(torch.device("cpu"), "f32", batch=1, heads=2, dim=8, longest=4096, bandwidth=1e9)
    assert [row["context"] for row in rows] == [1024, 4096]
    assert all(row["us_per_token"] > 0 and row["bytes_per_second"] > 0 for row in rows)
