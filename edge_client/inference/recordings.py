"""Recordings as a model's input: a file, or the bytes of one."""

from pathlib import Path
from typing import BinaryIO

from edge_client.data.dataset import Pixels
from edge_client.data.shapes import in_words
from edge_client.data.sounds.recordings import cut
from edge_client.data.sounds.sound_files import read_sound
from edge_client.inference.onnx_model import LoadedModel
from schemas.errors import ConfigError


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
        raise ConfigError(f"the recording has more than {most} examples{whole}: send it in parts")
    return images
