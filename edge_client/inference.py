"""Serve an exported network with onnxruntime, numpy and Pillow: what a board that only infers installs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import ValidationError

from edge_client.data.labelled import Inputs, Labels, Pixels, preprocess
from edge_client.trust import TrustedKey, check_model
from schemas.errors import ConfigError
from schemas.manifest import Manifest
from schemas.values import Preprocessing

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Ranked:
    """One answer: class index, its name, its probability."""

    index: int
    name: str
    probability: float


@dataclass(frozen=True)
class ReadImage:
    """Raw pixels [C, H, W] of an image file, and what had to be done to it, if anything."""

    pixels: Pixels
    note: str = ""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A network ready to serve; everything about its use comes from the file's own metadata.

    `signed` is what the trusted key says of it, where one was named.
    """

    path: Path
    session: Any
    input_shape: tuple[int, ...]
    preprocessing: Preprocessing
    provenance: Mapping[str, str]
    signed: Manifest | None = None

    def logits(self, images: Pixels) -> Inputs:
        """Outputs before softmax [N, classes] of raw images [N, C, H, W]; `ConfigError` for other shapes."""
        if images.shape[1:] != self.input_shape:
            raise ConfigError(
                f"{self.path.name} takes images of {_shape(self.input_shape)}, got {_shape(images.shape[1:])}"
            )
        return self.run(preprocess(images, self.preprocessing))

    def run(self, inputs: Inputs) -> Inputs:
        """Outputs [N, classes] for inputs [N, C, H, W] that are preprocessed already."""
        outputs: Inputs = self.session.run(None, {self.session.get_inputs()[0].name: inputs})[0]
        return outputs

    def predict(self, images: Pixels, *, batch_size: int = 256) -> Inputs:
        """Class probabilities [N, classes] for raw images [N, C, H, W]; rows sum to 1."""
        cuts = range(batch_size, len(images), batch_size)
        scores = np.concatenate([self.logits(part) for part in np.split(images, cuts)])
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Inputs = scores / scores.sum(axis=1, keepdims=True)
        return probabilities

    def classify(self, images: Pixels, *, top: int = 1) -> list[tuple[Ranked, ...]]:
        """The `top` most probable classes of each raw image [N, C, H, W], best first."""
        return [self.rank(row, top=top) for row in self.predict(images)]

    def rank(self, probabilities: Inputs, *, top: int = 1) -> tuple[Ranked, ...]:
        """The `top` entries of one row of probabilities [classes], best first."""
        order = np.argsort(-probabilities, kind="stable")[:top]
        return tuple(
            Ranked(int(index), self.class_name(int(index)), float(probabilities[index])) for index in order
        )

    def class_name(self, index: int) -> str:
        """The name of a class, or its number where the file names none."""
        names = self.preprocessing.class_names
        return names[index] if index < len(names) else str(index)

    def accuracy(self, images: Pixels, labels: Labels) -> float | None:
        """Share of raw images [N, C, H, W] whose most probable class is their label [N]; None for none."""
        if len(images) == 0:
            return None
        return float((self.predict(images).argmax(axis=1) == labels).mean())


def load_model(
    path: Path,
    *,
    threads: int | None = None,
    trust: TrustedKey | None = None,
    exported_by: str | None = None,
) -> LoadedModel:
    """Load an ONNX classifier, using at most `threads` threads; raises `ConfigError` for any other file.

    With `trust` it must be one that this key vouches for, and with `exported_by` one of that maker (see
    `edge_client.trust.check_model`): the very bytes that are checked are those that are run.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    signed = None if trust is None else check_model(path, data, trust, exported_by=exported_by)
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise ConfigError(
            f"{path} is not an ONNX model that onnxruntime can load: {_reason(error)}"
        ) from error
    return _describe(path, session, signed)


def _describe(path: Path, session: Any, signed: Manifest | None) -> LoadedModel:
    metadata: dict[str, str] = session.get_modelmeta().custom_metadata_map
    try:
        shape = (
            json.loads(metadata["input.shape"])
            if "input.shape" in metadata
            else session.get_inputs()[0].shape[1:]
        )
        input_shape = tuple(shape)
        if not input_shape or not all(isinstance(size, int) and size > 0 for size in input_shape):
            raise ValueError(f"input shape {list(input_shape)} is not fixed")
        preprocessing = Preprocessing.model_validate(
            json.loads(metadata.get("preprocessing", "{}"))
            | {"class_names": json.loads(metadata.get("class_names", "[]"))}
        )
    except (ValueError, TypeError, IndexError, ValidationError) as error:
        raise ConfigError(f"{path} does not say how to use it: {_reason(error)}") from error
    provenance = {key[3:]: value for key, value in sorted(metadata.items()) if key.startswith("fl.")}
    return LoadedModel(path, session, input_shape, preprocessing, provenance, signed)


def read_image(path: Path, input_shape: tuple[int, ...], *, scale: float = 255.0) -> ReadImage:
    """Read an image file as the model's raw pixels: grey or colour as it wants, resized if need be.

    `input_shape` is [C, H, W]; pixels run from 0 to `scale`, the preprocessing's. `ConfigError` otherwise.
    """
    if len(input_shape) != 3 or input_shape[0] not in _MODES:
        raise ConfigError(f"{path}: the model takes {_shape(input_shape)}, which is no image")
    channels, height, width = input_shape
    try:
        with Image.open(path) as file:
            picture = ImageOps.exif_transpose(file).convert(_MODES[channels])
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise ConfigError(f"cannot read image {path}: {_reason(error)}") from error
    note = ""
    if picture.size != (width, height):
        note = f"resized from {picture.width}x{picture.height} to {width}x{height}"
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture).reshape(height, width, channels).transpose(2, 0, 1)
    if scale != 255.0:
        pixels = pixels.astype(np.float32) * np.float32(scale / 255.0)
    return ReadImage(np.ascontiguousarray(pixels), note)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in shape)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
