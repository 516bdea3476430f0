"""A process of its own that runs two models side by side: `python -m edge_client.rollout.measure`.

What it is to do comes as JSON on its input, what it has found goes as JSON to its output. A model that takes
onnxruntime down takes this process along and no other.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.bench import medians_ms
from edge_client.data.labelled import LabelledData, Labels, Pixels, labelled
from edge_client.inference import LoadedModel, load_model
from schemas.errors import ConfigError
from schemas.rollout import Cause

SECONDS = 0.5
LEAST_RUNS, MOST_RUNS = 7, 400


def main() -> int:
    """Measure what the input names; whatever is wrong with the candidate is an answer as well."""
    wanted = json.load(sys.stdin)
    with np.load(wanted["examples"], allow_pickle=False) as file:
        images, labels, calibration = file["images"], file["labels"], file["calibration"]
    running, candidate, made = _running(wanted["running"], images), Path(wanted["candidate"]), None
    if wanted["made"] is not None:
        made = _better(candidate, wanted, labelled(images, labels), calibration)
    if made is not None:
        candidate = Path(wanted["made"])
    print(json.dumps({**_found(candidate, running, images, labels), "made": made}))
    return 0


def _better(
    path: Path, wanted: dict[str, Any], examples: LabelledData, calibration: Pixels
) -> tuple[str, str] | None:
    """Write the form of the model that is best here; None where that is the file as it came.

    A model that cannot even be loaded is for the comparison to tell.
    """
    # Imported here: it needs onnx, and a device that serves files as they come has no use for that.
    from edge_client.variants.choosing import Wish
    from edge_client.variants.trying import keep_best

    made = Path(wanted["made"])
    try:
        preprocessing = load_model(path, threads=1).preprocessing
        shutil.copyfile(path, made)
        held_out = replace(examples, preprocessing=preprocessing)
        wish = Wish(tuple(wanted["variants"]), wanted["max_loss"])
        seen = replace(held_out, images=calibration, labels=np.zeros(len(calibration), np.int64))
        tried = keep_best(made, wish, calibration=seen, held_out=held_out)
    except ConfigError:
        return None
    variant = tried.choice.kept.variant
    return None if variant == "fp32" else (variant, tried.sha256)


def _running(path: str | None, images: Pixels) -> LoadedModel | None:
    """The model in use; one that cannot be used is none to be compared with."""
    if path is None:
        return None
    try:
        model = load_model(Path(path), threads=1)
        model.predict(images[:1])
    except ConfigError:
        return None
    return model


def _found(path: Path, running: LoadedModel | None, images: Pixels, labels: Labels) -> dict[str, Any]:
    try:
        candidate = load_model(path, threads=1)
    except ConfigError as error:
        return {"objection": [Cause.DAMAGED, str(error)]}
    try:
        new = candidate.predict(images)
    except ConfigError as error:
        return {"objection": [Cause.INCOMPATIBLE, str(error)]}
    if not np.isfinite(new).all():
        return {"objection": [Cause.DAMAGED, "it computes what is no number"]}
    right = new.argmax(axis=1) == labels
    if running is None:
        (ms,) = in_turns([candidate], images)
        return {"candidate": _measured(right, ms)}
    before = running.predict(images).argmax(axis=1) == labels
    old_ms, new_ms = in_turns([running, candidate], images)
    return {
        "running": _measured(before, old_ms),
        "candidate": _measured(right, new_ms),
        "lost": int((before & ~right).sum()),
        "won": int((right & ~before).sum()),
    }


def in_turns(models: list[LoadedModel], images: Pixels, *, seconds: float = SECONDS) -> list[float]:
    """The median of each model's milliseconds for one image; whatever else runs here slows all of them."""
    runs = [partial(model.logits, images[:1]) for model in models]
    return medians_ms(runs, seconds=seconds, least=LEAST_RUNS, most=MOST_RUNS)


def _measured(right: Any, milliseconds: float) -> dict[str, Any]:
    return {"examples": len(right), "accuracy": float(right.mean()), "latency_ms": milliseconds}


if __name__ == "__main__":
    sys.exit(main())
