"""Small examples of every learning task."""

import numpy as np

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.tasks.labels import in_task

FEATURES = 6


def examples(task: str, count: int = 40, seed: int = 0) -> LabelledData:
    """Rows of six numbers whose labels follow from the first two; `task` is a name in the registry.

    Of detection they are pictures with a square around the centre of a cell, light or dark by its class.
    """
    random = np.random.default_rng(seed)
    if task == "detection":
        return in_task(_squares(count, random), task, ())
    rows = random.normal(size=(count, FEATURES)).astype(np.float32)
    numbers = np.stack([rows[:, 0] + rows[:, 1], rows[:, 0] - rows[:, 1]], 1)
    labels = {
        "classification": (numbers[:, 0] > 0).astype(np.int64) + (numbers[:, 1] > 0),
        "multi-label": (numbers > 0).astype(np.float32),
        "regression": numbers,
        "forecasting": numbers,
        "anomaly": (np.abs(numbers[:, 0]) > 2).astype(np.int64),
    }[task]
    return in_task(make_labelled_data(rows, labels), task, ())


def _squares(count: int, random: np.random.Generator) -> LabelledData:
    pictures = np.zeros((count, 1, 64, 64), np.float32)
    classes, low = random.integers(0, 2, count), 4 * random.integers(1, 15, (count, 2)) - 1
    for picture, number, (x, y) in zip(pictures[:, 0], classes, low, strict=True):
        picture[y : y + 6, x : x + 6] = 1 - 2 * number
    boxes = np.column_stack([classes, low, low + 6]).astype(np.float32)[:, None]
    return make_labelled_data(pictures, boxes)
