"""Other runtimes: found by name, asked for by a command, compared with onnxruntime, refused in one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.cli.main import main
from edge_client.cli.options import RUNTIMES as NAMES
from edge_client.inference import runtimes
from edge_client.inference.runtimes import RUNTIMES, RuntimeSession, difference, run_elsewhere
from edge_server.cli.main import main as server_main
from schemas.errors import ConfigError
from tests.edge_client.inference.test_onnx_model import write_model

SHAPE = (1, 1, 3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tier-1.onnx")


def test_the_commands_name_every_runtime_of_the_table() -> None:
    assert NAMES.split(", ") == [*RUNTIMES]


def test_a_missing_runtime_is_one_line_with_what_installs_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = replace(RUNTIMES["ncnn"], module="no_such_runtime")
    monkeypatch.setitem(RUNTIMES, "ncnn", missing)
    with (
        pytest.raises(ConfigError, match="ncnn is not installed: pip install ncnn pnnx"),
        run_elsewhere("ncnn", model, SHAPE),
    ):
        pass


def test_an_unknown_runtime_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown runtime .openvina..*openvino"):
        runtimes.find_runtime("openvina")


def test_eight_bits_are_refused_where_they_are_computed_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(b"...DequantizeLinear...")
    here = replace(RUNTIMES["opencv"], module="numpy")
    with pytest.raises(
        ConfigError, match="8-bit integers, which OpenCV does not compute rightly: take the export"
    ):
        runtimes.convert_model(here, path, SHAPE, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_differences_are_relative_to_outputs_above_one() -> None:
    assert difference(np.float32([[0.5]]), np.float32([[0.25]])) == 0.25
    assert difference(np.float32([[11.0]]), np.float32([[10.0]])) == pytest.approx(0.1)
    assert difference(np.float32([[np.nan]]), np.float32([[1.0]])) == float("inf")
    assert difference(np.ones((1, 2), np.float32), np.ones((2, 2), np.float32)) == float("inf")


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime under another name, whose answers are a little off."""

    def load(path: Path) -> runtimes.Run:
        run = runtimes.RUNTIMES["onnxruntime"].load(path)
        return lambda inputs: [outputs + np.float32(2e-5) for outputs in run(inputs)]

    monkeypatch.setitem(RUNTIMES, "opencv", replace(RUNTIMES["opencv"], module="numpy", load=load))


def test_infer_runs_elsewhere_and_says_how_far_it_is_off(
    other: None, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "given.npy", np.ones((3, *SHAPE), np.float32))
    assert main(["infer", str(model), str(tmp_path / "given.npy"), "--runtime", "opencv"]) == 0
    assert "note: opencv and onnxruntime are 2e-05 apart" in capsys.readouterr().err


def test_export_writes_what_the_runtime_takes_and_compares_it(
    other: None, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["models", "export", str(model), "--for", "opencv", "--out", str(tmp_path / "out")]
    assert server_main(words) == 0
    assert "e-05" in capsys.readouterr().out
    assert (tmp_path / "out" / "tier-1.onnx").read_bytes() == model.read_bytes()
    assert server_main([*words, "--out", str(model)]) == 2
    assert "tier-1.onnx: the folder cannot be made: File exists" in capsys.readouterr().err


def test_export_writes_nothing_where_the_answers_differ(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(
        RUNTIMES["opencv"],
        module="numpy",
        load=lambda path: lambda inputs: [np.ones((len(inputs), 3), np.float32)],
    )
    monkeypatch.setitem(RUNTIMES, "opencv", wrong)
    words = ["models", "export", str(model), "--for", "opencv", "--out", str(tmp_path / "out")]
    assert server_main(words) == 1
    assert "apart, at most 0.0001 is allowed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_a_runtime_raises_is_one_line(model: Path) -> None:
    def fail(inputs: np.ndarray) -> list[np.ndarray]:
        raise RuntimeError("no kernel\nfor this")

    session = RuntimeSession(RUNTIMES["mnn"], fail, None, model)
    with pytest.raises(ConfigError, match=r"MNN does not read tier-1\.onnx: no kernel for this"):
        session.run(None, {"input": np.ones((1, *SHAPE), np.float32)})
