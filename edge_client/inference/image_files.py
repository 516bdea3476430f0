"""Reads image files as raw pixels of a model's shape, with Pillow."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from edge_client.data.dataset import Pixels
from edge_client.data.shapes import MODES, in_words, resize
from edge_client.inference.onnx_model import reason_of
from schemas.errors import ConfigError

MAX_PIXELS = 40_000_000


@dataclass(frozen=True)
class ReadImage:
    """Raw pixels [C, H, W] of an image file, and a note if it was resized."""

    pixels: Pixels
    note: str = ""


def read_image(path: Path, input_shape: tuple[int, ...], *, scale: float = 255.0) -> ReadImage:
    """Read an image file as raw pixels of `input_shape` [C, H, W], from 0 to `scale`; `ConfigError`."""
    try:
        with path.open("rb") as file:
            return decode_image(file.read(), input_shape, scale=scale, source=f"image {path}")
    except OSError as error:
        raise ConfigError(f"cannot read image {path}: {reason_of(error)}") from error


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
    return "it is no image" if isinstance(error, UnidentifiedImageError) else reason_of(error)
