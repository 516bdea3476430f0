"""The grid, decoding and figures of detection."""

import numpy as np
import pytest

from edge_client.data.classes import in_classes
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.tasks import coco, detection
from edge_client.data.tasks.labels import with_labels
from edge_client.data.tasks.learning_task import Answers
from edge_client.data.tasks.registry import learning_task
from edge_client.data.validation import checked_labels
from schemas.errors import ConfigError

SHAPE, CLASSES = (3, 64, 96), 3
CELLS = 384 + 96 + 24
NONE = (-1, 0, 0, 0, 0)


def outputs_of(*pictures: list[tuple[float, ...]], classes: int = CLASSES) -> np.ndarray:
    """Outputs in which one cell after the other has a box (class, corners, logit of the class)."""
    made = np.full((len(pictures), classes + detection.BOX, CELLS), -20.0, np.float32)
    for outputs, boxes in zip(made, pictures, strict=True):
        for cell, (number, *corners, logit) in enumerate(boxes):
            outputs[int(number), cell], outputs[classes : classes + 4, cell] = logit, corners
            outputs[-1, cell] = 20
    return made.reshape(len(made), -1)


def answers(said: np.ndarray, *labels: list[tuple[float, ...]]) -> Answers:
    most = max(map(len, labels))
    rows = np.array([own + [NONE] * (most - len(own)) for own in labels], np.float32)
    return Answers(said, np.zeros((len(said), detection.TARGET * CELLS)), rows.reshape(len(labels), most, 5))


def test_cells_lie_on_levels_of_the_strides() -> None:
    centres, strides = detection.cells(SHAPE)
    assert (len(centres), strides.tolist()) == (CELLS, [4] * 384 + [8] * 96 + [16] * 24)
    assert centres[[0, 1, 24, 384, -1]].tolist() == [[2, 2], [6, 2], [2, 6], [4, 4], [88, 56]]


def test_the_best_of_boxes_of_one_class_that_overlap_is_kept_as_their_mean() -> None:
    said = outputs_of(
        [(0, 0, 0, 10, 10, 1.0), (0, 0, 0, 10, 9, 2.0), (1, 0, 0, 10, 10, 0.0), (0, 30, 0, 40, 9, -9)]
    )
    found = detection.decode(said[0].reshape(-1, CELLS))
    # The root of the sigmoid, as the centre-ness is 1; that of -9 is below the least score.
    assert found[:, 0].tolist() == [0, 1]
    # The weights of 10 and 9 are the sigmoids of 1 and 2 times what is shared beyond half of 100 and 90.
    larger, smaller = 0.7310586 * (90 - 50), 0.8807971 * (90 - 45)
    lower = (larger * 10 + smaller * 9) / (larger + smaller)
    np.testing.assert_allclose(found[:, 1:5], [[0, 0, 10, lower], [0, 0, 10, 10]], atol=1e-6)
    np.testing.assert_allclose(found[:, 5], [0.938508, 0.707107], atol=1e-5)
    apart = detection.decode(said[0].reshape(-1, CELLS), overlap=0.95)
    np.testing.assert_allclose(apart[:, 1:5], [[0, 0, 10, 9], [0, 0, 10, 10], [0, 0, 10, 10]])
    at_threshold = detection.decode(said[0].reshape(-1, CELLS), overlap=0.9 - 1e-6)
    np.testing.assert_allclose(at_threshold[0, 1:5], [0, 0, 10, 9], atol=1e-4)
    assert len(detection.decode(said[0].reshape(-1, CELLS), most=1)) == 1
    without_area = outputs_of([(0, 5, 5, 5, 9, 3.0)])
    assert detection.decode(without_area[0].reshape(-1, CELLS))[0, 1:5].tolist() == [5, 5, 5, 9]


def test_users_get_a_fixed_number_of_rows() -> None:
    said = outputs_of([(2, 1, 2, 11, 12, 30.0)], [])
    rows = detection.boxes_of(said, np.zeros((2, *SHAPE)))
    assert rows.shape == (2, detection.MAX_BOXES, 6)
    np.testing.assert_allclose(rows[0, 0], [2, 1, 2, 11, 12, 1], atol=1e-6)
    assert (rows[0, 1:, 0] == -1).all()
    assert (rows[1, :, 0] == -1).all()


def test_overlap_is_intersection_over_union() -> None:
    boxes = np.array([[0, 0, 4, 4], [2, 2, 6, 6], [5, 5, 5, 9]], np.float64)
    np.testing.assert_allclose(detection.overlaps(boxes, boxes), [[1, 1 / 7, 0], [1 / 7, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize("counted_by_coco", [False, True])
def test_average_precision_worked_by_hand(counted_by_coco: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of class 0 a true box, a false one, a true one: precisions 1, 1/2, 2/3 at recalls 1/2, 1/2, 1.

    The precision at recalls up to 0.5 is 1 (51 of 101), beyond them 2/3. Class 1 is missed, class 2 absent.
    """
    if counted_by_coco:
        pytest.importorskip("faster_coco_eval", reason="pip install faster-coco-eval")
    monkeypatch.setattr(detection, "is_installed", lambda package: counted_by_coco)
    said = outputs_of([(0, 0, 0, 10, 10, 3.0), (0, 50, 0, 60, 10, 2.0), (0, 20, 0, 30, 10, 1.0)])
    found = answers(said, [(0, 0, 0, 10, 10), (0, 20, 0, 30, 10), (1, 0, 0, 5, 5)])
    precision = (51 + 50 * 2 / 3) / 101
    np.testing.assert_allclose(detection.class_precisions(found), [precision, 0, np.nan])
    assert detection.map50(found) == pytest.approx(precision / 2)
    assert detection.mean_precision(found) == pytest.approx(precision / 2)
    assert detection.box_counts(found).tolist() == [[2, 2], [1, 0], [0, 0]]
    # Two true, one false, one missed.
    assert detection.picture_errors(found).tolist() == [0.5]


def test_a_label_is_found_once_and_pictures_without_boxes_count() -> None:
    twice = outputs_of([(0, 0, 0, 10, 10, 3.0), (0, 0, 4, 10, 14, 2.0)], [(0, 0, 0, 9, 9, 4.0)], [])
    found = answers(twice, [(0, 0, 0, 10, 10)], [], [])
    np.testing.assert_allclose(detection.class_precisions(found)[0], 0.5)
    assert detection.picture_errors(found).tolist() == [0.5, 1.0, 0.0]
    assert detection.map50(answers(twice[1:], [], [])) is None


def test_precisions_are_those_of_coco() -> None:
    """Of random boxes near the labels, in pictures of which some have none."""
    pytest.importorskip("faster_coco_eval", reason="pip install faster-coco-eval")
    random = np.random.default_rng(7)
    labels, said = np.tile(np.float32(NONE), (40, 9, 1)), list[np.ndarray]()
    for own in labels:
        count = random.integers(0, 10)
        corners = random.uniform(0, 60, (count, 2)).round(2)
        own[:count] = np.column_stack(
            [
                random.integers(0, CLASSES, count),
                corners,
                corners + random.uniform(12, 30, (count, 2)).round(2),
            ]
        )
        near = np.repeat(own[:count], 2, 0)
        near[:, 1:] += random.normal(0, 2, near[:, 1:].shape)
        near[:, 0] = np.where(
            random.random(len(near)) < 0.2, random.integers(0, CLASSES, len(near)), near[:, 0]
        )
        rows = np.column_stack([near, random.random(len(near))])
        said.append(rows[np.argsort(-rows[:, -1])])
    found = detection.matches(said, labels, CLASSES)
    theirs = coco.precisions(said, labels, CLASSES, detection.OVERLAPS)
    np.testing.assert_allclose([each.precisions for each in found], theirs, atol=1e-6)


def random_pictures(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels [N, 9, 5], and outputs that are near most of them."""
    random = np.random.default_rng(7)
    labels, said = np.tile(np.float32(NONE), (count, 9, 1)), list[list[tuple[float, ...]]]()
    for own in labels:
        boxes = random.integers(0, 10)
        corners = random.uniform(0, 60, (boxes, 2))
        sides = random.uniform(12, 30, (boxes, 2))
        own[:boxes] = np.column_stack([random.integers(0, CLASSES, boxes), corners, corners + sides])
        near = np.repeat(own[:boxes], 2, 0)
        near[:, 1:] += random.normal(0, 2, near[:, 1:].shape)
        said.append(
            [(*row, logit) for row, logit in zip(near.tolist(), random.normal(0, 2, len(near)), strict=True)]
        )
    return outputs_of(*said), labels


def test_counts_of_devices_add_up_to_the_figure_of_all_pictures() -> None:
    """But for the order within a bin of scores; an earlier version counts for the first figure alone."""
    said, labels = random_pictures(60)
    targets = np.zeros((60, detection.TARGET * CELLS))
    parts = [
        Answers(said[part], targets[part], labels[part]) for part in (slice(3), slice(3, 10), slice(10, 60))
    ]
    counts = [detection.score_counts(part) for part in parts]
    assert {each.shape for each in counts} == {(CLASSES, detection.COUNTED_AT_ALL)}
    assert sum(int(each[:, 0].sum()) for each in counts) == int((labels[:, :, 0] >= 0).sum())
    at_half, at_all = metrics = learning_task("detection").metrics
    earlier = [each[:, : detection.COUNTED].tolist() for each in counts]
    for metric, error in zip(metrics, (0.005, 0.01), strict=True):
        whole = metric.of(Answers(said, targets, labels))
        assert metric.pool_counts([each.tolist() for each in counts]) == pytest.approx(whole, abs=error)
        assert metric.pool_counts([counts[0].tolist(), ()]) is None
        assert metric.pool_counts([]) is None
    assert at_half.pool_counts(earlier) == at_half.pool_counts([each.tolist() for each in counts])
    assert at_all.pool_counts(earlier) is None
    assert detection.mean_of_counts(np.zeros((CLASSES, detection.COUNTED))) is None


def boxes(*rows: tuple[float, ...], names: tuple[str, ...] = ()) -> LabelledData:
    labels = np.array(rows, np.float32).reshape(len(rows), -1, 5)
    return make_labelled_data(np.zeros((len(rows), *SHAPE), np.uint8), labels, class_names=names)


def test_classes_of_boxes_are_matched_by_name_and_a_row_without_stays_so() -> None:
    data = boxes((0, 1, 1, 5, 5, 1, 2, 2, 9, 9), (1, 3, 3, 4, 4, *NONE), names=("cat", "dog"))
    taken = in_classes(data, ("bird", "dog", "cat"))
    assert taken.labels[:, :, 0].tolist() == [[2, 1], [1, -1]]
    assert (taken.labels[:, :, 1:] == data.labels[:, :, 1:]).all()
    with pytest.raises(ConfigError, match="unknown class 'dog'"):
        in_classes(data, ("cat",))


def test_pictures_are_split_by_the_class_of_most_boxes() -> None:
    data = boxes((0, *[1] * 4, 1, *[1] * 4, 1, *[1] * 4), (*NONE,) * 3, (1, *[1] * 4, 0, *[1] * 4, *NONE))
    assert data.class_names == ("0", "1")
    assert data.strata.tolist() == [1, 2, 0]
    assert data.only_class is None


def test_boxes_and_other_labels_are_refused_by_each_others_tasks() -> None:
    data, classes = boxes((0, 1, 1, 5, 5)), make_labelled_data(np.zeros((2, 3)), np.array([0, 1]))
    with pytest.raises(ConfigError, match=r'the labels are boxes.*task = "detection"'):
        with_labels(data, "classes")
    with pytest.raises(ConfigError, match=r"detection takes boxes.*yolo:FOLDER"):
        with_labels(classes, "boxes")
    assert with_labels(data, "boxes") is data


@pytest.mark.parametrize(
    "row", [(0, 5, 1, 5, 5), (0, 9, 1, 5, 5), (0.5, 1, 1, 5, 5), (3, 1, 1, 5, 5), (0, 1, 1, 5, float("nan"))]
)
def test_arrays_that_are_no_boxes_are_refused_by_place(row: tuple[float, ...]) -> None:
    labels = np.array([[(0, 1, 1, 5, 5), NONE], [NONE, row]], np.float32)
    with pytest.raises(ConfigError, match=r"labels\[1, 1\] is no box"):
        checked_labels(labels, "labels", images=2, class_names=("a", "b", "c"))
    assert (checked_labels(labels[:1], "labels", images=1) == labels[:1]).all()
