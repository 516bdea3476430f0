"""The table of runtimes is that of the results, in which an answer that is off is named."""

import numpy as np
import pytest

from edge_client.inference.runtimes import RUNTIMES, TOLERANCE
from tests.runtimes.__main__ import TABLE, parse, read_results
from tests.runtimes.environments import ENVIRONMENTS, TITLES
from tests.runtimes.files import DETECTOR, NETWORKS
from tests.runtimes.measure import common_boxes
from tests.runtimes.page import page_of

REFUSED = {("litert", "cnn-group-2")}
"""What `onnx2tf` converts wrongly, with 32 channels of 32 by 32 pixels. `models export` refuses it."""


def test_the_page_has_every_network_and_runtime() -> None:
    results = read_results()
    assert {each.runtime for each in ENVIRONMENTS.values()} == {*RUNTIMES}
    assert {*results} == {*TITLES}
    assert {file.rpartition("-")[0] for rows in results.values() for file in rows} == {*NETWORKS}
    assert TABLE.read_text() == page_of(results)


def test_all_environments_are_measured_unless_some_are_named() -> None:
    assert parse([]).environments == [*TITLES]
    assert parse(["opencv-4", "--networks", DETECTOR]).environments == ["opencv-4"]
    with pytest.raises(SystemExit):
        parse(["opencv-3"])


def test_every_other_answer_is_that_of_onnxruntime() -> None:
    rows = {(name, file): row for name, rows in read_results().items() for file, row in rows.items()}
    assert {place for place, row in rows.items() if not max(row["differences"]) <= TOLERANCE} == REFUSED


def test_boxes_in_common_have_their_place_score_class_and_picture() -> None:
    boxes = np.float32([[1, 2, 30, 40], [5, 6, 70, 80], [1, 2, 30, 40]])
    scores, classes, pictures = np.float32([0.9, 0.8, 0.8]), np.array([0, 1, 1]), np.array([0, 0, 1])
    wanted = [np.zeros((2, 8), np.float32), boxes, scores, classes, pictures]
    swapped = [wanted[0], *(values[[2, 1, 0]] for values in wanted[1:])]
    assert common_boxes(swapped, wanted) == [3, 3]
    for place, number, same in ((1, 1.4, 3), (1, 1.6, 2), (2, 0.9002, 2), (3, 1, 2), (4, 1, 2)):
        other = [values.copy() for values in wanted]
        other[place].flat[0] = number
        assert common_boxes(other, wanted) == [same, 3]
    assert common_boxes([wanted[0], *(values[:2] for values in wanted[1:])], wanted) == [2, 3]


def test_the_boxes_of_a_detector_are_in_common_where_the_runtime_reads_them() -> None:
    others = {name for name, each in ENVIRONMENTS.items() if not RUNTIMES[each.runtime].reads_boxes}
    files = [(name, file, row) for name, rows in read_results().items() for file, row in rows.items()]
    found = [(name, *row.get("boxes", (0, 0))) for name, file, row in files if file.startswith(DETECTOR)]
    assert found
    for name, same, every in found:
        # Rounding decides of boxes whose overlap or place in the order is at a limit.
        assert every - same <= every // 5000
        assert (every > 0) == (name not in others)
