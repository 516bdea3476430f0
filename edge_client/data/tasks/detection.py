"""Boxes in pictures: the grid of a one-stage detector, its outputs as boxes, and their average precision.

Labels [N, M, 5] are boxes (class, x1, y1, x2, y2) with corners in pixels of the network's input; class -1 is
none. Outputs [N, (C + 5) A] are, channel by channel, C class logits, four corners and a logit of centre-ness
of A cells (FCOS, Tian et al. 2020, arXiv 2006.09214). Targets [N, 6 A] are class, corners and centre-ness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from edge_client.data.tasks.learning_task import Answers, Array
from edge_client.data.tasks.metrics import mean_defined

STRIDES = (8, 16, 32)  # pixels between the cells of a level
BOX, TARGET = 5, 6  # numbers of a box, and of a cell's target
NO_BOX = -1  # the class of a row that is none
MIN_SCORE, MAX_OVERLAP, MAX_BOXES = 0.05, 0.6, 100  # of boxes that are kept: FCOS's own
SURE = 0.3  # the score from which a box counts as said where one answer is right or wrong
OVERLAPS = np.arange(50, 100, 5) / 100  # IoUs from which COCO takes a box as found
_RECALLS = np.linspace(0, 1, 101)


def cells(shape: tuple[int, ...], strides: Sequence[int] = STRIDES) -> tuple[Array, Array]:
    """The centres x, y [A, 2] and strides [A] of the cells of an input [C, H, W], in pixels.

    Levels come as the strides do, each row by row.
    """
    _, height, width = shape
    centres, own = list[Array](), list[Array]()
    for stride in strides:
        rows, columns = np.mgrid[: height // stride, : width // stride]
        centres.append(stride * (np.stack([columns, rows], -1).reshape(-1, 2) + 0.5))
        own.append(np.full(rows.size, stride))
    return np.concatenate(centres).astype(np.float32), np.concatenate(own).astype(np.float32)


def renumber(labels: Array, numbers: Array) -> Array:
    """Labels [N, M, 5] whose classes have these numbers [C]."""
    classes = np.append(numbers, NO_BOX)[labels[:, :, :1].astype(np.int64)]
    return np.concatenate([classes.astype(labels.dtype), labels[:, :, 1:]], 2)


def by_cell(answers: Answers) -> Array:
    """Outputs as [N, C + 5, A]: targets say how many cells there are."""
    return np.reshape(answers.outputs, (len(answers.outputs), -1, answers.targets.shape[1] // TARGET))


def decode(
    outputs: Array, *, min_score: float = MIN_SCORE, overlap: float = MAX_OVERLAP, most: int = MAX_BOXES
) -> Array:
    """The boxes [K, 6] of one picture's outputs [C + 5, A]: class, corners, score; the best first.

    Scores are roots of class times centre-ness (arXiv 2006.09214, section 3.1). Of boxes of one class that
    overlap by a greater IoU the best is kept.
    """
    logits = outputs.astype(np.float64)
    scores = np.sqrt(_sigmoid(logits[:-BOX]) * _sigmoid(logits[-1]))
    classes, places = np.nonzero(scores > min_score)
    found = np.column_stack([classes, logits[-BOX:-1].T[places], scores[classes, places]])
    found, kept = found[np.argsort(-found[:, -1], kind="stable")], list[Array]()
    while len(found) and len(kept) < most:
        best, found = found[0], found[1:]
        kept.append(best)
        hidden = found[:, 0] == best[0]
        hidden[hidden] = overlaps(found[hidden, 1:5], best[None, 1:5])[:, 0] > overlap
        found = found[~hidden]
    return np.array(kept).reshape(-1, 6)


def _sigmoid(logits: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -logits)))


def overlaps(ours: Array, theirs: Array) -> Array:
    """The IoU [K, M] of boxes [K, 4] and [M, 4] by their corners; 0 of boxes without area."""
    low, high = np.maximum(ours[:, None, :2], theirs[:, :2]), np.minimum(ours[:, None, 2:], theirs[:, 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    whole = _area(ours)[:, None] + _area(theirs) - shared
    return np.asarray(np.divide(shared, whole, out=np.zeros_like(whole), where=whole > 0))


def _area(boxes: Array) -> Array:
    return np.asarray(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(-1))


@dataclass(frozen=True, eq=False)
class Matches:
    """Of one class: the boxes there are, the scores [K] of those said, and whether they are true [K, T].

    T is the number of IoUs from which a box counts as found.
    """

    boxes: int
    scores: Array
    true: Array

    @property
    def precisions(self) -> Array:
        """The average precision [T] at 101 recalls, as COCO has it; NaN without boxes."""
        if not self.boxes:
            return np.full(self.true.shape[1], np.nan)
        order = np.argsort(-self.scores, kind="stable")
        true = np.cumsum(self.true[order], 0)
        recalls, precisions = true / self.boxes, true / np.arange(1, len(order) + 1)[:, None]
        # The best precision at each recall or a higher one.
        best = np.maximum.accumulate(precisions[::-1], 0)[::-1]
        best = np.concatenate([best, np.zeros((1, best.shape[1]))])
        columns = zip(recalls.T, best.T, strict=True)
        return np.array([own[np.searchsorted(r, _RECALLS, side="left")].mean() for r, own in columns])


def matches(
    said: Sequence[Array], labels: Array, classes: int, overlaps_from: Array = OVERLAPS
) -> list[Matches]:
    """The matches of each class in N pictures, of boxes said [K, 6] and labels [N, M, 5].

    The best box first takes the label with which it overlaps most of those that are left (COCO).
    """
    found = list[Matches]()
    for number in range(classes):
        truths = [boxes[boxes[:, 0] == number, 1:] for boxes in labels]
        own = [boxes[boxes[:, 0] == number] for boxes in said]
        true = [_match(boxes, truth, overlaps_from) for boxes, truth in zip(own, truths, strict=True)]
        scores = np.concatenate([boxes[:, -1] for boxes in own])
        found.append(Matches(sum(map(len, truths)), scores, np.concatenate(true)))
    return found


def _match(said: Array, truths: Array, overlaps_from: Array) -> Array:
    """Which boxes [K, 6] of one class and picture, the best first, are true [K, T]."""
    true = np.zeros((len(said), len(overlaps_from)), np.bool_)
    if not truths.size:
        return true
    levels, free = np.arange(len(overlaps_from)), np.ones((len(overlaps_from), len(truths)), np.bool_)
    for place, each in enumerate(overlaps(said[:, 1:5], truths)):
        left = np.where(free, each, -1.0)
        chosen = left.argmax(1)
        true[place] = left[levels, chosen] >= overlaps_from
        free[levels[true[place]], chosen[true[place]]] = False
    return true


_KNOWN: WeakKeyDictionary[Answers, list[Matches]] = WeakKeyDictionary()


def _matches_of(answers: Answers) -> list[Matches]:
    """The matches of each class, found once for all figures."""
    if answers not in _KNOWN:
        outputs = by_cell(answers)
        said = [decode(each) for each in outputs]
        _KNOWN[answers] = matches(said, answers.labels, outputs.shape[1] - BOX)
    return _KNOWN[answers]


def map50(answers: Answers) -> float | None:
    """The mean over classes of the average precision at IoU 0.5."""
    return mean_defined(class_precisions(answers))


def mean_precision(answers: Answers) -> float | None:
    """The mean over classes and IoUs of 0.5 to 0.95, COCO's leading figure."""
    return mean_defined(np.array([each.precisions for each in _matches_of(answers)]))


def class_precisions(answers: Answers) -> Array:
    """The average precision at IoU 0.5 of each class [C]; NaN for a class without boxes."""
    return np.array([each.precisions[0] for each in _matches_of(answers)])


def box_counts(answers: Answers) -> Array:
    """The boxes of each class, and those of them that a sure box finds at IoU 0.5, [C, 2]."""
    return np.array([(each.boxes, each.true[each.scores >= SURE, 0].sum()) for each in _matches_of(answers)])


def picture_errors(answers: Answers) -> Array:
    """The share of wrong boxes of each picture [N]: missed or false ones, by those of both and true ones."""
    outputs = by_cell(answers)
    errors = np.zeros(len(outputs))
    for place, each in enumerate(outputs):
        said = [decode(each, min_score=SURE)]
        found = matches(said, answers.labels[place : place + 1], len(each) - BOX, OVERLAPS[:1])
        true, boxes = sum(int(own.true.sum()) for own in found), sum(own.boxes for own in found)
        every = boxes + len(said[0]) - true
        errors[place] = 1 - true / every if every else 0.0
    return errors


def boxes_of(outputs: Array, inputs: Array) -> Array:
    """The boxes [N, 100, 6] of outputs for inputs [N, C, H, W]: class, corners, score; class -1 is none."""
    found = np.zeros((len(outputs), MAX_BOXES, TARGET))
    found[:, :, 0] = NO_BOX
    by_cells = outputs.reshape(len(outputs), -1, len(cells(inputs.shape[1:])[1]))
    for rows, each in zip(found, by_cells, strict=True):
        boxes = decode(each)
        rows[: len(boxes)] = boxes
    return found
