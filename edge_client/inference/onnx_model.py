"""Runs an exported network with onnxruntime, numpy and Pillow alone."""

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import ValidationError

from edge_client.data.dataset import Inputs, Labels, Pixels, preprocess
from edge_client.data.shapes import MODES, fitted, in_words, resize
from edge_client.security.trusted_key import TrustedKey, check_model
from edge_client.system.process_memory import give_back
from schemas.errors import ConfigError
from schemas.security.manifest import Manifest
from schemas.values import Preprocessing

MAX_PIXELS = 40_000_000


@dataclass(frozen=True)
class Ranked:
    """One class of an answer, with its index, name and probability."""

    index: int
    name: str
    probability: float


@dataclass(frozen=True)
class ReadImage:
    """Raw pixels [C, H, W] of an image file, and a note if it was resized."""

    pixels: Pixels
    note: str = ""


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

    def logits(self, images: Pixels) -> Inputs:
        """Outputs before softmax [N, classes] of raw images [N, C, H, W]; `ConfigError` for other shapes."""
        taken = fitted(images, self.input_shape)
        if taken is None:
            raise ConfigError(
                f"{self.path.name} takes images of {in_words(self.input_shape)}, "
                f"got {in_words(images.shape[1:])}"
            )
        return self.run(preprocess(taken, self.preprocessing))

    def run(self, inputs: Inputs) -> Inputs:
        """Outputs [N, classes] for preprocessed inputs [N, C, H, W]."""
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
        """The name of a class, or its number if the file names none."""
        names = self.preprocessing.class_names
        return names[index] if index < len(names) else str(index)

    def accuracy(self, images: Pixels, labels: Labels) -> float | None:
        """Share of raw images [N, C, H, W] with the right class by labels [N]; None without images."""
        if len(images) == 0:
            return None
        return float((self.predict(images).argmax(axis=1) == labels).mean())


def load_model(
    path: Path,
    *,
    threads: int | None = None,
    trust: TrustedKey | None = None,
    exported_by: str | None = None,
    data: bytes | None = None,
) -> LoadedModel:
    """Load an ONNX classifier, using at most `threads` threads; raises `ConfigError` for any other file.

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
        with _as_file(data) as source:
            session = onnxruntime.InferenceSession(
                source, _options(threads), providers=["CPUExecutionProvider"]
            )
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise ConfigError(
            f"{path} is not an ONNX model that onnxruntime can load: {_reason(error)}"
        ) from error
    del data
    give_back()
    return _describe(path, session, signed)


def _options(threads: int | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # An arena keeps the memory of the largest batch and is no faster for networks of this size.
    options.enable_cpu_mem_arena = False
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    return options


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str | bytes]:
    """The bytes as a file in memory if the system has those: of bytes, onnxruntime keeps a copy."""
    if not hasattr(os, "memfd_create"):
        yield data
        return
    with os.fdopen(os.memfd_create("model"), "wb", buffering=0) as file:
        file.write(data)
        yield f"/proc/self/fd/{file.fileno()}"


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
    return LoadedModel(path, session, input_shape, preprocessing, metadata, signed)


def read_image(path: Path, input_shape: tuple[int, ...], *, scale: float = 255.0) -> ReadImage:
    """Read an image file as raw pixels of `input_shape` [C, H, W], from 0 to `scale`; `ConfigError`."""
    try:
        with path.open("rb") as file:
            return decode_image(file.read(), input_shape, scale=scale, source=f"image {path}")
    except OSError as error:
        raise ConfigError(f"cannot read image {path}: {_reason(error)}") from error


def decode_image(
    data: bytes, input_shape: tuple[int, ...], *, scale: float = 255.0, source: str = "the image"
) -> ReadImage:
    """As `read_image`, for an image file's bytes; `source` names it in messages."""
    if len(input_shape) != 3 or input_shape[0] not in MODES:
        raise ConfigError(f"{source}: the model takes {in_words(input_shape)}, which is no image")
    channels, height, width = input_shape
    try:
        with Image.open(io.BytesIO(data)) as file:
            if file.width * file.height > MAX_PIXELS:
                limit = MAX_PIXELS // 10**6
                raise ValueError(f"{file.width}x{file.height} pixels are more than {limit} million")
            picture = ImageOps.exif_transpose(file).convert(MODES[channels])
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ConfigError(f"cannot read {source}: {_of_image(error)}") from error
    note = ""
    if picture.size != (width, height):
        note = f"resized from {picture.width}x{picture.height} to {width}x{height}"
        picture = resize(picture, width, height)
    pixels = np.asarray(picture).reshape(height, width, channels).transpose(2, 0, 1)
    if scale != 255.0:
        pixels = pixels.astype(np.float32) * np.float32(scale / 255.0)
    return ReadImage(np.ascontiguousarray(pixels), note)


def _of_image(error: Exception) -> str:
    """The error in words, without the memory address in Pillow's message."""
    return "it is no image" if isinstance(error, UnidentifiedImageError) else _reason(error)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
