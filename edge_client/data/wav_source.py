"""The source `wav:FOLDER?...`: recordings as examples [1, samples], float32 from -1 to 1.

| option | meaning |
| --- | --- |
| `name` | fields of a file's name, as `{label}_{speaker}_{index}`; without it each sub-folder is a class |
| `group` | a field: recordings are in its order, so that `partition = "blocks"` gives a device whole groups |
| `only` | `FIELD:VALUE`, the recordings with this value alone |
| `test` | `FIELD<NUMBER`, the recordings of the test part; all others are for training |
| `rate` | Hz; without it all files must have one sampling rate. Files of another rate are resampled |
| `seconds` | length of an example (default 1): longer recordings are cut, shorter ones filled with silence |
"""

import math
import re
import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData, labelled
from edge_client.data.source_options import options_of
from schemas.errors import ConfigError
from schemas.values import Preprocessing

OPTIONS = ("name", "group", "only", "test", "rate", "seconds")
LABEL = "label"
SECONDS = 1.0
WIDTHS, MOST_CHANNELS = range(1, 5), 64
RATES = range(1000, 768_001)
"""Sampling rates in Hz that are read; a few bytes of another could become gigabytes."""
Samples = NDArray[np.float32]
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Recording:
    """A file with the fields of its name; `label` is its class."""

    path: Path
    fields: Mapping[str, str]


def read_recordings(folder: Path, text: str, *, split: str) -> tuple[LabelledData, bool]:
    """The recordings of a folder with these options, and whether they have a test part of their own.

    Raises `ConfigError` that names file, option or folder, and the remedy.
    """
    source = f"wav:{folder}"
    options = options_of(text, OPTIONS, source=source)
    every = _chosen(_found(folder, options.get("name"), source), options, source)
    names = tuple(sorted({recording.fields[LABEL] for recording in every}))
    chosen = _part(every, options.get("test"), split, source)
    rate = _rate(every, options.get("rate"), source)
    length = round(rate * _seconds(options.get("seconds"), source))
    images = np.zeros((len(chosen), 1, length), np.float32)
    for place, recording in enumerate(chosen):
        samples = read_wav(recording.path, rate=rate, most=length)
        images[place, 0, : len(samples)] = samples
    labels = np.array([names.index(recording.fields[LABEL]) for recording in chosen], np.int64)
    about = Preprocessing(scale=1.0, rate=rate)
    data = labelled(images, labels, class_names=names, preprocessing=about)
    return data, "test" in options


def read_wav(source: Path | BinaryIO, *, rate: float | None = None, most: int | None = None) -> Samples:
    """The samples of a file from -1 to 1, the mean of its channels, resampled to `rate` Hz if it is stated.

    At most the first `most` samples. Raises `ConfigError` for a file that is no WAV of whole numbers, or with
    a rate beyond `RATES`.
    """
    what = source if isinstance(source, Path) else "the body"
    try:
        with wave.open(str(source) if isinstance(source, Path) else source) as file:
            width, channels, own = file.getsampwidth(), file.getnchannels(), file.getframerate()
            step = own / (rate or own or 1)
            wanted = file.getnframes() if most is None else math.ceil((most + 1) * step)
            frames = file.readframes(min(wanted, file.getnframes()))
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{what} is no WAV file of whole numbers (PCM): {error}") from error
    if width not in WIDTHS or not 1 <= channels <= MOST_CHANNELS:
        raise ConfigError(f"{what} has {channels} channels of {8 * width} bits: expected 8 to 32 bits")
    if own not in RATES:
        raise ConfigError(f"{what} has {own} Hz: expected {RATES.start} to {RATES.stop - 1}")
    whole = len(frames) // (width * channels) * width * channels
    samples = _decoded(frames[:whole], width)
    if not len(samples):
        raise ConfigError(f"{what} has no samples")
    samples = samples.reshape(-1, channels).mean(axis=1)
    return (samples.astype(np.float32) if step == 1 else resampled(samples, step))[:most]


def resampled(samples: NDArray[Any], step: float) -> Samples:
    """Samples at every `step` places, by linear interpolation; what would fold is averaged away first."""
    if step > 1:
        width = round(step)
        samples = np.convolve(samples, np.full(width, 1 / width), mode="same")
    places = np.arange(0, max(len(samples) - 1, 0) + 1e-9, step)
    found: Samples = np.interp(places, np.arange(len(samples)), samples).astype(np.float32)
    return found


def _decoded(frames: bytes, width: int) -> NDArray[np.float64]:
    """Numbers from -1 to 1 of PCM samples of 1 to 4 bytes."""
    if width == 1:
        return np.frombuffer(frames, np.uint8) / 128 - 1
    if width == 3:
        parts = np.frombuffer(frames, np.uint8).reshape(-1, 3).astype(np.int32)
        whole = parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16
        return (whole - ((whole & 1 << 23) << 1)) / float(1 << 23)
    return np.frombuffer(frames, f"<i{width}") / float(1 << (8 * width - 1))


def _found(folder: Path, pattern: str | None, source: str) -> list[Recording]:
    if not folder.is_dir():
        raise ConfigError(f"{source}: there is no such folder")
    found = folder.glob("*" if pattern else "*/*")
    paths = sorted(path for path in found if path.suffix.lower() == ".wav")
    if not paths:
        where = f"named {pattern}.wav in it" if pattern else "in its sub-folders, one for each class"
        raise ConfigError(f"{source} has no recordings: expected WAV files {where}")
    if pattern is None:
        return [Recording(path, {LABEL: path.parent.name}) for path in paths]
    fields = _FIELD.findall(pattern)
    if LABEL not in fields:
        raise ConfigError(f"{source}: name={pattern} has no {{label}}, which names the class")
    matcher = re.compile(
        _FIELD.sub(r"(?P<\1>.+?)", re.escape(pattern).replace(r"\{", "{").replace(r"\}", "}"))
    )
    recordings = []
    for path in paths:
        match = matcher.fullmatch(path.stem)
        if match is None:
            raise ConfigError(f"{path} is not named {pattern}.wav: rename it, or move it away")
        recordings.append(Recording(path, match.groupdict()))
    return recordings


def _chosen(found: Sequence[Recording], options: Mapping[str, str], source: str) -> list[Recording]:
    """The recordings of `only`, in the order of `group`."""
    chosen, only, group = list(found), options.get("only"), options.get("group")
    if only is not None:
        field, _, value = only.partition(":")
        _check_field(field, found, source)
        chosen = [recording for recording in chosen if recording.fields[field] == value]
        if not chosen:
            known = ", ".join(sorted({recording.fields[field] for recording in found}))
            raise ConfigError(f"{source}: no recording has {only}: the values are {known}")
    if group is not None:
        _check_field(group, found, source)
        chosen.sort(key=lambda recording: recording.fields[group])
    return chosen


def _part(found: Sequence[Recording], rule: str | None, split: str, source: str) -> list[Recording]:
    """The recordings for this purpose; all without a rule."""
    if rule is None:
        return list(found)
    field, _, most = rule.partition("<")
    if not most.isdecimal():
        raise ConfigError(f"{source}: test={rule} is not of the form FIELD<NUMBER, such as index<5")
    _check_field(field, found, source)
    wrong = next((r for r in found if not r.fields[field].isdecimal()), None)
    if wrong is not None:
        raise ConfigError(f"{wrong.path}: '{field}' is {wrong.fields[field]!r}, no number for test={rule}")
    return [r for r in found if (int(r.fields[field]) < int(most)) == (split == "test")]


def _check_field(field: str, found: Sequence[Recording], source: str) -> None:
    if field not in found[0].fields:
        raise ConfigError(f"{source}: no field '{field}' in the names: {', '.join(found[0].fields)}")


def _rate(found: Sequence[Recording], stated: str | None, source: str) -> float:
    """The stated rate, or the one of all files."""
    if stated is not None:
        if not stated.isdecimal() or int(stated) < 1:
            raise ConfigError(f"{source}: rate={stated} is no number of Hz")
        return float(stated)
    rates = {recording.path: _rate_of(recording.path) for recording in found}
    first = rates[found[0].path]
    other = next((path for path, rate in rates.items() if rate != first), None)
    if other is not None:
        raise ConfigError(
            f"{other} has {rates[other]:g} Hz and {found[0].path.name} {first:g}: state rate={first:g}, "
            "to which all are resampled"
        )
    return first


def _rate_of(path: Path) -> float:
    try:
        with wave.open(str(path)) as file:
            return float(file.getframerate())
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{path} is no WAV file of whole numbers (PCM): {error}") from error


def _seconds(stated: str | None, source: str) -> float:
    try:
        seconds = SECONDS if stated is None else float(stated)
    except ValueError as error:
        raise ConfigError(f"{source}: seconds={stated} is no number") from error
    if not 0 < seconds <= 3600:
        raise ConfigError(f"{source}: seconds={stated} is not above 0 and at most 3600")
    return seconds
