#!/usr/bin/env bash
# Guess: detections that equal the boxes of a COCO file exported from Label Studio have an average precision of 1.
# What happens: the exporter numbers annotations from 0, and pycocotools marks a detection without a match by the number 0 as
# well: whoever finds the first box of the file has a false alarm and a missed object. With one box the average precision
# is 0, with three 0.44; with the same file numbered from 1 it is 1. The file says nothing of it, nor does pycocotools.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet label-studio-sdk==2.1.2 pycocotools==2.0.11
cat > try.py <<'PYTHON'
import contextlib
import io
import json
import pathlib
from importlib.metadata import version

from label_studio_sdk.converter import Converter
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

LABELS = """<View><Image name="image" value="$image"/><RectangleLabels name="label" toName="image">
<Label value="car"/></RectangleLabels></View>"""


def export(boxes: int) -> dict:
    """The COCO file that Label Studio's converter writes of one picture with some cars side by side."""
    size = {"original_width": 100, "original_height": 100}
    region = {"type": "rectanglelabels", "from_name": "label", "to_name": "image", **size}
    place = {"y": 10, "width": 15, "height": 15, "rotation": 0, "rectanglelabels": ["car"]}
    result = [region | {"id": f"r{n}", "value": place | {"x": 20 * n}} for n in range(boxes)]
    task = {"id": 1, "data": {"image": "a.png"}, "annotations": [{"id": 1, "completed_by": 1, "result": result}]}
    pathlib.Path("tasks.json").write_text(json.dumps([task]))
    Converter(LABELS, ".", download_resources=False).convert_to_coco("tasks.json", "out", is_dir=False)
    return json.loads(pathlib.Path("out/result.json").read_text())


def precision(truth: dict) -> float:
    """COCO's AP of detections that are the annotations themselves."""
    found = [each | {"score": 1 - n / 10} for n, each in enumerate(truth["annotations"])]
    pathlib.Path("truth.json").write_text(json.dumps(truth))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO("truth.json")
        scorer = COCOeval(coco, coco.loadRes(found), "bbox")
        scorer.evaluate(), scorer.accumulate(), scorer.summarize()
    return round(float(scorer.stats[0]), 3)


print("label-studio-sdk", version("label-studio-sdk"), "pycocotools", version("pycocotools"))
seen = {}
for boxes in (1, 3):
    truth = export(boxes)
    ids = [each["id"] for each in truth["annotations"]]
    shifted = truth | {"annotations": [each | {"id": each["id"] + 1} for each in truth["annotations"]]}
    seen[boxes] = precision(truth), precision(shifted)
    print(f"annotations {ids}: AP {seen[boxes][0]}; numbered from 1: AP {seen[boxes][1]}")
    assert ids == list(range(boxes))
assert seen == {1: (0.0, 1.0), 3: (0.442, 1.0)}
PYTHON
venv/bin/python try.py
# Seen: annotations [0]: AP 0.0; numbered from 1: AP 1.0; annotations [0, 1, 2]: AP 0.442; numbered from 1: AP 1.0
