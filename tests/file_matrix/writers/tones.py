"""The tones that all writers of recordings store, and readers that are not the product's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.file_matrix.rows import Rows, Truth, make_old

Array = NDArray[Any]
RATE = 16_000
SECONDS = 0.25
LENGTH = round(RATE * SECONDS)
SOURCE = f"wav:FOLDER?seconds={SECONDS}"
CLASSES = {"low": 300.0, "high": 1100.0}
"""Hz by class."""
EACH = 2
"""Recordings of a class."""


def tone(hertz: float, channels: int = 1) -> Array:
    """A tone [samples, channels] below 0.7, each channel a bit softer than the one before."""
    times = np.arange(LENGTH)[:, None] / RATE
    return 0.7 * np.sin(2 * np.pi * hertz * times + np.arange(channels)) / (1 + 0.1 * np.arange(channels))


def in_numbers(samples: Array, bits: int) -> Array:
    """Samples as whole numbers of 16 bits, or of 32 where more are needed."""
    return np.round(samples * (2 ** (bits - 1) - 1)).astype("<i4" if bits > 16 else "<i2")


def write_tones(
    folder: Path,
    ending: str,
    save: Callable[[Path, Array], None],
    read: Callable[[Path], Array],
    *,
    channels: int = 1,
    tolerance: float = 1e-6,
) -> Truth:
    """Save the tones below a folder for each class; `read` gives the samples of a file."""
    inputs, labels = [], []
    for name, hertz in CLASSES.items():
        (folder / name).mkdir()
        for number in range(EACH):
            path = folder / name / f"{number}.{ending}"
            save(path, tone(hertz + 10 * number, channels))
            make_old(path)
            examples = in_examples(read(path))
            inputs.append(examples)
            labels += [name] * len(examples)
    order = np.argsort(labels, kind="stable")
    return Truth(np.concatenate(inputs)[order], [labels[place] for place in order], tolerance)


def in_examples(samples: Array, length: int = LENGTH) -> Array:
    """Samples [frames] as examples [N, 1, length] one after the other.

    The first is filled with silence, as is what is left at the end if it is at least half an example.
    """
    count = max(1, 1 + (len(samples) - length + length // 2) // length)
    return np.pad(samples, (0, length))[: count * length].reshape(count, 1, length)


def by_soundfile(path: Path) -> Array:
    """The mean of the channels by soundfile."""
    import soundfile

    samples, _ = soundfile.read(path, always_2d=True)
    return np.asarray(samples.mean(axis=1))


def by_scipy(path: Path) -> Array:
    """The mean of the channels by scipy, for whole numbers and floats."""
    from scipy.io import wavfile

    _, samples = wavfile.read(path)
    samples = samples.reshape(len(samples), -1)
    if samples.dtype == np.uint8:
        return np.asarray((samples / 128 - 1).mean(axis=1))
    largest = 2.0 ** (8 * samples.itemsize - 1) if samples.dtype.kind == "i" else 1.0
    return np.asarray((samples / largest).mean(axis=1))


def sound_row(
    rows: Rows,
    kind: str,
    writer: str,
    ending: str,
    save: Callable[[Path, Array], None],
    *,
    channels: int = 1,
    read: Callable[[Path], Array] = by_soundfile,
    **more: Any,
) -> None:
    """Add a row of four recordings in two classes; `more` are further fields of it."""

    @rows.row(kind, writer, SOURCE, requests="*/*", **more)
    def write(folder: Path) -> Truth:
        return write_tones(folder, ending, save, read, channels=channels)
