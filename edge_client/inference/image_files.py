"""Reads picture files as raw pixels of a model's shape."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.data.dataset import Pixels
from edge_client.data.pictures.picture_files import CLEAR, name_of, read_picture
from edge_client.data.shapes import MODES, in_words, redrawn
from schemas.errors import ConfigError
from schemas.values import Preprocessing


@dataclass(frozen=True)
class ReadImage:
    """Raw pixels [C, H, W] of a picture file, and notes on what was done with it."""

    pixels: Pixels
    notes: tuple[str, ...] = ()


def read_image(
    file: Path | bytes, shape: tuple[int, ...], preprocessing: Preprocessing | None = None
) -> ReadImage:
    """A picture file, or the bytes of one, as a model of this shape takes it; `ConfigError` names it."""
    preprocessing = preprocessing or Preprocessing()
    if len(shape) != 3 or shape[0] not in MODES:
        raise ConfigError(f"{name_of(file)}: the model takes {in_words(shape)}, which is no image")
    picture = read_picture(file, scale=preprocessing.picture_scale)
    notes, (height, width) = picture.notes, picture.pixels.shape[1:]
    if shape[0] == 4:
        notes = tuple(note for note in notes if note != CLEAR)
    if (height, width) != shape[1:]:
        notes = (*notes, f"resized from {width}x{height} to {shape[2]}x{shape[1]}")
    pixels = redrawn(picture.pixels, shape)
    if preprocessing.scale != 255.0:
        pixels = pixels.astype(np.float32) * np.float32(preprocessing.scale / 255.0)
    return ReadImage(np.ascontiguousarray(pixels), notes)
