"""`infer` of folders whose sub-folders are classes, some of which the model may not know."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.cli.main import main
from edge_client.inference.onnx_model import load_model
from edge_client.inference.queries import read_input
from tests.edge_client.inference.test_onnx_model import write_model
from tests.edge_client.inference.test_recordings import LENGTH, RATE, make_model, write_any


@pytest.mark.parametrize(("third", "accuracy"), [("dog", True), ("fox", False)])
def test_infer_says_why_it_measures_nothing(
    third: str, accuracy: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = (1, 8, 8)
    metadata = {"input.shape": json.dumps(shape), "class_names": '["cat", "dog"]'}
    path = write_model(tmp_path / "model.onnx", shape=shape, metadata=metadata)
    for name in ("cat", "dog", third):
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "photos" / name / "1.png")
    assert main(["infer", str(path), str(tmp_path / "photos")]) == 0
    shown = capsys.readouterr()
    assert ("accuracy" in shown.out) is accuracy
    remark = "photos: nothing is measured: 'fox' is not a class of model.onnx, which knows 'cat', 'dog'"
    assert (remark in shown.err) is not accuracy
    assert load_model(path).preprocessing.class_names == ("cat", "dog")


def test_recordings_of_an_unknown_class_are_named_too(tmp_path: Path) -> None:
    model = make_model(tmp_path, (1, LENGTH))
    for name in ("cat", "fox"):
        write_any(tmp_path / "sounds" / name / "a.wav", np.zeros(LENGTH), RATE)
    named = read_input(tmp_path / "sounds", model)
    assert named.labels is None
    (note,) = named.notes
    assert "'fox' is not a class of model.onnx" in note
