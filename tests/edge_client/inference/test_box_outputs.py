"""Boxes as outputs of an exported detector, and drawn."""

import base64
import copy
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

from edge_client.cli.main import main
from edge_client.data.dataset import make_labelled_data
from edge_client.data.shapes import fit_data
from edge_client.data.sources import load_source
from edge_client.data.tasks import detection
from edge_client.data.tasks.labels import in_task
from edge_client.inference.export.onnx import export_onnx
from edge_client.inference.onnx_model import load_model
from edge_client.inference.providers.session import open_on
from edge_client.inference.providers.table import CPU, Provider
from edge_client.inference.runtimes import RUNTIMES, convert_model
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import FileSource
from edge_client.inference.service.predictor import Predictor
from edge_client.models.build import build_model
from edge_client.models.detector import Detector
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.surgery import compact, parameter_count
from edge_client.training.evaluation import evaluate, logits
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec, Preprocessing, Resizing
from tests.edge_client.inference.service.test_http import Running

BCCD = Path(__file__).parents[4] / "shared" / "data" / "bccd"
SHAPE, CLASSES = (1, 64, 96), 3
NAMES = ("cell", "leaf", "stone")
PICTURES = np.random.default_rng(0).integers(0, 255, (4, *SHAPE)).astype(np.uint8)


def make_detector() -> nn.Module:
    """A detector that says many boxes, some of which overlap."""
    torch.manual_seed(0)
    made = Detector(nn.Sequential(nn.Conv2d(1, 8, 8, stride=8), nn.ReLU()), SHAPE, CLASSES).eval()
    with torch.no_grad():
        made.head.classes.weight.normal_(0, 0.5)
        made.head.distances.weight.normal_(0, 0.5)
        made.head.classes.bias.fill_(-1.0)
    return made


def write_detector(module: nn.Module, folder: Path) -> Path:
    written = folder / "model.onnx"
    about = Preprocessing(scale=255.0, class_names=NAMES, resizing=Resizing(letterbox=True))
    noted = {"preprocessing": about, "provenance": {}, "task": "detection"}
    export_onnx(module, written, input_shape=SHAPE, sample=PICTURES, **noted)
    return written


@pytest.fixture(scope="module")
def detector() -> nn.Module:
    return make_detector()


@pytest.fixture(scope="module")
def path(detector: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_detector(detector, tmp_path_factory.mktemp("model"))


def said(
    path: Path, pictures: np.ndarray = PICTURES, row: Provider = CPU, **thresholds: np.ndarray
) -> list[np.ndarray]:
    """The boxes of each picture [K, 6] by the file alone: class, corners, score."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = open_on(row, str(path), options, threads=1)
    names = ["boxes", "scores", "classes", "pictures"]
    given = {"input": pictures.astype(np.float32), **thresholds}
    boxes, scores, classes, places = session.run(names, given)
    assert (np.diff(scores) <= 0).all()
    rows = np.column_stack([classes, boxes, scores])
    return [rows[places == number] for number in range(len(pictures))]


def assert_same_boxes(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    found, wanted = (rows[np.lexsort(rows.round(3).T[::-1])] for rows in (found, wanted))
    assert (found[:, 0] == wanted[:, 0]).all()
    np.testing.assert_allclose(found[:, 1:5], wanted[:, 1:5], atol=0.5)
    np.testing.assert_allclose(found[:, 5], wanted[:, 5], atol=1e-4)


def test_the_file_gives_the_boxes_of_torch(detector: nn.Module, path: Path) -> None:
    outputs = logits(detector, PICTURES.astype(np.float32) / 255).reshape(len(PICTURES), CLASSES + 5, -1)
    every = said(path, max_boxes=np.array([10_000]))
    for found, each in zip(every, outputs, strict=True):
        wanted = detection.decode(each, most=10_000)
        assert len(wanted) > 20
        assert (detection.overlaps(wanted[:, 1:5], wanted[:, 1:5]) > 0.5).sum() > len(wanted)
        assert_same_boxes(found, wanted)


def test_the_detector_of_the_guide_is_cut_learns_and_says_boxes(tmp_path: Path) -> None:
    spec = ModelSpec(name="deploy.examples.own_detector:detector", input_shape=SHAPE, num_classes=CLASSES)
    torch.manual_seed(0)
    channel_map = trace(whole := build_model(spec), SHAPE).channel_map
    half = prefix_spec(group_ratios(entry(spec.name), 0.5, channel_map), channel_map)
    own = compact(whole, half, channel_map)
    assert parameter_count(own) == 8 * (16 + 1) + (CLASSES + 5) * (8 + 1)
    boxes = np.tile([1, 8, 8, 40, 40], (len(PICTURES), 1, 1)).astype(np.float32)
    data = in_task(make_labelled_data(PICTURES, boxes, class_names=NAMES), "detection", ())
    before = evaluate(own, data)
    train(own, data, TrainingPlan(learning_rate=0.01, batch_size=len(PICTURES), local_epochs=1))
    assert evaluate(own, data).loss < before.loss
    outputs = logits(own, PICTURES.astype(np.float32) / 255).reshape(len(PICTURES), CLASSES + 5, -1)
    for found, each in zip(said(write_detector(own, tmp_path)), outputs, strict=True):
        assert len(found) > 20
        assert_same_boxes(found, detection.decode(each))


def test_defaults_of_the_file_are_those_of_decoding(detector: nn.Module, tmp_path: Path) -> None:
    """Of more boxes than a picture has by default, the best are given, of whatever class."""
    many = copy.deepcopy(detector)
    many.steps *= 0.05  # boxes too small to overlap
    outputs = logits(many, PICTURES.astype(np.float32) / 255).reshape(len(PICTURES), CLASSES + 5, -1)
    for found, each in zip(said(write_detector(many, tmp_path)), outputs, strict=True):
        assert len(detection.decode(each, most=10_000)) > 3 * detection.MAX_BOXES
        wanted = detection.decode(each)
        assert len(wanted) == detection.MAX_BOXES
        assert len({*wanted[:, 0]}) == CLASSES
        assert_same_boxes(found, wanted)


@pytest.mark.skipif(not BCCD.is_dir(), reason=f"no data set at {BCCD}")
def test_boxes_in_photos_are_those_of_torch(tmp_path: Path) -> None:
    """The surest boxes in each test picture, down to a gap between scores."""
    photos, shape = load_source(f"voc:{BCCD}?side=320", split="test"), (3, 256, 320)
    about = Preprocessing(class_names=photos.class_names, resizing=Resizing(letterbox=True))
    photos = in_task(fit_data(photos, shape, about), "detection", ())
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 2, stride=2), nn.ReLU())
    module = Detector(trunk, shape, CLASSES)
    plan = TrainingPlan(optimizer="adam", learning_rate=0.003, batch_size=8, local_epochs=4, seed=1)
    train(module, photos.subset(range(32)), plan)
    path = tmp_path / "model.onnx"
    export_onnx(module.eval(), path, input_shape=shape, preprocessing=about, provenance={}, task="detection")
    outputs = logits(module, photos.inputs()).reshape(len(photos), CLASSES + 5, -1)
    assert len(outputs) == 72
    for picture, each in zip(photos.images, outputs, strict=True):
        wanted = detection.decode(each, most=30)
        scores = wanted[:, 5]
        last = 4 + int(np.argmax(scores[4:-1] - scores[5:]))
        least = np.array([scores[last : last + 2].mean()], np.float32)
        (found,) = said(path, picture[None], score_threshold=least)
        assert_same_boxes(found, wanted[: last + 1])


def test_thresholds_are_inputs(path: Path) -> None:
    usual = said(path, max_boxes=np.array([1000]))
    middle = np.float32(np.median(np.concatenate(usual)[:, 5]))
    sure = said(path, score_threshold=np.array([middle]))
    assert 0 < sum(map(len, sure)) < sum(map(len, usual))
    assert all((rows[:, 5] > middle).all() for rows in sure)
    apart = said(path, iou_threshold=np.array([0.0], np.float32), max_boxes=np.array([1000]))
    assert sum(map(len, apart)) < sum(map(len, usual))
    few = said(path, max_boxes=np.array([2], np.int64))
    assert [len(rows) for rows in few] == [2] * len(PICTURES)
    assert [len(rows) for rows in said(path, max_boxes=np.array([0], np.int64))] == [0] * len(PICTURES)


def test_a_runtime_that_does_not_suppress_takes_the_network_alone(path: Path, tmp_path: Path) -> None:
    network, whole = tmp_path / "network.onnx", tmp_path / "whole.onnx"
    convert_model(replace(RUNTIMES["opencv"], module="numpy"), path, SHAPE, network)
    convert_model(RUNTIMES["onnxruntime"], path, SHAPE, whole)
    assert whole.read_bytes() == path.read_bytes()
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    values = (*session.get_inputs(), *session.get_outputs(), *session.get_overridable_initializers())
    assert [value.name for value in values] == ["input", "logits"]
    alone, given = load_model(network), load_model(path)
    assert [value.name for value in given.session.get_outputs()] == ["logits"]
    np.testing.assert_array_equal(alone.logits(PICTURES), given.logits(PICTURES))
    assert alone.metadata == given.metadata
    np.testing.assert_array_equal(alone.predict(PICTURES), given.predict(PICTURES))


@pytest.mark.parametrize("variant", ["fp16", "int8"])
def test_a_variant_gives_boxes_too(path: Path, variant: str, tmp_path: Path) -> None:
    from edge_client.inference.quantization.quantize import half, quantise_model

    model = load_model(path)
    data, noted = path.read_bytes(), dict(model.metadata)
    made = half(data, noted) if variant == "fp16" else quantise_model(data, model.feed(PICTURES), noted)
    smaller = tmp_path / "model.onnx"
    smaller.write_bytes(made)
    assert len(made) < len(data)
    found, wanted = (np.concatenate(said(each)) for each in (smaller, path))
    assert len(found) == pytest.approx(len(wanted), rel=0.1)
    # The best boxes are the same ones.
    best = wanted[np.argsort(-wanted[:, 5])][:20]
    overlaps = detection.overlaps(best[:, 1:5], found[:, 1:5]).max(1)
    assert overlaps.min() > (0.95 if variant == "fp16" else 0.7)
    assert load_model(smaller).task.name == "detection"


def test_an_answer_names_the_classes_and_corners_of_boxes(path: Path) -> None:
    model = load_model(path)
    (first, *_) = model.boxes(model.predict(PICTURES[:1])[0])
    assert first.name == NAMES[first.index]
    assert 0.05 < first.score <= 1
    assert len(first.corners) == 4
    (row,) = [model.result(answer) for answer in model.predict(PICTURES[:1])]
    assert row["boxes"][0] == {
        "index": first.index, "name": first.name, "score": first.score, "corners": first.corners,
    }  # fmt: skip


def test_infer_prints_boxes_and_draws_them(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, picture in enumerate(PICTURES):
        Image.fromarray(picture[0]).save(tmp_path / f"photo{number}.png")
    assert main(["infer", str(path), str(tmp_path), "--draw", str(tmp_path / "found")]) == 0
    said = r"photo0\.png.* (cell|leaf|stone) \d+\.\d% at \d+,\d+-\d+,\d+"
    assert re.search(said, capsys.readouterr().out)
    drawn = sorted((tmp_path / "found").iterdir())
    assert [each.name for each in drawn] == [f"photo{number}.png" for number in range(len(PICTURES))]
    pixels = np.asarray(Image.open(drawn[0]))
    assert pixels.shape == (6 * 64, 6 * 96, 3)
    # The picture was grey, and boxes are in colour.
    assert (pixels[:, :, 0] != pixels[:, :, 1]).any()


def test_infer_measures_a_detector_in_percent(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Boxes that the model itself says are all found."""
    (tmp_path / "classes.txt").write_text("\n".join(NAMES))
    Image.fromarray(PICTURES[0, 0]).save(tmp_path / "photo.png")
    height, width = PICTURES.shape[2:]
    model = load_model(path)
    boxes = model.boxes(model.predict(PICTURES[:1])[0])
    rows = [(box.index, *np.divide(box.corners, (width, height) * 2)) for box in boxes]
    lines = (f"{index} {(x1 + x2) / 2} {(y1 + y2) / 2} {x2 - x1} {y2 - y1}" for index, x1, y1, x2, y2 in rows)
    (tmp_path / "photo.txt").write_text("\n".join(lines))
    assert main(["infer", str(path), f"yolo:{tmp_path}"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"map50 100\.00%, map \d+\.\d{2}% on 1 labelled examples", said)


def test_lines_of_standard_input_are_not_drawn(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", str(path), "-", "--draw", str(tmp_path / "found")]) == 2
    assert "--draw is for files, and - stands for standard input" in capsys.readouterr().err
    assert not (tmp_path / "found").exists()


def test_nothing_is_drawn_if_an_input_is_missing(path: Path, tmp_path: Path) -> None:
    Image.fromarray(PICTURES[0, 0]).save(photo := tmp_path / "photo.png")
    inputs = [str(photo), str(tmp_path / "missing.png")]
    assert main(["infer", str(path), *inputs, "--draw", str(tmp_path / "found")]) == 2
    assert not [*tmp_path.glob("found/*")]


def test_pictures_of_one_name_are_all_drawn(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = [tmp_path / folder / "1.png" for folder in ("hall", "kitchen")]
    for photo, picture in zip(photos, PICTURES[:2], strict=True):
        photo.parent.mkdir()
        Image.fromarray(picture[0]).save(photo)
    inputs = ["infer", str(path), *map(str, photos), "--draw"]
    for _ in range(2):
        assert main([*inputs, str(tmp_path / "found")]) == 0
        assert {each.name for each in (tmp_path / "found").iterdir()} == {"1.png", "1-2.png"}
    assert main([*inputs, str(path)]) == 2
    assert f"--draw {path}: the folder cannot be made" in capsys.readouterr().err


def test_serve_answers_boxes_in_pixels_of_the_picture_and_shows_them(path: Path) -> None:
    """A photo of 192x128 pixels, half as large for the model."""
    Image.fromarray(PICTURES[0, 0]).resize((192, 128)).save(photo := io.BytesIO(), "PNG")
    running = Running(Predictor(FileSource(path), RequestMetrics(), keeps_last=True))
    try:
        assert "Nothing answered yet" in running.ask("GET", "/")[1]
        status, answer = running.post(photo.getvalue())
        page = running.ask("GET", "/")[1]
    finally:
        running.connection.close()
        running.stop()
    assert status == 200
    small = np.asarray(Image.open(photo).resize((96, 64), Image.Resampling.BILINEAR))
    model = load_model(path)
    (wanted,) = (model.boxes(row) for row in model.predict(small[None, None]))
    boxes = answer["results"][0]["boxes"]
    assert [box["name"] for box in boxes] == [box.name for box in wanted]
    corners = [box["corners"] for box in boxes]
    np.testing.assert_allclose(corners, 2 * np.array([box.corners for box in wanted]), rtol=1e-3)
    left, top, right, bottom = map(round, corners[0])
    assert f"<li>{boxes[0]['name']} {boxes[0]['score']:.1%} at {left},{top}-{right},{bottom}</li>" in page
    (drawn,) = re.findall(r'src="data:image/png;base64,([^"]*)"', page)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(drawn))))
    assert pixels.shape == (6 * 64, 6 * 96, 3)
    assert (pixels[:, :, 0] != pixels[:, :, 1]).any()
