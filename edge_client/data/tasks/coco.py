"""Average precisions as COCO counts them, by `faster-coco-eval`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edge_client.data.tasks.learning_task import Array

ALL_SIZES = {"areaRng": [[0, 1e10]], "areaRngLbl": ["all"]}


def precisions(said: Sequence[Array], labels: Array, classes: int, overlaps_from: Array) -> Array:
    """The average precision [C, T] of boxes said [K, 6] of N pictures with labels [N, M, 5], at each IoU [T].

    NaN for a class without boxes.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    truths = [_row(place, box) for place, own in enumerate(labels) for box in own if box[0] >= 0]
    answers = [{**_row(place, box), "score": float(box[-1])} for place, own in enumerate(said) for box in own]
    known = COCO(
        {
            "images": [{"id": place} for place in range(len(labels))],
            "categories": [{"id": number, "name": str(number)} for number in range(classes)],
            # To COCO a box of the number 0 is none.
            "annotations": [{**each, "id": n} for n, each in enumerate(truths, 1)],
        }
    )
    judge = COCOeval_faster(known, known.loadRes(answers), iouType="bbox")
    vars(judge.params).update(ALL_SIZES, iouThrs=overlaps_from)
    judge.evaluate()
    judge.accumulate()
    found = np.asarray(judge.eval["precision"])[:, :, :, 0, -1].mean(1).T
    return np.where(found < 0, np.nan, found)


def _row(picture: int, box: Array) -> dict[str, Any]:
    left, top, right, bottom = map(float, box[1:5])
    sides = right - left, bottom - top
    return {
        "image_id": picture,
        "category_id": int(box[0]),
        "bbox": [left, top, *sides],
        "area": sides[0] * sides[1],
        "iscrowd": 0,
    }
