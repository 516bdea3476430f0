#!/usr/bin/env bash
# Guess: COCOeval of pycocotools takes the number of boxes per picture that it counts (`maxDets`) for all its figures, so that AP
# over all thresholds lies between those at 0.5 and 0.95.
# What happens: the first figure, AP over all thresholds, is always that of 100 boxes; those at 0.5 and 0.75 and by size take the
# largest number asked for. A picture of 200 cells that are all found has an AP of 0.505 beside 1.000 at both thresholds with
# [10, 100, 300], and of -1 with [1, 10, 1000], for 100 is not among them. Nothing is said. faster-coco-eval, which takes its
# place with the same classes, gives 1 both times.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pycocotools==2.0.11 faster-coco-eval==1.8.0 numpy==2.4.6
cat > try.py <<'PYTHON'
from contextlib import redirect_stdout
from importlib.metadata import version
from io import StringIO

import numpy as np
from faster_coco_eval import COCO as FasterCOCO
from faster_coco_eval import COCOeval_faster
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

ABOUT = {"image_id": 1, "category_id": 1, "area": 400, "iscrowd": 0}
CELLS = [ABOUT | {"id": place + 1, "bbox": [50 * (place % 20), 50 * (place // 20), 20, 20]} for place in range(200)]


def figures(truth: object, judge: type, numbers: list[int]) -> np.ndarray:
    """AP over all thresholds, at 0.5 and at 0.75 of boxes that are all where they should be."""
    with redirect_stdout(StringIO()):
        picture, kind = {"id": 1, "width": 1000, "height": 500}, {"id": 1, "name": "cell"}
        truth.dataset = {"info": {}, "images": [picture], "annotations": CELLS, "categories": [kind]}
        truth.createIndex()
        found = [{"image_id": 1, "category_id": 1, "bbox": cell["bbox"], "score": 1 - cell["id"] / 1000} for cell in CELLS]
        run = judge(truth, truth.loadRes(found), "bbox")
        run.params.maxDets = numbers
        run.evaluate()
        run.accumulate()
        run.summarize()
    return np.round(run.stats[:3], 3)


print("pycocotools", version("pycocotools"), "faster-coco-eval", version("faster-coco-eval"))
for numbers, over_all in (([1, 10, 100], 0.505), ([10, 100, 300], 0.505), ([1, 10, 1000], -1)):
    seen, other = figures(COCO(), COCOeval, numbers), figures(FasterCOCO(), COCOeval_faster, numbers)
    print(f"{numbers}: AP, AP50, AP75 by pycocotools {seen.tolist()}, by faster-coco-eval {other.tolist()}")
    assert np.isclose(seen[0], over_all, atol=2e-3) and np.allclose(other, seen[1], atol=2e-3)
    assert np.allclose(seen[1:], 0.505 if max(numbers) == 100 else 1, atol=2e-3)
PYTHON
venv/bin/python try.py
# Seen: [10, 100, 300]: AP, AP50, AP75 by pycocotools [0.505, 1.0, 1.0], by faster-coco-eval [1.0, 1.0, 1.0]
