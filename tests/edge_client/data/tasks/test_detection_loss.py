"""Targets and loss of detection against torchvision's FCOS."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from edge_client.data.tasks.detection import BOX, NO_BOX, TARGET, cells
from edge_client.data.tasks.detection_loss import NEAREST, RADIUS, losses, targets
from edge_client.system.torchvision_compat import guard_torchvision

SHAPE, CLASSES = (3, 192, 256), 3
CENTRES, STRIDES = cells(SHAPE)
LEVELS = [48 * 64, 24 * 32, 12 * 16]
PICTURES = np.zeros((1, *SHAPE), np.float32)
NOTHING = (NO_BOX, 0, 0, 0, 0)


def random_boxes(seed: int, count: int = 12) -> np.ndarray:
    """Boxes [1, count, 5] of all sizes, some of which overlap, and a row that is none."""
    random = np.random.default_rng(seed)
    low = random.uniform(0, [200, 150], (count, 2))
    high = np.minimum(low + np.exp(random.uniform(1.5, 5.4, (count, 2))), [256, 192])
    boxes = np.column_stack([random.integers(0, CLASSES, count), low, high])
    return np.concatenate([boxes, [NOTHING]]).astype(np.float32)[None]


def random_outputs(seed: int) -> np.ndarray:
    """Outputs [1, (C + 5) A] with boxes around the cells."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(CLASSES + BOX, len(CENTRES)))
    distances = STRIDES * random.uniform(0.1, 8, (4, len(CENTRES)))
    rows[CLASSES:-1] = np.tile(CENTRES.T, (2, 1)) + distances * [[-1], [-1], [1], [1]]
    return rows.reshape(1, -1).astype(np.float32)


def theirs(outputs: torch.Tensor, boxes: np.ndarray) -> tuple[torch.Tensor, list[int]]:
    """torchvision's loss of one picture, and the box of each cell, -1 for none."""
    guard_torchvision()
    from torchvision.models.detection import _utils, fcos

    # Their boxes reach from 4 to 8 times the size of an anchor.
    scale = NEAREST / 4
    half = scale * STRIDES[:, None] / 2
    anchors = torch.from_numpy(np.concatenate([CENTRES - half, CENTRES + half], 1))
    coder = _utils.BoxLinearCoder(normalize_by_size=True)
    rows = outputs.reshape(CLASSES + BOX, -1)
    given = {
        "cls_logits": rows[:CLASSES].T[None],
        "bbox_regression": coder.encode(anchors, rows[CLASSES:-1].T)[None],
        "bbox_ctrness": rows[-1:].T[None],
    }
    own = torch.from_numpy(boxes[0, boxes[0, :, 0] >= 0])
    truth = [{"boxes": own[:, 1:], "labels": own[:, 0].long()}]
    matched: list[Any] = []

    def compute_loss(*arguments: Any) -> Any:
        matched.extend(arguments[-1])
        return fcos.FCOSHead.compute_loss(SimpleNamespace(box_coder=coder), *arguments)

    model = SimpleNamespace(
        center_sampling_radius=RADIUS / scale, head=SimpleNamespace(compute_loss=compute_loss)
    )
    parts = fcos.FCOS.compute_loss(model, truth, given, [anchors], LEVELS)
    return sum(parts.values()), matched[0].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_cells_say_the_boxes_that_torchvision_assigns_to_them(seed):
    boxes = random_boxes(seed)
    found = targets(PICTURES, boxes).reshape(TARGET, -1)
    _, matched = theirs(torch.from_numpy(random_outputs(seed)), boxes)
    wanted = [NOTHING if place < 0 else boxes[0, place].tolist() for place in matched]
    assert found[:BOX].T.tolist() == [list(row) for row in wanted]
    assert len(set(matched)) > 5


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_and_its_gradient_are_torchvisions(seed):
    boxes, outputs = random_boxes(seed), torch.from_numpy(random_outputs(seed)).requires_grad_()
    wanted, _ = theirs(outputs, boxes)
    (slope,) = torch.autograd.grad(wanted, outputs)
    found = losses(outputs, torch.from_numpy(targets(PICTURES, boxes)), torch)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0)
    torch.testing.assert_close(torch.autograd.grad(found, outputs)[0], slope, rtol=1e-4, atol=1e-7)


def test_numpy_and_torch_compute_the_same_loss_of_each_picture_also_without_boxes():
    labels = np.concatenate([random_boxes(1), random_boxes(2), np.full((1, 13, 5), NOTHING, np.float32)])
    wanted = targets(np.zeros((3, *SHAPE)), labels)
    outputs = np.concatenate([random_outputs(seed) for seed in range(3)])
    by_torch = losses(torch.from_numpy(outputs), torch.from_numpy(wanted), torch)
    np.testing.assert_allclose(losses(outputs, wanted), by_torch.numpy(), rtol=1e-5)
    # Only the focal loss of classes that are not there is left.
    logits = outputs[2].reshape(CLASSES + BOX, -1)[:CLASSES].astype(np.float64)
    share = 1 / (1 + np.exp(-logits))
    assert losses(outputs, wanted)[2] == pytest.approx((0.75 * share**2 * -np.log(1 - share)).sum())


def test_the_cell_in_the_middle_of_a_box_is_its_centre():
    # Cells of 4 pixels have centres at 10, 14, 18 and so on; 1.5 strides are 6 pixels around (14, 18).
    labels = np.array([[[2, 4, 8, 24, 28]]], np.float32)
    found = targets(PICTURES, labels).reshape(TARGET, -1)
    said = np.flatnonzero(found[0] >= 0)
    assert CENTRES[said].tolist() == [[x, y] for y in (14, 18, 22) for x in (10, 14, 18)]
    # Of (18, 14) left, top, right and bottom are 14, 6, 6 and 14; of (14, 18) all are 10.
    assert found[BOX, said[[2, 4]]].tolist() == pytest.approx([6 / 14, 1.0])
