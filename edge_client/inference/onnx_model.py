"""Runs an exported network with onnxruntime and numpy alone."""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from edge_client.data.dataset import Inputs, LabelledData, Labels, Pixels, in_units, preprocess
from edge_client.data.shapes import fit_data, fit_images, in_words, say_other_scale
from edge_client.data.tasks.learning_task import Answers, LearningTask
from edge_client.data.tasks.metrics import naive_forecasts
from edge_client.data.tasks.registry import CLASSIFICATION, learning_task
from edge_client.inference.export.metadata import SCALING, read_preprocessing
from edge_client.inference.providers.session import GuardedSession, open_session
from edge_client.inference.providers.table import CPU
from edge_client.security.trusted_key import TrustedKey, check_model
from edge_client.system.process_memory import is_shortage, trim_heap
from schemas.errors import ConfigError, EdgeError, format_count
from schemas.security.manifest import Manifest
from schemas.values import Preprocessing

BATCH = 16  # examples; 256 take sixteen times the memory, and as long


@dataclass(frozen=True)
class Ranked:
    """One class of an answer, with its index, name and probability."""

    index: int
    name: str
    probability: float


@dataclass(frozen=True)
class Box:
    """An object in a picture: its class, how sure that is, from 0 to 1, and x1, y1, x2, y2 in pixels."""

    index: int
    name: str
    score: float
    corners: tuple[float, float, float, float]


@dataclass(frozen=True)
class Frame:
    """A picture's height and width in pixels, and by what it was magnified into the model's upper left."""

    size: tuple[int, ...]
    zoom: float = 1.0

    def cut(self, corners: Inputs) -> Inputs:
        """Corners [K, 4] in the model's input as pixels of the picture, cut at its edges."""
        return np.asarray(np.clip(corners / self.zoom, 0, np.tile(self.size[::-1], 2)))


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A network ready to serve, described by the file's `metadata`; `signed` is its verified manifest."""

    path: Path
    session: Any
    input_shape: tuple[int, ...]
    preprocessing: Preprocessing
    metadata: Mapping[str, str]
    signed: Manifest | None = None

    @property
    def provenance(self) -> dict[str, str]:
        """The origin of the file: its metadata under the prefix `fl.`."""
        return {key[3:]: value for key, value in sorted(self.metadata.items()) if key.startswith("fl.")}

    @property
    def provider(self) -> str:
        """The name of the provider that runs it now."""
        return self.session.provider if isinstance(self.session, GuardedSession) else CPU.name

    @property
    def examples(self) -> str:
        """What the model takes, in messages."""
        return "images" if len(self.input_shape) == 3 else "examples"

    def logits(self, images: Pixels) -> Inputs:
        """Outputs [N, L], before softmax, of raw images [N, C, H, W]; `ConfigError` for other shapes."""
        return self.run(self.feed(images))

    @property
    def scales(self) -> bool:
        """Whether the file takes raw examples; one of earlier days takes preprocessed ones."""
        return SCALING in self.metadata

    def feed(self, images: Pixels) -> Inputs:
        """What the file takes of raw images [N, C, H, W]; `ConfigError` for other shapes."""
        return self._fit(images).astype(np.float32) if self.scales else self.inputs(images)

    def inputs(self, images: Pixels) -> Inputs:
        """Preprocessed inputs of raw images [N, C, H, W]; `ConfigError` for other shapes."""
        return preprocess(self._fit(images), self.preprocessing)

    def _fit(self, images: Pixels) -> Pixels:
        taken = fit_images(images, self.input_shape)
        if taken is None:
            raise ConfigError(
                f"{self.path.name} takes {self.examples} of {in_words(self.input_shape)}, "
                f"got {in_words(images.shape[1:])}"
            )
        return taken

    def fit(self, data: LabelledData) -> LabelledData:
        """The examples in the shape and with the columns that the model takes; `ConfigError` for others."""
        say_other_scale(data, self.preprocessing)
        return fit_data(data, self.input_shape, self.preprocessing)

    def run(self, inputs: Inputs) -> Inputs:
        """Outputs [N, classes] for what the file takes [N, C, H, W]: see `feed`."""
        outputs: Inputs = self.session.run(None, {self.session.get_inputs()[0].name: inputs})[0]
        return outputs

    @property
    def task(self) -> LearningTask:
        return learning_task(self.metadata.get("task", CLASSIFICATION.name))

    def predict(self, images: Pixels, *, batch_size: int = BATCH) -> Inputs:
        """Answers for raw images [N, C, H, W]: of a classifier probabilities [N, classes], which sum to 1."""
        cuts = range(batch_size, len(images), batch_size)
        parts = np.split(images, cuts)
        return np.concatenate([self.task.answers(self._outputs(part), self.inputs(part)) for part in parts])

    def _outputs(self, images: Pixels) -> Inputs:
        """Outputs [N, L] of raw images [N, C, H, W] in the units of the labels.

        `ConfigError` unless L is the task's for these names and this input; a classifier may name fewer.
        """
        outputs, task, names = self.logits(images), self.task, self.preprocessing.class_names
        width, found = self._width, math.prod(outputs.shape[1:])
        is_known = names or not task.has_named_outputs
        if is_known and (found < width if task.exclusive else found != width):
            raise ConfigError(
                f"{self.path.name} gives {format_count(found, 'number')} per example, and the task "
                f"'{task.name}' has {width} for {format_count(len(names), 'name')} and {self.examples} of "
                f"{in_words(self.input_shape)}"
            )
        return in_units(outputs, self.preprocessing) if task.labels == "numbers" else outputs

    @cached_property
    def _width(self) -> int:
        """The numbers per example that its task has for its names and its input."""
        outputs = self.task.outputs(len(self.preprocessing.class_names), self.input_shape)
        return self.task.width(outputs, self.input_shape)

    def rank(self, probabilities: Inputs, *, top: int = 1) -> tuple[Ranked, ...]:
        """The `top` entries of one row of probabilities [classes], best first."""
        order = np.argsort(-probabilities, kind="stable")[:top]
        return tuple(Ranked(n, self.class_name(n), float(probabilities[n])) for n in order.tolist())

    def boxes(self, answer: Inputs, frame: Frame | None = None) -> tuple[Box, ...]:
        """The boxes of an answer [K, 6] of a detector in pixels of a picture, best first.

        Rows of no class, and what lies outside the picture, are left out. Without a frame the picture fills
        the model's input.
        """
        frame = frame or Frame(self.input_shape[1:])
        corners = frame.cut(answer[:, 1:5])
        kept = (answer[:, 0] >= 0) & (corners[:, :2] < corners[:, 2:]).all(1)
        rows = zip(answer[kept].tolist(), corners[kept].tolist(), strict=True)
        return tuple(Box(int(n), self.class_name(int(n)), score, (*own,)) for (n, *_, score), own in rows)

    def result(self, answer: Inputs, *, top: int = 1, frame: Frame | None = None) -> dict[str, Any]:
        """One answer for programs: the `top` classes, boxes, or outputs by name and if they are unusual."""
        if self.task.labels == "boxes":
            return {"boxes": [asdict(box) for box in self.boxes(answer, frame)]}
        if self.task.is_ranked:
            return {"top": [asdict(entry) for entry in self.rank(answer, top=top)]}
        named = [
            self.class_name(place) if self.task.has_named_outputs else "score" for place in range(len(answer))
        ]
        outputs = [{"name": n, "value": float(v)} for n, v in zip(named, answer, strict=True)]
        threshold = self.preprocessing.threshold
        unusual = {} if threshold is None else {"unusual": bool(answer[0] > threshold)}
        return {"outputs": outputs, **unusual}

    def class_name(self, index: int) -> str:
        """The name of a class, or its number if the file names none."""
        names = self.preprocessing.class_names
        return names[index] if index < len(names) else str(index)

    def accuracy(self, images: Pixels, labels: Labels) -> float | None:
        """Share of raw images [N, C, H, W] with the right class by labels [N]; None without images."""
        return self.measure_examples(images, labels).get("accuracy")

    def measure_examples(self, images: Pixels, labels: Labels) -> dict[str, float]:
        """The figures of the model's task on raw images [N, C, H, W] with labels; none without images."""
        return self.measured_on([self.answers(images, labels)] if len(images) else [])

    def measured_on(self, parts: Sequence[Answers]) -> dict[str, float]:
        """The figures of the model's task on all parts together."""
        return self.task.measure_answers(Answers.join(parts)) if parts else {}

    def answers(self, images: Pixels, labels: Labels) -> Answers:
        """The outputs for raw images [N, C, H, W], at least one, and what they should be."""
        cuts = range(BATCH, len(images), BATCH)
        outputs = np.concatenate([self._outputs(part) for part in np.split(images, cuts)])
        targets, about = self.task.targets(self.inputs(images), labels), self.preprocessing
        if not self.task.references:
            return Answers(outputs, targets, labels)
        columns = [column.name for column in about.columns]
        return Answers(outputs, targets, labels, naive_forecasts(images, labels, about.class_names, columns))


def load_model(
    path: Path,
    *,
    threads: int | None = None,
    trust: TrustedKey | None = None,
    exported_by: str | None = None,
    data: bytes | None = None,
) -> LoadedModel:
    """Load an ONNX model on the CPU with at most `threads` threads; raises `ConfigError` for any other file.

    `edge_client.inference.providers.loading` loads it on the fastest provider.
    With `trust` the model must be signed by that key, and with `exported_by` be from that exporter (see
    `edge_client.security.trusted_key.check_model`); the verified bytes are those that run. `data` are the
    file's bytes if the caller has read them.
    """
    if data is None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    signed = None if trust is None else check_model(path, data, trust, exported_by=exported_by)
    try:
        session = open_session(data, threads=threads)
    except Exception as error:  # onnxruntime's share no other base class
        why = reason_of(error)
        raise ConfigError(f"{path} is not an ONNX model that onnxruntime can load: {why}") from error
    del data
    trim_heap()
    return _describe(path, session, signed)


@contextlib.contextmanager
def said_in_one_line(path: Path) -> Iterator[None]:
    """Turn what goes wrong while the model at `path` runs into a `ConfigError`."""
    try:
        yield
    except EdgeError:
        raise
    except Exception as error:  # onnxruntime's share no other base class
        shortage = "needs more memory than this machine has free"
        why = shortage if is_shortage(error) else "cannot be run"
        raise ConfigError(f"{path} {why}: {reason_of(error)}") from error


def _describe(path: Path, session: Any, signed: Manifest | None) -> LoadedModel:
    metadata: dict[str, str] = session.get_modelmeta().custom_metadata_map
    try:
        stated = metadata.get("input.shape")
        input_shape = tuple(session.get_inputs()[0].shape[1:] if stated is None else json.loads(stated))
        if not input_shape or not all(isinstance(size, int) and size > 0 for size in input_shape):
            raise ValueError(f"input shape {list(input_shape)} is not fixed")
        preprocessing = read_preprocessing(metadata)
    except (ValueError, TypeError, IndexError, ValidationError) as error:
        raise ConfigError(f"{path} does not say how to use it: {reason_of(error)}") from error
    return LoadedModel(path, session, input_shape, preprocessing, metadata, signed)


def reason_of(error: Exception) -> str:
    """An error's message on one line, at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__
