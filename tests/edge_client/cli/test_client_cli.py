"""The command line: exit codes, one-line errors, both formats, quick start."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.cli.commands import infer
from edge_client.cli.main import main
from schemas.errors import EdgeError
from tests.edge_client.inference.test_onnx_model import ROOT, write_model


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


def test_infer_prints_a_table(model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "one.npy", np.array([[[0, 0, 100]]], np.uint8))
    assert main(["infer", str(model_path), str(tmp_path / "one.npy")]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["input", "class"]
    assert row.split() == [f"{tmp_path / 'one.npy'}[0]", "cat", "100.0%"]


def test_infer_reports_accuracy_and_resizing(
    model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("L", (6, 2)).save(tmp_path / "a.png")
    images = np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3)
    np.savez(tmp_path / "set.npz", x_train=images, y_train=[0, 0, 0], x_test=images, y_test=[0, 1, 2])
    assert main(["infer", str(model_path), str(tmp_path / "a.png"), str(tmp_path / "set.npz")]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "accuracy 100.00% on 3 labelled images"
    assert captured.err == f"note: {tmp_path / 'a.png'}: resized from 6x2 to 3x1\n"


def test_infer_accepts_images_without_labels(
    model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "set.npz", images=np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3))
    assert main(["infer", str(model_path), str(tmp_path / "set.npz"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (len(document["results"]), document["accuracy"]) == (3, None)


def test_bench_prints_a_line_per_thread_count(model_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(model_path), "--threads", "2", "--seconds", "0.02"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["threads", "1", "2"]


@pytest.mark.parametrize("arguments", [["--help"], ["infer", "--help"], ["bench", "--help"]])
def test_help_shows_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "examples:\n  edge-client " in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["infr"],
        ["infer"],
        ["infer", "m.onnx"],
        ["bench", "m.onnx", "--threads", "0"],
        ["bench", "m", "--seconds", "x"],
    ],
)
def test_bad_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert re.fullmatch(r"edge-client: .*--help says what there is\n", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["no.png", "no.npy", "no.npz"])
def test_missing_inputs_are_exit_code_2(
    model_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", str(model_path), name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("edge-client: cannot read ")
    assert captured.err.count("\n") == 1


def test_empty_and_misshapen_arrays_are_exit_code_2(
    model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for array, message in (
        (np.zeros((0, 1, 1, 3)), "holds no examples"),
        (np.zeros(3), "takes images of 1x1x3"),
    ):
        np.save(tmp_path / "x.npy", array)
        assert main(["infer", str(model_path), str(tmp_path / "x.npy")]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (EdgeError("broke\ndown"), 1, "edge-client: broke\nedge-client: down\n"),
        (PermissionError(13, "Permission denied"), 1, "edge-client: [Errno 13] Permission denied\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_failures_have_exit_codes(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr(infer, "execute", fail)
    assert main(["infer", "m.onnx", "x.png"]) == code
    assert capsys.readouterr().err == message


def test_the_command_starts_without_importing_its_libraries() -> None:
    program = (
        "import sys, edge_client.cli.main;"
        "print(sorted({'torch', 'numpy', 'onnxruntime', 'pydantic', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"


def test_a_closed_pipe_is_not_a_failure(model_path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "many.npy", np.zeros((5000, 1, 1, 3), np.uint8))
    command = (
        f"{sys.executable} -m edge_client.cli.main infer {model_path} {tmp_path / 'many.npy'} | head -n 1"
    )
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("input")
    assert done.stderr == ""
