"""Compare two models in a separate process: `python -m edge_client.agent.rollout.comparison_process`.

Reads a job as JSON from standard input and writes the result as JSON to standard output. A model that crashes
onnxruntime crashes only this process.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.data.dataset import LabelledData, Labels, Pixels, make_labelled_data, sample
from edge_client.data.local import LocalData
from edge_client.data.tasks.detection import renumber
from edge_client.data.tasks.labels import in_task
from edge_client.data.tasks.learning_task import Answers, LearningTask
from edge_client.inference.benchmark import medians_ms
from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.providers.table import ProviderSettings
from edge_client.inference.providers.trial import Use, settle_provider
from edge_client.storage.atomic_files import file_sha256, written_aside
from schemas.errors import ConfigError
from schemas.messages.rollout import Cause
from schemas.values import Preprocessing

CALIBRATION = 100
MAX_BYTES = 32_000_000  # Size limit of the examples, which are copied and read whole by the process

SECONDS = 0.5
MIN_RUNS, MAX_RUNS = 7, 400
LARGER = 1.05  # Of two models' errors for one example that differ by less than this factor, neither is worse


def local_examples(data: LocalData, most: int) -> LabelledData:
    """At most `most` held-out examples, always the same, or training examples if none are held out.

    At least one example if there are any.
    """
    held_out = data.held_out if len(data.held_out) else data.train
    return _sample(held_out, most)


def write_examples(path: Path, data: LocalData, most: int) -> int:
    """Write at most `most` examples, and images for calibration; returns the number of examples."""
    chosen, calibration = local_examples(data, most), _sample(data.train, CALIBRATION)
    with written_aside(path, durable=False) as file:
        np.savez(
            file,
            images=chosen.images,
            labels=chosen.numbers,
            class_names=np.array(chosen.class_names if chosen.named else (), np.str_),
            resizable=chosen.resizable,
            sizes=np.zeros(0, np.int64) if chosen.sizes is None else chosen.sizes,
            preprocessing=chosen.preprocessing.model_dump_json(),
            calibration=calibration.images,
        )
    return len(chosen)


def read_examples(path: Path) -> tuple[LabelledData, Pixels]:
    """The examples, with this device's own classes, and the images for calibration."""
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["class_names"]]
        about = Preprocessing.model_validate_json(str(file["preprocessing"]))
        examples = make_labelled_data(file["images"], file["labels"], class_names=names, preprocessing=about)
        sizes = file["sizes"] if len(file["sizes"]) else None
        return replace(examples, resizable=bool(file["resizable"]), sizes=sizes), file["calibration"]


def _sample(data: LabelledData, most: int) -> LabelledData:
    """At most `most` examples and `MAX_BYTES`, but at least one."""
    if len(data) == 0:
        return data
    fitting = MAX_BYTES // max(1, data.images[:1].nbytes)
    return sample(data, max(1, min(most, fitting)))


def main() -> int:
    """Do the job; a defect of the candidate is a result, not an error."""
    job = json.load(sys.stdin)
    examples, calibration = read_examples(Path(job["examples"]))
    running, candidate, made = _running(job["running"], examples), Path(job["candidate"]), None
    if job["made"] is not None:
        made = write_best_variant(candidate, job, examples, calibration)
    if made is not None:
        candidate = Path(job["made"])
    found = compare_models(candidate, running, examples)
    if job["recorded"] is not None and "objection" not in found:
        record_provider(candidate, job, examples)
    print(json.dumps({**found, "made": made}))
    return 0


def record_provider(path: Path, job: dict[str, Any], examples: LabelledData) -> None:
    """Try what runs the model on this device, and record the choice beside the path of the job."""
    model = load_model(path, threads=1)
    use, beside = Use(examples=model.fit(known_to(model, examples))), Path(job["recorded"])
    settle_provider(path, file_sha256(path), ProviderSettings(tuple(job["providers"])), use, beside=beside)


def write_best_variant(
    path: Path, job: dict[str, Any], examples: LabelledData, calibration: Pixels
) -> tuple[str, str] | None:
    """Write the best variant of the model; None if that is the original file, or if it cannot be loaded."""
    # Imported here: it needs onnx, which a device that serves original files does not.
    from edge_client.inference.quantization.selection import VariantSettings
    from edge_client.inference.quantization.trial import keep_best

    made = Path(job["made"])
    try:
        model = load_model(path, threads=1)
        shutil.copyfile(path, made)
        known = known_to(model, examples)
        unlabelled = np.zeros((len(calibration), *known.labels.shape[1:]), known.labels.dtype)
        unknown = replace(known, images=calibration, labels=unlabelled, sizes=None)
        held_out, seen = (
            replace(model.fit(part), preprocessing=model.preprocessing) for part in (known, unknown)
        )
        variants = VariantSettings(tuple(job["variants"]), job["max_loss"])
        tried = keep_best(made, variants, calibration=seen, held_out=held_out)
    except ConfigError:
        return None
    variant = tried.choice.kept.variant
    return None if variant == "fp32" else (variant, tried.sha256)


def _running(path: str | None, examples: LabelledData) -> LoadedModel | None:
    """The model in use; None if it cannot be run."""
    if path is None:
        return None
    try:
        model = load_model(Path(path), threads=1)
        model.predict(model.fit(examples.subset([0])).images)
    except ConfigError:
        return None
    return model


def compare_models(path: Path, running: LoadedModel | None, examples: LabelledData) -> dict[str, Any]:
    try:
        candidate = load_model(path, threads=1)
    except ConfigError as error:
        return {"objection": [Cause.DAMAGED, str(error)]}
    try:
        known = candidate.fit(known_to(candidate, examples))
        new = candidate.answers(known.images, known.labels)
    except ConfigError as error:
        return {"objection": [Cause.INCOMPATIBLE, str(error)]}
    if not np.isfinite(new.outputs).all():
        return {"objection": [Cause.DAMAGED, "its outputs are not finite"]}
    task = candidate.task
    if running is None or running.task is not task:
        (ms,) = in_turns([candidate], [known.images])
        return {"candidate": _measure_answers(task, new, ms)}
    same = running.fit(examples)
    old = running.answers(same.images, labels_in_use(running, same))
    old_ms, new_ms = in_turns([running, candidate], [same.images, known.images])
    before, after = task.errors(old), task.errors(new)
    return {
        "running": _measure_answers(task, old, old_ms),
        "candidate": _measure_answers(task, new, new_ms),
        "lost": int((after > LARGER * before).sum()),
        "won": int((before > LARGER * after).sum()),
    }


def known_to(model: LoadedModel, examples: LabelledData) -> LabelledData:
    """The examples with labels as a model numbers them; raises `ConfigError` if it cannot learn them."""
    return in_task(examples, model.task.name, model.preprocessing.class_names)


def labels_in_use(model: LoadedModel, examples: LabelledData) -> Labels:
    """The labels for the model in use; a number that it never says for classes that it lacks."""
    names = model.preprocessing.class_names
    if model.task.labels not in ("classes", "boxes") or not names or not examples.named:
        return known_to(model, examples).labels
    lacking = len(names) if examples.has_boxes else -1
    places = [names.index(name) if name in names else lacking for name in examples.class_names]
    numbers = np.array(places, np.int64)
    return renumber(examples.labels, numbers) if examples.has_boxes else numbers[examples.labels]


def in_turns(
    models: Sequence[LoadedModel], images: Sequence[Pixels], *, seconds: float = SECONDS
) -> list[float]:
    """Each model's median milliseconds per image, measured in turns so that other load slows all alike."""
    runs = [partial(model.logits, own[:1]) for model, own in zip(models, images, strict=True)]
    return medians_ms(runs, seconds=seconds, least=MIN_RUNS, most=MAX_RUNS)


def _measure_answers(task: LearningTask, answers: Answers, milliseconds: float) -> dict[str, Any]:
    metrics = task.measure_answers(answers)
    return {
        "examples": len(answers.labels),
        "accuracy": metrics.get("accuracy"),
        "metrics": metrics,
        "latency_ms": milliseconds,
    }


if __name__ == "__main__":
    sys.exit(main())
