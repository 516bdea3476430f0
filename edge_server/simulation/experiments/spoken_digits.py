"""Spoken digits as pictures of sound: the Free Spoken Digit Dataset, a data source for experiments.

Recordings (Z. Jackson et al., <https://github.com/Jakobovski/free-spoken-digit-dataset>, CC BY-SA 4.0) are
WAV files of 8 kHz, one channel and 16 bits, named `digit_speaker_index.wav`. The set's own rule: indexes 0 to
4 are the test part. The features are log-mel spectra on the mel scale of HTK (Young et al., The HTK Book,
section 5.4): mel(f) = 2595 log10(1 + f / 700).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.sounds.sound_files import read_sound
from schemas.errors import ConfigError

Floats = NDArray[np.floating[Any]]

FOLDER = Path("fsdd") / "recordings"  # Where the recordings lie below the data root
CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TESTED = 5  # Recordings of a speaker and digit with a lower index are for testing

RATE, WINDOW, HOP, POINTS = 8000, 200, 80, 256
"""Hz; samples of a window (25 ms) and between windows (10 ms); points of the Fourier transform."""
BANDS, FRAMES = 32, 32
FLOOR, MEAN, DEVIATION = 1e-6, -5.0, 4.0
"""Added to the energy before the logarithm; what is subtracted and divided by then.

The constants are fixed, so that no device's inputs depend on other devices' data.
"""


def spoken_digits(split: str = "train", data_root: Path | None = None) -> LabelledData:
    """The recordings below `data_root` as float32 [N, 1, 32, 32], in the order speaker, index, digit.

    Axes are bands, from low to high, and time. In this order `blocks` gives each client one speaker and each
    digit equally often. Raises `ConfigError` without recordings.
    """
    folder = (Path() if data_root is None else data_root) / FOLDER
    found = sorted(_parse_name(path) for path in folder.glob("*_*_*.wav"))
    chosen = [(digit, path) for _, index, digit, path in found if (index < TESTED) == (split == "test")]
    if not chosen:
        raise ConfigError(
            f"no spoken digits in {folder}",
            remedy="clone github.com/Jakobovski/free-spoken-digit-dataset as 'fsdd' into [data] data-root",
        )
    images = np.stack([log_mel(read_wave(path)) for _, path in chosen])
    return make_labelled_data(images[:, None], np.array([digit for digit, _ in chosen]), class_names=CLASSES)


def _parse_name(path: Path) -> tuple[str, int, int, Path]:
    digit, speaker, index = path.stem.split("_")
    return speaker, int(index), int(digit), path


def read_wave(path: Path) -> Floats:
    """The samples of a WAV file, -1 to 1; `ConfigError` unless it has 8 kHz and one channel."""
    sound = read_sound(path)
    if (sound.rate, sound.channels) != (RATE, 1):
        raise ConfigError(f"{path} is not of 8 kHz and one channel")
    return sound.samples


def log_mel(samples: Floats) -> NDArray[np.float32]:
    """Samples [T] as float32 [32 bands, 32 frames].

    A recording is stretched to 32 frames by linear interpolation between its own; shorter ones than a window
    are filled with silence.
    """
    samples = np.pad(samples, (0, max(0, WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP]
    energies = np.abs(np.fft.rfft(frames * np.hanning(WINDOW), POINTS)) ** 2
    spectrum = (np.log(FLOOR + energies @ mel_filters().T) - MEAN) / DEVIATION
    return stretch_rows(spectrum, FRAMES).T.astype(np.float32)


def mel_filters(bands: int = BANDS, points: int = POINTS, rate: int = RATE) -> Floats:
    """Triangular filters [bands, points / 2 + 1], evenly spaced in mel from 0 Hz to half the rate.

    Each rises linearly in Hz from the previous filter's centre to 1 at its own, and falls to the next one's.
    """
    edges = _hertz(np.linspace(0, _mel(rate / 2), bands + 2))
    lines = np.arange(points // 2 + 1) * rate / points
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    sides = np.minimum((lines - low) / (centre - low), (high - lines) / (high - centre))
    filters: Floats = np.maximum(sides, 0)
    return filters


def stretch_rows(values: Floats, count: int) -> Floats:
    """Rows [T, B] as [count, B], by linear interpolation between the first and the last."""
    places = np.linspace(0, len(values) - 1, count)
    before = np.minimum(places.astype(np.int64), max(0, len(values) - 2))
    after, share = np.minimum(before + 1, len(values) - 1), (places - before)[:, None]
    rows: Floats = (1 - share) * values[before] + share * values[after]
    return rows


def _mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))


def _hertz(mel: Floats) -> Floats:
    return 700 * (10 ** (mel / 2595) - 1)
