"""Small examples of every learning task."""

import numpy as np

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.tasks.labels import in_task

FEATURES = 6


def examples(task: str, count: int = 40, seed: int = 0) -> LabelledData:
    """Rows of six numbers whose labels follow from the first two; `task` is a name in the registry."""
    random = np.random.default_rng(seed)
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
