"""Recordings as a model's input: a WAV file, or the bytes of one."""

from pathlib import Path
from typing import BinaryIO

import numpy as np

from edge_client.data.dataset import Pixels
from edge_client.data.shapes import in_words
from edge_client.data.wav_source import read_wav
from edge_client.inference.onnx_model import LoadedModel
from schemas.errors import ConfigError


def read_recording(source: Path | BinaryIO, model: LoadedModel) -> Pixels:
    """The samples [1, 1, N] at the model's rate, cut or filled with silence to its length.

    Raises `ConfigError` for a file that is no WAV, and for a model that takes no recordings.
    """
    if len(model.input_shape) != 2 or model.input_shape[0] != 1:
        raise ConfigError(f"this is a recording, and {model.path.name} takes {in_words(model.input_shape)}")
    length = model.input_shape[1]
    samples = read_wav(source, rate=model.preprocessing.rate, most=length)
    return np.pad(samples, (0, length - len(samples)))[None, None]
