"""Makes the variants of an export, compares them and keeps one of them.

onnx is imported only where variants are made; without it the export is kept.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_client.data.dataset import LabelledData, sample
from edge_client.inference import model_slots, onnx_model
from edge_client.inference.benchmark import latencies_ms
from edge_client.inference.quantization.selection import Measured, VariantChoice, VariantSettings, choose
from edge_client.storage.atomic_files import write_synced
from edge_client.system.libraries import is_installed
from schemas.values import Variant

log = logging.getLogger(__name__)

SECONDS = 0.4  # for timing all variants together


@dataclass(frozen=True)
class Tried:
    """The variant that replaced the export, and the measured export itself."""

    choice: VariantChoice
    sha256: str
    parent: str | None
    exported: Measured


def keep_best(
    path: Path,
    variants: VariantSettings,
    *,
    calibration: LabelledData,
    held_out: LabelledData,
    seconds: float = SECONDS,
) -> Tried:
    """Replace the export at `path` by its best variant; accuracies are measured on `held_out`.

    The export then stays beside it (`export_path`).
    """
    data = path.read_bytes()
    files: dict[Variant, bytes] = {"fp32": data, **_make_variants(data, path, variants, calibration)}
    models = {variant: onnx_model.load_model(path, threads=1, data=made) for variant, made in files.items()}
    times = latencies_ms(list(models.values()), seconds=seconds)
    figures = {
        name: model.measure_examples(held_out.images, held_out.labels) for name, model in models.items()
    }
    measured = {
        variant: Measured(variant, len(files[variant]), figures[variant], time)
        for variant, time in zip(models, times, strict=True)
    }
    exported, task = measured.pop("fp32"), models["fp32"].task
    choice = choose(exported, list(measured.values()), max_loss=variants.max_loss, task=task)
    kept = files[choice.kept.variant]
    if kept is not data:
        write_synced(model_slots.export_path(path), data)
        write_synced(path, kept)
    log.info("%s is kept: %s", choice.kept.variant, choice.why)
    parent = None if kept is data else hashlib.sha256(data).hexdigest()
    return Tried(choice, hashlib.sha256(kept).hexdigest(), parent, exported)


def note_of(tried: Tried, *, version: str, data: LabelledData) -> model_slots.ServedModel:
    """The slot's note on the kept file, whose accuracy was measured on `data`."""
    kept = tried.choice.kept
    return model_slots.ServedModel(
        version=version,
        digest=tried.sha256,
        variant=kept.variant,
        parent=tried.parent,
        accuracy=kept.accuracy,
        metrics=kept.metrics,
        examples=len(data),
        latency_ms=kept.latency_ms,
        class_names=data.preprocessing.class_names,
        why=tried.choice.why[:500],
    )


def _make_variants(
    data: bytes, path: Path, variants: VariantSettings, calibration: LabelledData
) -> dict[Variant, bytes]:
    """The files of the other variants; a variant that cannot be made is left out."""
    if not variants.others:
        return {}
    if not is_installed("onnx"):
        log.warning("%s not tried: the onnx package is not installed", " and ".join(variants.others))
        return {}
    # Imported here: it imports onnx.
    from edge_client.inference.quantization.quantize import CALIBRATION_EXAMPLES, half, quantise_model

    model = onnx_model.load_model(path, threads=1, data=data)
    examples = sample(calibration, CALIBRATION_EXAMPLES).images
    makers: dict[Variant, Callable[[Mapping[str, str]], bytes]] = {
        "fp16": lambda noted: half(data, noted),
        "int8": lambda noted: quantise_model(data, model.feed(examples), noted),
    }
    parent = hashlib.sha256(data).hexdigest()
    made: dict[Variant, bytes] = {}
    for variant in variants.others:
        if variant == "int8" and len(calibration) == 0:
            log.warning("int8 is not tried: there are no examples to calibrate on")
            continue
        try:
            made[variant] = makers[variant]({**model.metadata, "fl.variant": variant, "fl.parent": parent})
        except Exception as error:  # the quantiser's are of any kind
            log.warning("%s is not tried: %s: %s", variant, type(error).__name__, str(error)[:200])
    return made
