"""Files as a model's input: pictures as raw pixels of its shape, and recordings."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edge_client.data.dataset import Pixels
from edge_client.data.pictures.picture_files import CLEAR, name_of, read_picture
from edge_client.data.shapes import MODES, SHRUNK_TO, in_words, redrawn, shrunk
from edge_client.data.sounds.recordings import cut
from edge_client.data.sounds.sound_files import read_sound
from edge_client.inference.onnx_model import LoadedModel
from schemas.errors import ConfigError
from schemas.values import Preprocessing


@dataclass(frozen=True)
class ReadImage:
    """Raw pixels [C, H, W] of a picture file, and notes on what was done with it."""

    pixels: Pixels
    notes: tuple[str, ...] = ()


def read_image(
    file: Path | bytes,
    shape: tuple[int, ...],
    preprocessing: Preprocessing | None = None,
    side: int = SHRUNK_TO,
) -> ReadImage:
    """A picture file, or the bytes of one, as a model of this shape takes it; `ConfigError` names it.

    One that is longer than `side` is shrunk to it first, as those of a folder are for training.
    """
    preprocessing = preprocessing or Preprocessing()
    if len(shape) != 3 or shape[0] not in MODES:
        raise ConfigError(f"the model takes {in_words(shape)}, which is not an image", place=name_of(file))
    picture = read_picture(file, scale=preprocessing.picture_scale)
    notes, (height, width) = picture.notes, picture.pixels.shape[1:]
    if shape[0] == 4:
        notes = tuple(note for note in notes if note != CLEAR)
    if (height, width) != shape[1:]:
        notes = (*notes, f"resized from {width}x{height} to {shape[2]}x{shape[1]}")
    small = shrunk(picture.pixels, max(side, *shape[1:]), max(3, shape[0]))
    pixels = redrawn(small, shape, preprocessing.resizing)
    if preprocessing.scale != 255.0:
        pixels = pixels.astype(np.float32) * np.float32(preprocessing.scale / 255.0)
    return ReadImage(np.ascontiguousarray(pixels), notes)


def takes_recordings(model: LoadedModel) -> bool:
    """Whether a model's input is [1, samples]."""
    return len(model.input_shape) == 2 and model.input_shape[0] == 1


def read_recording(source: Path | BinaryIO, model: LoadedModel, *, most: int | None = None) -> Pixels:
    """A recording at the model's rate as examples [N, 1, length] of the model's length, as in training.

    The last is filled with silence, or left out if most of it were. Raises `ConfigError` for a file that is
    no recording or has more than `most` examples, and for a model that takes no recordings.
    """
    if not takes_recordings(model):
        raise ConfigError(f"this is a recording, and {model.path.name} takes {in_words(model.input_shape)}")
    length = model.input_shape[1]
    # One example more is read, so that a body cannot unpack to gigabytes.
    limit = None if most is None else (most + 1) * length
    images = cut(read_sound(source, rate=model.preprocessing.rate, most=limit).samples, length, length)
    if most is not None and len(images) > most:
        rate = model.preprocessing.rate
        whole = f" of {length / rate:g} s" if rate else ""
        raise ConfigError(f"the recording has more than {most} examples{whole}", remedy="send it in parts")
    return images
