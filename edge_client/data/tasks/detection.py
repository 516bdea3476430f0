"""Boxes in pictures: the grid of a one-stage detector, its outputs as boxes, and their average precision.

Labels [N, M, 5] are boxes (class, x1, y1, x2, y2) with corners in pixels of the network's input; class -1 is
none. Outputs [N, (C + 5) A] are, channel by channel, C class logits, four corners and a logit of centre-ness
of A cells (FCOS, Tian et al. 2020, arXiv 2006.09214). Targets [N, 6 A] are class, corners and centre-ness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from edge_client.data.tasks import coco
from edge_client.data.tasks.learning_task import Answers, Array
from edge_client.data.tasks.metrics import mean_defined
from edge_client.system.libraries import is_installed

STRIDES = (4, 8, 16)  # pixels between the cells of a level
AT_ONCE = 128  # boxes that are compared with one another at once
BOX, TARGET = 5, 6  # numbers of a box, and of a cell's target
NO_BOX = -1  # the class of a row that is none
MIN_SCORE, MAX_OVERLAP, MAX_BOXES = 0.05, 0.5, 100  # of boxes that are kept, as RetinaNet's
SURE = 0.3  # the score from which a box counts as said where one answer is right or wrong
OVERLAPS = np.arange(50, 100, 5) / 100  # IoUs from which COCO takes a box as found
SCORE_BINS = 31  # of scores between 0 and 1, in which devices count
COUNTED = 1 + 2 * SCORE_BINS  # numbers of a class, at IoU 0.5
COUNTED_AT_ALL = COUNTED + (len(OVERLAPS) - 1) * SCORE_BINS
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
    overlap by a greater IoU the best is kept, with the mean corners of all that overlap it.
    """
    logits = outputs.astype(np.float64)
    corners, weights = logits[-BOX:-1].T, _sigmoid(logits[:-BOX]) * _sigmoid(logits[-1])
    scores = np.sqrt(weights)
    classes, places = np.nonzero(scores > min_score)
    found = np.column_stack([classes, corners[places], scores[classes, places]])
    found = found[np.argsort(-found[:, -1], kind="stable")]
    kept = found[:0]
    for start in range(0, len(found), AT_ONCE):
        if len(kept) >= most:
            break
        block = found[start : start + AT_ONCE]
        block = block[~_hide(kept, block, overlap).any(0)]
        hides, free = _hide(block, block, overlap), np.ones(len(block), np.bool_)
        for place, own in enumerate(hides):
            if free[place]:
                free[place + 1 :] &= ~own[place + 1 :]
        kept = np.concatenate([kept, block[free]])
    kept = kept[:most]
    kept[:, 1:5] = _means(kept, corners, weights, overlap)
    return kept


def _means(kept: Array, corners: Array, weights: Array, overlap: float) -> Array:
    """The corners of kept boxes [K, 6] as the mean of those [A, 4] that overlap them by a greater IoU.

    Weights [C, A] are class times centre-ness (box voting, Gidaris and Komodakis 2015, section 5), times the
    shared area beyond the threshold: they fall to 0 with the overlap (as by He et al. 2019, arXiv 1809.08545,
    section 3.3), so that rounding moves no box.
    """
    own = kept[:, 1:5]
    shared, whole = _areas(own, corners)
    shares = np.maximum(shared - overlap * whole, 0) * weights[kept[:, 0].astype(np.int64)]
    total = shares.sum(1, keepdims=True)
    return np.asarray(np.divide(shares @ corners, total, out=own.copy(), where=total > 0))


def _hide(ours: Array, theirs: Array, overlap: float) -> Array:
    """Which of our boxes [K, 6] are of the class of which of theirs [M, 6], and overlap by more, [K, M]."""
    is_over = overlaps(ours[:, 1:5], theirs[:, 1:5]) > overlap
    return np.asarray(is_over & (ours[:, None, 0] == theirs[:, 0]))


def _sigmoid(logits: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -logits)))


def overlaps(ours: Array, theirs: Array) -> Array:
    """The IoU [K, M] of boxes [K, 4] and [M, 4] by their corners; 0 of boxes without area."""
    shared, whole = _areas(ours, theirs)
    return np.asarray(np.divide(shared, whole, out=np.zeros_like(whole), where=whole > 0))


def _areas(ours: Array, theirs: Array) -> tuple[Array, Array]:
    """The areas [K, M] that boxes [K, 4] and [M, 4] share, and that they cover together."""
    across, down = (
        np.minimum(ours[:, None, high], theirs[:, high]) - np.maximum(ours[:, None, low], theirs[:, low])
        for low, high in ((0, 2), (1, 3))
    )
    shared = np.maximum(across, 0) * np.maximum(down, 0)
    return shared, _area(ours)[:, None] + _area(theirs) - shared


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
        return np.array([_average(*each) for each in zip(recalls.T, precisions.T, strict=True)])


def _average(recalls: Array, precisions: Array) -> float:
    """The mean over 101 recalls of the best of precisions [K] at that recall or a higher one [K]."""
    best = np.append(np.maximum.accumulate(precisions[::-1])[::-1], 0)
    return float(best[np.searchsorted(recalls, _RECALLS, side="left")].mean())


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
    levels, free = np.arange(len(overlaps_from)), np.ones((len(overlaps_from), len(truths)), np.bool_)
    found = overlaps(said[:, 1:5], truths)
    for place in np.flatnonzero((found >= overlaps_from[0]).any(1)):
        left = np.where(free, found[place], -1.0)
        chosen = left.argmax(1)
        true[place] = left[levels, chosen] >= overlaps_from
        free[levels[true[place]], chosen[true[place]]] = False
    return true


_SAID: WeakKeyDictionary[Answers, list[Array]] = WeakKeyDictionary()
_MATCHES: WeakKeyDictionary[Answers, list[Matches]] = WeakKeyDictionary()
_PRECISIONS: WeakKeyDictionary[Answers, Array] = WeakKeyDictionary()
"""Of answers of which several figures are made."""


def _said_in(answers: Answers) -> list[Array]:
    if answers not in _SAID:
        _SAID[answers] = [decode(each) for each in by_cell(answers)]
    return _SAID[answers]


def _matches_of(answers: Answers) -> list[Matches]:
    if answers not in _MATCHES:
        _MATCHES[answers] = matches(_said_in(answers), answers.labels, by_cell(answers).shape[1] - BOX)
    return _MATCHES[answers]


def _precisions_of(answers: Answers) -> Array:
    """The average precisions [C, T], from `faster-coco-eval` where it is installed, as on a server."""
    if answers not in _PRECISIONS:
        if is_installed("faster_coco_eval"):
            classes = by_cell(answers).shape[1] - BOX
            found = coco.precisions(_said_in(answers), answers.labels, classes, OVERLAPS)
        else:
            found = np.array([each.precisions for each in _matches_of(answers)])
        _PRECISIONS[answers] = found
    return _PRECISIONS[answers]


def map50(answers: Answers) -> float | None:
    """The mean over classes of the average precision at IoU 0.5."""
    return mean_defined(class_precisions(answers))


def mean_precision(answers: Answers) -> float | None:
    """The mean over classes and IoUs of 0.5 to 0.95, COCO's leading figure."""
    return mean_defined(_precisions_of(answers))


def class_precisions(answers: Answers) -> Array:
    """The average precision at IoU 0.5 of each class [C]; NaN for a class without boxes."""
    return _precisions_of(answers)[:, 0]


def box_counts(answers: Answers) -> Array:
    """The boxes of each class, and those of them that a sure box finds at IoU 0.5, [C, 2]."""
    return np.array([(each.boxes, each.true[each.scores >= SURE, 0].sum()) for each in _matches_of(answers)])


def score_counts(answers: Answers) -> Array:
    """Of each class the boxes there are, then how many are said in each bin of scores [C, COUNTED_AT_ALL].

    They are the true and the false ones at IoU 0.5, then the true ones at each greater IoU. Counts of several
    devices add up; the average precision of the sum is that of all pictures but for the order within a bin.
    """
    return np.array([_score_counts(each) for each in _matches_of(answers)])


def _score_counts(found: Matches) -> Array:
    place = np.minimum((found.scores * SCORE_BINS).astype(np.int64), SCORE_BINS - 1)
    first, *rest = found.true.T
    parts = (place[chosen] for chosen in (first, ~first, *rest))
    return np.concatenate([[found.boxes], *(np.bincount(part, minlength=SCORE_BINS) for part in parts)])


def mean_of_counts(sums: Array) -> float | None:
    """`map` from sums of `score_counts`, and `map50` from their first `COUNTED` numbers.

    True and false boxes of a bin are evenly mixed.
    """
    found, bins = list[float](), np.arange(SCORE_BINS + 1)
    shares = np.linspace(0, SCORE_BINS, 16 * SCORE_BINS + 1)[1:]
    for boxes, *numbers in sums:
        first, false, *rest = (
            np.interp(shares, bins, np.cumsum([0, *part[::-1]]))
            for part in np.reshape(numbers, (-1, SCORE_BINS))
        )
        said = first + false
        for true in (first, *rest):
            precisions = np.divide(true, said, out=np.zeros(len(shares)), where=said > 0)
            found.append(_average(true / boxes, precisions) if boxes else np.nan)
    return mean_defined(np.array(found))


def picture_errors(answers: Answers) -> Array:
    """The share of wrong boxes of each picture [N]: missed or false ones, by those of both and true ones."""
    errors = list[float]()
    for said, labels in zip(_said_in(answers), answers.labels, strict=True):
        sure, boxes = said[said[:, -1] >= SURE], int((labels[:, 0] != NO_BOX).sum())
        found = matches([sure], labels[None], by_cell(answers).shape[1] - BOX, OVERLAPS[:1])
        true = sum(int(own.true.sum()) for own in found)
        errors.append(1 - true / max(1, boxes + len(sure) - true) if boxes or len(sure) else 0.0)
    return np.array(errors)


def boxes_of(outputs: Array, inputs: Array) -> Array:
    """The boxes [N, 100, 6] of outputs for inputs [N, C, H, W]: class, corners, score; class -1 is none."""
    found = np.zeros((len(outputs), MAX_BOXES, TARGET))
    found[:, :, 0] = NO_BOX
    by_cells = outputs.reshape(len(outputs), -1, len(cells(inputs.shape[1:])[1]))
    for rows, each in zip(found, by_cells, strict=True):
        boxes = decode(each)
        rows[: len(boxes)] = boxes
    return found
