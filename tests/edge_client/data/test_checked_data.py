"""Invalid data is refused with file, array, value and remedy, and exit code 2."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.cli.main import main
from edge_client.data.sources import load_source
from edge_client.data.validation import MAX_CLASSES, checked_labels
from schemas.errors import ConfigError

IMAGES = np.zeros((4, 1, 2, 2), np.float32)


def with_pixel(value: float, dtype: type = np.float32) -> np.ndarray:
    images = np.zeros((4, 1, 2, 2), dtype)
    images[2, 0, 1, 1] = value
    return images


WRONG = [
    ({"labels": np.array([0.0, np.nan, 1.0, 0.0])}, r"'labels'\[1, 0\] is nan: labels are finite numbers"),
    (
        {"labels": np.eye(4)[:, :3], "class_names": np.array(["a", "b"])},
        r"'labels' has 3 numbers per image and 2 names",
    ),
    ({"labels": np.array([0, 1, -1, 0])}, r"'labels'\[2\] is -1: class numbers start at 0"),
    ({"labels": np.array([0, 10**12, 1, 0])}, r"'labels'\[1\] is 1000000000000: at most 100000 classes"),
    ({"labels": np.array([0, 0, 1, np.inf])}, r"'labels'\[3\] is inf: at most"),
    (
        {"labels": np.array(["cat", "dog", "cat", "cat"])},
        r"'labels'\[0\] is not a number: labels are class numbers.*class_names",
    ),
    (
        {"labels": np.array([0, 1, 2, 0]), "class_names": np.array(["a", "b"])},
        r"'labels'\[2\] is 2: the 2 class names",
    ),
    ({"labels": np.array([0, 1, 0])}, r"'labels' holds 3 labels of 4 images"),
    ({"labels": np.zeros((4, 2, 2))}, r"'labels' has the shape \(4, 2, 2\)"),
    ({"images": with_pixel(np.nan)}, r"'images'\[2\] holds nan: pixels are finite"),
    ({"images": with_pixel(np.inf)}, r"'images'\[2\] holds inf"),
    ({"images": with_pixel(1e300, np.float64)}, r"'images'\[2\] holds 1e\+300"),
    ({"images": np.zeros((0, 1, 2, 2)), "labels": np.zeros(0, np.int64)}, r"'images' is empty"),
    ({"images": np.array(["a", "b", "c", "d"])}, r"'images' holds <U1, not numbers"),
    ({"images": np.zeros(4)}, r"'images' has the shape \(4,\)"),
]


@pytest.mark.parametrize(
    ("arrays", "message"), WRONG, ids=lambda value: value[:24] if isinstance(value, str) else ""
)
def test_an_archive_with_invalid_data_is_refused_by_name(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    path = tmp_path / "co2.npz"
    np.savez(path, **{"images": IMAGES, "labels": np.array([0, 1, 0, 1]), **arrays})
    with pytest.raises(ConfigError, match=rf"co2\.npz: array {message}"):
        load_source(f"npz:{path}")


def text_labels() -> tuple[np.ndarray, list[str]]:
    return IMAGES, ["cat", "dog", "cat", "dog"]


def measured_labels() -> tuple[np.ndarray, list[float]]:
    return IMAGES, [401.5, np.inf, 400.0, 1200.0]


def test_a_function_that_returns_invalid_labels_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"python:.*text_labels: labels\[0\] is not a number"):
        load_source(f"python:{__name__}:text_labels")
    with pytest.raises(ConfigError, match=r"python:.*measured_labels: labels\[1, 0\] is inf"):
        load_source(f"python:{__name__}:measured_labels")


def test_whole_numbers_of_any_type_are_labels() -> None:
    for labels in (np.array([0.0, 2.0]), np.array([[0], [2]]), np.array([0, 2], np.uint64), np.array([0, 2])):
        assert checked_labels(labels, "labels", images=2).tolist() == [0, 2]
    assert checked_labels(np.array([False, True]), "labels", images=2).dtype == np.int64
    assert checked_labels(np.array([MAX_CLASSES - 1]), "labels", images=1).tolist() == [MAX_CLASSES - 1]


def test_measured_numbers_and_rows_of_numbers_are_labels() -> None:
    measured = checked_labels(np.array([400.5, -1.0]), "labels", images=2)
    assert measured.dtype == np.float32
    assert measured.tolist() == [[400.5], [-1.0]]
    assert checked_labels(np.eye(3, dtype=int), "labels", images=3).shape == (3, 3)


def test_the_command_exits_with_2_and_prints_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "co2.npz", images=IMAGES, labels=np.array([0, -1, 0, 1]))
    words = [
        "run",
        "--data",
        f"npz:{tmp_path / 'co2.npz'}",
        "--state-dir",
        str(tmp_path / "state"),
        "--quiet",
    ]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "co2.npz: array 'labels'[1] is -1" in error
