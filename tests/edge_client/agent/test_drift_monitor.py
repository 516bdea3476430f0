"""Drift of a device's data, with and without a model in use."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from edge_client.agent.local_source import DriftMonitor
from edge_client.data.changes import marks_of_images
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.drift import ExampleRecord
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from tests.edge_client.agent.rollout.test_comparison import says_box
from tests.edge_client.inference.test_onnx_model import write_model

DIGITS = load_source("digits")


def of_classes(*classes: int) -> LabelledData:
    return DIGITS.subset(np.flatnonzero(np.isin(DIGITS.labels, classes)))


def after(known: LabelledData, fresh: LabelledData) -> tuple[LocalData, ExampleRecord]:
    """The data once `fresh` has followed what the device has trained with; a third is held out."""
    sides: list[LabelledData] = []
    for rest in ((1, 2), (0,)):
        chosen = [
            part.subset(np.flatnonzero(np.isin(np.arange(len(part)) % 3, rest))) for part in (known, fresh)
        ]
        images, labels = (np.concatenate([getattr(p, name) for p in chosen]) for name in ("images", "labels"))
        sides.append(replace(known, images=images, labels=labels))
    train, held_out = (marks_of_images(side.images) for side in sides)
    return LocalData(*sides), ExampleRecord(known=marks_of_images(known.images)).split(train, held_out)


def test_more_of_the_same_raises_no_alarm_and_is_not_tested_twice(tmp_path: Path) -> None:
    even = of_classes(0, 1, 2, 3)
    data, record = after(even.subset(range(0, len(even), 2)), even.subset(range(1, len(even), 2)))
    monitor = DriftMonitor(tmp_path)
    tested = monitor(data, record)
    assert tested is not None
    assert (tested.finding, len(tested.marks)) == (None, len(even) // 2)
    assert monitor(data, record.after_test(tested.marks, tested.finding)) is None


def test_other_classes_raise_an_alarm_about_a_feature(tmp_path: Path) -> None:
    tested = DriftMonitor(tmp_path)(*after(of_classes(1, 7), of_classes(0, 8)))
    assert tested is not None
    assert tested.finding is not None
    assert "channel 0" in tested.finding.statistic
    assert tested.finding.p_value < 1e-6


def test_few_new_examples_wait_for_more(tmp_path: Path) -> None:
    known = of_classes(1, 7)
    assert DriftMonitor(tmp_path)(*after(known, of_classes(0).subset(range(49)))) is None
    assert DriftMonitor(tmp_path)(*after(known.subset(range(20)), of_classes(0, 8))) is None


def test_a_model_in_use_says_what_it_does_not_know(tmp_path: Path) -> None:
    # The network returns its inputs as scores. Labels that no longer follow the largest input leave the
    # features as they are: only the losses show it.
    write_model(tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    images = rng.normal(size=(400, 1, 1, 3)).astype(np.float32)
    labels = images.reshape(400, 3).argmax(1)
    names = ("ant", "bee", "cat")
    known = make_labelled_data(images[:200], labels[:200], class_names=names)
    swapped = make_labelled_data(images[200:], (labels[200:] + 1) % 3, class_names=names)
    with_model = DriftMonitor(tmp_path)(*after(known, swapped))
    assert with_model is not None
    assert with_model.finding is not None
    assert with_model.finding.statistic == "loss"
    without = DriftMonitor(tmp_path / "none")(*after(known, swapped))
    assert without is not None
    assert without.finding is None


def test_a_model_of_other_inputs_is_left_out(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")
    tested = DriftMonitor(tmp_path)(*after(of_classes(1, 2, 7, 9), of_classes(0, 8)))
    assert tested is not None
    assert tested.finding is not None


def test_a_detector_in_use_says_that_boxes_are_elsewhere(tmp_path: Path) -> None:
    # The pictures stay as they are: only the losses show it.
    says_box(tmp_path / "model.onnx", (8, 8, 24, 24))
    pictures = np.random.default_rng(0).integers(0, 255, (400, 1, 64, 64)).astype(np.uint8)
    boxes = np.tile(np.array([0, 8, 8, 24, 24], np.float32), (400, 1, 1))
    found = []
    for moved in (0, 24):
        boxes[200:, :, 1:] = boxes[:200, :, 1:] + moved
        data = make_labelled_data(pictures, boxes, class_names=("cat", "dog"))
        tested = DriftMonitor(tmp_path)(*after(data.subset(range(200)), data.subset(range(200, 400))))
        assert tested is not None
        found.append(tested.finding and tested.finding.statistic)
    assert found == [None, "loss"]
