#!/usr/bin/env bash
# Guess: the package mean-average-precision leaves a class out of its mean that has no object in the data, as COCO's evaluation
# does: a device that has seen 2 of 10 classes and found each object has 1.0.
# What happens: such a class counts as 0, the device has 0.2. Of two devices the one that finds half of its objects, of all
# classes, looks better than the one that misses none. Nothing is said, and the precision of each class is a 0 as well.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet mean-average-precision==2024.1.5.0 pandas==3.0.3 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from mean_average_precision import MetricBuilder

BOX = [10, 10, 50, 50]
COCO = {"iou_thresholds": np.arange(0.5, 1, 0.05), "recall_thresholds": np.arange(0, 1.01, 0.01), "mpolicy": "soft"}


def device(objects: list[int], found: list[int]) -> dict:
    """The precision of pictures with one object each, by its class, of which some are found just where they are."""
    metric = MetricBuilder.build_evaluation_metric("map_2d", async_mode=False, num_classes=10)
    for number, kind in enumerate(objects):
        detections = np.array([[*BOX, kind, 0.9]] if number in found else []).reshape(-1, 6)
        metric.add(detections, np.array([[*BOX, kind, 0, 0]]))
    return metric.value(**COCO)


print("mean-average-precision", version("mean-average-precision"))
whole = device(list(range(10)) * 2, list(range(20)))
two = device([0, 1] * 10, list(range(20)))
half = device(list(range(10)) * 2, list(range(10)))
print(f"all of 10 classes found: {whole['mAP']:.2f}, all of 2 classes: {two['mAP']:.2f}, half of 10: {half['mAP']:.2f}")
print("by class:", [round(float(two[0.5][kind]["ap"]), 2) for kind in range(10)])
assert whole["mAP"] > 0.99 and abs(two["mAP"] - 0.2) < 0.01 and half["mAP"] > 2 * two["mAP"]
PYTHON
venv/bin/python try.py
# Seen: all of 10 classes found: 1.00, all of 2 classes: 0.20, half of 10: 0.50
