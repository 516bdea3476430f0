"""`infer` of folders whose sub-folders are classes, some of which the model may not know."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.cli.main import main
from edge_client.inference.onnx_model import Frame, LoadedModel, load_model
from edge_client.inference.queries import draw_boxes, read_input
from edge_client.inference.service.requests import read_request
from schemas.values import Resizing
from tests.edge_client.data.pictures.box_samples import BOXES, BROKEN, source_of, write_broken, write_pictures
from tests.edge_client.inference.test_onnx_model import write_model
from tests.edge_client.inference.test_recordings import LENGTH, RATE, make_model, write_any

SHAPE = (3, 64, 64)


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


def test_labels_of_another_task_are_refused_with_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"input.shape": json.dumps(SHAPE), "class_names": '["cat", "dog"]'}
    model = write_model(tmp_path / "model.onnx", shape=SHAPE, metadata=metadata)
    write_pictures("voc", tmp_path / "photos")
    assert main(["infer", str(model), f"voc:{tmp_path / 'photos'}"]) == 2
    why = "model.onnx is of the task 'classification', and the labels are boxes in pictures"
    remedy = f"for answers alone name {tmp_path / 'photos'}"
    assert f"{why}: {remedy}\n" in capsys.readouterr().err
    assert main(["infer", str(model), str(tmp_path / "photos")]) == 0
    (tmp_path / "room.csv").write_text("a,b,c,y\n1,2,3,fox\n")
    model = write_model(tmp_path / "rows.onnx", shape=(3,), metadata={"class_names": '["cat", "dog"]'})
    assert main(["infer", str(model), f"csv:{tmp_path / 'room.csv'}?label=y"]) == 2
    shown = capsys.readouterr().err
    assert "'fox' is not a class of rows.onnx" in shown
    assert shown.endswith(": for answers alone leave label=y out\n")


def test_a_detector_measures_nothing_in_folders_named_like_its_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "photos" / name / "1.png")
    named = read_input(tmp_path / "photos", detector(tmp_path))
    assert (named.labels, len(named.names)) == (None, 2)


def detector(folder: Path) -> LoadedModel:
    """What takes pictures of 64x64 pixels."""
    metadata = {
        "input.shape": json.dumps(SHAPE),
        "class_names": '["dog", "cat"]',
        "task": "detection",
        "preprocessing": json.dumps({"resizing": Resizing(letterbox=True).model_dump(mode="json")}),
    }
    return load_model(write_model(folder / "model.onnx", shape=SHAPE, metadata=metadata))


@pytest.mark.parametrize("kind", ["yolo", "voc", "coco"])
def test_boxes_of_a_source_are_in_pixels_of_the_model(kind: str, tmp_path: Path) -> None:
    """Pictures of 60x40 are magnified by 64 / 60."""
    write_pictures(kind, tmp_path / "photos")
    found = read_input(Path(f"{kind}:{source_of(kind, tmp_path / 'photos')}"), detector(tmp_path))
    assert found.images.shape == (3, *SHAPE)
    assert not found.images[:, :, 44:].any()
    assert found.labels is not None
    for number, *corners in BOXES["a"]:
        own = found.labels[0][found.labels[0, :, 0] == 1 - number][0]
        np.testing.assert_allclose(own[1:], np.multiply(corners, 64 / 60), atol=0.01)


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_of_boxes_end_infer_with_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, model = write_broken(kind, tmp_path / "photos"), detector(tmp_path).path
    assert main(["infer", str(model), f"{kind}:{source_of(kind, tmp_path / 'photos')}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("kind", ["yolo", "voc", "coco"])
def test_answers_for_a_source_name_files_and_are_in_their_pixels(kind: str, tmp_path: Path) -> None:
    """Pictures of 60x40, shrunk to 30x20 as they are read, and magnified to 64x43."""
    write_pictures(kind, tmp_path / "photos")
    source, model = source_of(kind, tmp_path / "photos"), detector(tmp_path)
    found = read_input(Path(f"{kind}:{source}?side=30"), model)
    assert sorted(Path(name).name for name in found.names) == ["a.jpg", "b.jpg", "c.jpg"]
    assert all(Path(name).is_file() for name in found.names)
    answer = np.array([[0, 0, 0, 64, 32, 0.5]])
    corners = {model.result(answer, frame=frame)["boxes"][0]["corners"] for frame in found.frames}
    assert corners == {(0, 0, 60, 30)}


def test_answers_of_a_detector_are_in_pixels_of_the_picture(tmp_path: Path) -> None:
    """A picture of 1600x800, which is shrunk to 640x320 before it is brought to 64x64."""
    model, photo = detector(tmp_path), tmp_path / "photo.png"
    Image.fromarray(np.full((800, 1600, 3), 90, np.uint8)).save(photo)
    (frame,) = read_input(photo, model).frames
    request = read_request(photo.read_bytes(), model)
    assert frame == request.frame == Frame((800, 1600), 64 / 1600)
    assert request.images[0, :, :32].min() == 90
    assert not request.images[0, :, 32:].any()
    answer = np.array([[1, 2, 4, 8, 16, 0.5], [-1, 0, 0, 0, 0, 0]])
    (box,) = model.result(answer, frame=frame)["boxes"]
    assert box == {"index": 1, "name": "cat", "score": 0.5, "corners": (50, 100, 200, 400)}


def test_boxes_lie_inside_the_picture(tmp_path: Path) -> None:
    """A picture of 1600x800 fills the upper half of the input of 64x64."""
    model, frame = detector(tmp_path), Frame((800, 1600), 64 / 1600)
    over_the_edges, in_the_black, left_of_it = (-4, -8, 70, 48), (10, 32, 20, 40), (-9, 2, -1, 20)
    answer = np.array([[0, *corners, 0.5] for corners in (over_the_edges, in_the_black, left_of_it)])
    assert [box.corners for box in model.boxes(answer, frame)] == [(0, 0, 1600, 800)]
    assert [box.corners for box in model.boxes(answer)] == [(0, 0, 64, 48), in_the_black]
    drawn = Image.open(io.BytesIO(draw_boxes(np.zeros(SHAPE), 255, model.boxes(answer, frame), frame)))
    times = drawn.width // 64
    assert drawn.crop((0, 0, 64 * times, 32 * times)).getbbox() == (0, 0, 64 * times, 32 * times)
    assert drawn.crop((0, 32 * times + 1, 64 * times, 64 * times)).getbbox() is None
