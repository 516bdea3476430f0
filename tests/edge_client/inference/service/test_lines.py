"""`edge-client infer MODEL -`: one answer per line of standard input."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.cli.main import main
from tests.edge_client.inference.test_onnx_model import write_model


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


def infer(
    model: Path,
    lines: list[str],
    *words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, list[str]]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    code = main(["infer", str(model), "-", *words])
    return code, capsys.readouterr().out.splitlines()


def test_each_line_is_answered_under_its_own_id(model_path, tmp_path, monkeypatch, capsys):
    file = io.BytesIO()
    Image.new("L", (3, 1)).save(file, "PNG")
    (tmp_path / "a.png").write_bytes(file.getvalue())
    np.save(tmp_path / "b.npy", np.eye(3).reshape(3, 1, 1, 3))
    lines = [
        '{"pixels": [[0, 9, 0]], "id": "front"}',
        "",
        json.dumps({"image": base64.b64encode(file.getvalue()).decode(), "top": 3}),
        json.dumps({"file": str(tmp_path / "a.png"), "id": 5}),
        json.dumps({"file": str(tmp_path / "b.npy")}),
    ]
    code, out = infer(model_path, lines, "--format", "json", monkeypatch=monkeypatch, capsys=capsys)
    answers = [json.loads(line) for line in out]
    assert code == 0
    # A line without an id is identified by its number; the empty line is number 2.
    assert [answer["id"] for answer in answers] == ["front", "3", "5", "5"]
    assert answers[0]["results"][0]["top"][0]["name"] == "bee"
    assert [len(answer["results"][0]["top"]) for answer in answers] == [1, 3, 1, 1]
    assert [result["top"][0]["name"] for result in answers[3]["results"]] == ["ant", "bee", "cat"]


def test_a_bad_line_fails_alone_and_sets_the_exit_code(model_path, tmp_path, monkeypatch, capsys):
    lines = [
        "garbage",
        '{"file": "no.png", "id": "x"}',
        '{"file": "no.png", "pixels": []}',
        '{"pixels": [[1, 2]]}',
        '{"pixels": [[0, 0, 9]]}',
    ]
    code, out = infer(model_path, lines, "--top", "2", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert out[0].startswith("1  error: not valid JSON")
    assert out[1:4] == [
        "x  error: cannot read no.png: No such file or directory",
        "3  error: with 'file' only 'top' and 'id' are allowed",
        "4  error: the model takes images of 1x1x3, got 1x2",
    ]
    assert out[4] == "5  cat 100.0%  ant 0.0%"


def test_standard_input_cannot_be_combined_with_files(model_path, monkeypatch, capsys):
    assert main(["infer", str(model_path), "-", "a.png"]) == 2
    assert "stands alone" in capsys.readouterr().err
