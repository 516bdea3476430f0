"""What a detector learns: the box that each cell of its grids is to say, and the loss of what it says.

Boxes are assigned to cells by place and size alone (FCOS, Tian et al. 2019, section 3.1, with the sampling of
centres of the later arXiv 2006.09214), as torchvision's `fcos` does with anchors of three quarters of its
strides.
Nothing here needs torch.
"""

from types import ModuleType
from typing import Any

import numpy as np

from edge_client.data.tasks.detection import BOX, NO_BOX, STRIDES, TARGET, cells
from edge_client.data.tasks.learning_task import Array

RADIUS = 1.5  # strides around a box's centre in which cells say it
NEAREST, FARTHEST = 3, 6  # strides from a cell to the farthest side of its box
ALPHA = 0.25  # share of the classes that there are in the focal loss (Lin et al. 2017, section 5)
EPSILON = 1e-7


def targets(inputs: Array, labels: Array) -> Array:
    """The targets [N, 6 A] of inputs [N, C, H, W] and boxes [N, M, 5], in rows [6, A].

    They are the class, -1 for none, the corners, and the centre-ness between 0 and 1. A cell inside of
    several boxes says the smallest.
    """
    centres, strides = cells(inputs.shape[1:])
    nearest = np.where(strides > STRIDES[0], NEAREST * strides, 0)
    farthest = np.where(strides < STRIDES[-1], FARTHEST * strides, np.inf)
    found = np.zeros((len(labels), TARGET, len(centres)), np.float32)
    found[:, 0] = NO_BOX
    for own, boxes in zip(found, labels, strict=True):
        boxes = boxes[boxes[:, 0] != NO_BOX]
        low, high = boxes[:, 1:3], boxes[:, 3:]
        away = (
            np.abs(middle[:, None] - grid) for middle, grid in zip((low + high).T / 2, centres.T, strict=True)
        )
        box, cell = np.nonzero(np.maximum(*away) < RADIUS * strides)
        # From each cell to a box [P, 4]: left, top, right, bottom.
        sides = np.concatenate([centres[cell] - low[box], high[box] - centres[cell]], 1)
        farther = sides.max(1)
        fits = (sides.min(1) > 0) & (farther > nearest[cell]) & (farther < farthest[cell])
        by_size = np.flatnonzero(fits)[np.argsort((high - low).prod(1)[box[fits]], kind="stable")]
        places, first = np.unique(cell[by_size], return_index=True)
        own[:BOX, places] = boxes[box[by_size[first]]].T
        own[BOX, places] = _centreness(sides[by_size[first]])
    return found.reshape(len(found), -1)


def _centreness(sides: Array) -> Array:
    """Equation 3 of FCOS for distances [P, 4]: 1 in the middle of a box, 0 at its edge."""
    pairs = sides.reshape(-1, 2, 2)  # left and top, right and bottom
    return np.asarray(np.sqrt((pairs.min(1) / pairs.max(1)).prod(1)))


def losses(outputs: Any, targets: Any, library: ModuleType = np) -> Any:
    """The loss of each example [N], of outputs [N, (C + 5) A], in numpy or torch.

    The focal loss of all classes, and the generalised IoU and the cross-entropy of the centre-ness where
    there are boxes, are sums over cells, divided by the number of cells with a box (FCOS, equation 2).
    """
    count, cells = len(outputs), targets.shape[1] // TARGET
    said, wanted = outputs.reshape(count, -1, cells), targets.reshape(count, TARGET, cells)
    classes = said.shape[1] - BOX
    has_box = library.where(wanted[:, 0] >= 0, 1.0, 0.0)
    flags = library.stack([library.where(wanted[:, 0] == n, 1.0, 0.0) for n in range(classes)], 1)
    found = _focal_loss(said[:, :classes], flags, library).sum(1)
    found = found + has_box * _box_loss(said[:, classes:-1], wanted[:, 1:BOX])
    found = found + has_box * _cross_entropy(said[:, -1], wanted[:, BOX], library)
    return found.sum(1) / has_box.sum(1).clip(1)


def _cross_entropy(logits: Any, flags: Any, library: Any) -> Any:
    # `(x + |x|) / 2` has the same derivative at 0 as what it stands for.
    positive = (logits + abs(logits)) / 2
    return positive - logits * flags + library.log1p(library.exp(-abs(logits)))


def _focal_loss(logits: Any, flags: Any, library: Any) -> Any:
    """Equation 5 of Lin et al. 2017 with a gamma of 2."""
    entropy = _cross_entropy(logits, flags, library)
    share = ALPHA * flags + (1 - ALPHA) * (1 - flags)
    # The entropy is minus the logarithm of the probability of what is.
    return share * (1 - library.exp(-entropy)) ** 2 * entropy


def _box_loss(said: Any, wanted: Any) -> Any:
    """1 - GIoU [N, A] of corners [N, 4, A] (Rezatofighi et al. 2019)."""
    # Smaller and larger numbers so written that steps of torch are drawn without writing in place.
    middles, apart = (said + wanted) / 2, abs(said - wanted) / 2
    smaller, larger = middles - apart, middles + apart
    shared, around = _area(larger[:, :2], smaller[:, 2:]), _area(smaller[:, :2], larger[:, 2:])
    whole = _area(said[:, :2], said[:, 2:]) + _area(wanted[:, :2], wanted[:, 2:]) - shared
    return 1 - shared / (whole + EPSILON) + (around - whole) / (around + EPSILON)


def _area(low: Any, high: Any) -> Any:
    sides = (high - low).clip(0)
    return sides[:, 0] * sides[:, 1]
