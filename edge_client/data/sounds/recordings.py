"""The source `wav:FOLDER?...`: recordings as examples [1, samples], float32 from -1 to 1.

| option | meaning |
| --- | --- |
| `name` | fields of a file's name, as `{label}_{speaker}_{index}`; without it each sub-folder is a class |
| `group` | a field: recordings are in its order, so that `partition = "blocks"` gives a device whole groups |
| `only` | `FIELD:VALUE`, the recordings with this value alone |
| `test` | `FIELD<NUMBER`, the recordings of the test part; all others are for training |
| `rate` | Hz; without it all files must have one sampling rate. Files of another rate are resampled |
| `seconds` | length of an example (default 1); shorter recordings are filled with silence |
| `hop` | seconds from one example of a recording to the next (default `seconds`); `none`: only the first |
| `broken` | the largest share of files that may be broken (default 0.1); they are left out |
"""

import importlib.util
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge_client.data import changes, class_folders, said_once
from edge_client.data.class_folders import MAX_BROKEN, ReadFiles, read_each
from edge_client.data.classes import Names, in_order, shorten_names
from edge_client.data.dataset import LabelledData, Pixels, make_labelled_data
from edge_client.data.sounds import sound_files
from edge_client.data.source_options import number_option, options_of
from schemas.errors import ConfigError, format_count
from schemas.values import Preprocessing

LABEL = "label"
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Recording:
    """A file with the fields of its name; `label` is its class."""

    path: Path
    fields: Mapping[str, str]

    @property
    def label(self) -> str:
        return self.fields[LABEL]

    @property
    def ending(self) -> str:
        return self.path.suffix.lower()


@dataclass(frozen=True)
class RecordingFiles:
    """The recordings for a purpose and the names of all classes; `official` if they have a test part."""

    recordings: Sequence[Recording]
    class_names: Names
    official: bool


def find_recordings(folder: Path, options: Mapping[str, str], *, split: str, source: str) -> RecordingFiles:
    """The recordings of a folder by the options `name`, `only`, `group` and `test`, in their order.

    Raises `ConfigError` that names file, option or folder, and the remedy.
    """
    if not folder.is_dir():
        raise ConfigError("there is no such folder", place=source)
    parts, pattern, rule = class_folders.parts_of(folder, split), options.get("name"), options.get("test")
    if parts.official and rule is not None:
        raise ConfigError(f"{source} has folders for training and testing", remedy=f"leave out test={rule}")
    found = [recording for part in parts.every for recording in _below(part, pattern)]
    if not found:
        if pattern is None:
            raise ConfigError(f"{class_folders.without_classes(parts.chosen, _endings())}", place=source)
        raise ConfigError(
            f"{source} has no recordings", remedy=f"expected files such as .wav, named {pattern}.wav in it"
        )
    every = _chosen(found, options, source)
    names = in_order(recording.label for recording in every)
    if parts.official:
        return RecordingFiles([r for r in every if r.path.is_relative_to(parts.chosen)], names, official=True)
    return RecordingFiles(_part(every, rule, split, source), names, official=rule is not None)


def _endings() -> Collection[str]:
    return (
        sound_files.PLAIN
        if importlib.util.find_spec("soundfile") is None
        else sound_files.PLAIN + sound_files.FURTHER
    )


def _below(part: Path, pattern: str | None) -> list[Recording]:
    """The recordings of a part, labelled by folders or by names."""
    if pattern is None:
        classes = class_folders.files_of_classes(part, _endings(), remedies=sound_files.REMEDIES)
        return [Recording(path, {LABEL: name}) for name, paths in classes.items() for path in paths]
    files, endings = class_folders.files_below(part, sound_files.ENDINGS), _endings()
    every = list(_parse_names(files.paths, pattern))
    found = [recording for recording in every if recording.ending in endings]
    out = [recording for recording in every if recording.ending not in endings]
    labels = {recording.label for recording in found}
    if lost := next((recording for recording in out if recording.label not in labels), None):
        remedy = sound_files.REMEDIES[lost.ending]
        raise ConfigError(
            f"class '{lost.label}' has no file that can be read", place=lost.path, remedy=remedy
        )
    class_folders.say_left_out(
        part, Counter(files.others) + Counter(recording.ending for recording in out), sound_files.REMEDIES
    )
    return found


def _parse_names(paths: Iterable[Path], pattern: str) -> Iterator[Recording]:
    """The recordings with the fields of their names; `ConfigError` for a name of another form."""
    if LABEL not in _FIELD.findall(pattern):
        raise ConfigError(f"name={pattern} has no {{label}}, which names the class")
    fields = _FIELD.sub(r"(?P<\1>.+?)", re.escape(pattern).replace(r"\{", "{").replace(r"\}", "}"))
    for path in paths:
        match = re.fullmatch(fields, path.stem)
        if match is None:
            raise ConfigError(
                f"{path} is not named {pattern}{path.suffix}", remedy="rename it, or move it away"
            )
        yield Recording(path, match.groupdict())


def _chosen(found: Sequence[Recording], options: Mapping[str, str], source: str) -> list[Recording]:
    """The recordings of `only`, in the order of `group`."""
    chosen, only, group = list(found), options.get("only"), options.get("group")
    if only is not None:
        field, _, value = only.partition(":")
        _check_field(field, found, source)
        chosen = [recording for recording in chosen if recording.fields[field] == value]
        if not chosen:
            known = ", ".join(sorted({recording.fields[field] for recording in found}))
            raise ConfigError(f"no recording has {only}", place=source, quoted=known)
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
        raise ConfigError(f"test={rule} is not of the form FIELD<NUMBER, such as index<5", place=source)
    _check_field(field, found, source)
    wrong = next((r for r in found if not r.fields[field].isdecimal()), None)
    if wrong is not None:
        value = repr(wrong.fields[field])
        raise ConfigError(f"'{field}' is not a number for test={rule}", place=wrong.path, quoted=value)
    return [r for r in found if (int(r.fields[field]) < int(most)) == (split == "test")]


def _check_field(field: str, found: Sequence[Recording], source: str) -> None:
    if field not in found[0].fields:
        raise ConfigError(f"no field '{field}' in the names: {', '.join(found[0].fields)}", place=source)


OPTIONS = ("name", "group", "only", "test", "rate", "seconds", "hop", "broken")
SECONDS, MIN_SECONDS, MAX_SECONDS = 1.0, 0.001, 3600.0
LOUDEST = 16.0  # 24 dB above full scale: greater floats are whole numbers that were not scaled
LONGEST = 1e9  # more seconds than any recording has
RESTS_S = 10.0  # seconds after the last change from which a file is not being recorded any more


def read_recordings(folder: Path, text: str, *, split: str) -> tuple[LabelledData, bool]:
    """The recordings of a folder with these options, and whether they have a test part of their own.

    Raises `ConfigError` that names file, option or folder, and the remedy.
    """
    source = f"wav:{folder}"
    options = options_of(text, OPTIONS, source=source)
    files = find_recordings(folder, options, split=split, source=source)
    if not files.recordings:
        raise ConfigError(f"no recording is for {split}ing", place=f"{source}?{text}")
    seconds = number_option(options, "seconds", SECONDS, least=MIN_SECONDS, most=MAX_SECONDS, source=source)
    hop = LONGEST
    if options.get("hop") != "none":
        hop = number_option(options, "hop", seconds, least=MIN_SECONDS, most=MAX_SECONDS, source=source)
    read, settles = _read(files, options, source)
    rate = _common_rate(files, read, source)
    length, step = round(rate * seconds), round(rate * hop)
    counts = [count_of(len(sound.samples), length, step) for sound in read.values]
    labels = [files.class_names.index(files.recordings[place].label) for place in read.places]
    _say(files, read, counts, f"{seconds:g}", source)
    data = make_labelled_data(
        _examples(read.values, counts, length, step),
        np.repeat(labels, counts),
        class_names=files.class_names,
        preprocessing=Preprocessing(scale=1.0, rate=rate),
    )
    origins = np.repeat(read.places, counts) if max(counts) > 1 else None
    return replace(data, origins=origins, skipped=read.skipped, settles_at=settles), files.official


def _read(
    files: RecordingFiles, options: Mapping[str, str], source: str
) -> tuple[ReadFiles[sound_files.Sound], float | None]:
    """The recordings that can be read, and when one that is being recorded counts as whole.

    Raises `ConfigError` for a class of which none can be read.
    """
    rate = None
    if "rate" in options:
        rate = round(
            number_option(
                options, "rate", 0, least=sound_files.RATES[0], most=sound_files.RATES[-1], source=source
            )
        )
    most = number_option(options, "broken", MAX_BROKEN, least=0, most=1, source=source)
    growing = list[float]()

    def read_file(path: Path) -> sound_files.Sound:
        sound = sound_files.read_sound(path, rate=rate)
        if sound.unfinished and (moment := changes.settles_at(path, RESTS_S)) is not None:
            growing.append(moment)
            raise ConfigError(f"{path} is being recorded: it is used once it has not grown for {RESTS_S:g} s")
        return sound

    read = read_each([recording.path for recording in files.recordings], read_file, source=source, most=most)
    there = {files.recordings[place].label for place in read.places}
    lost = next((recording.label for recording in files.recordings if recording.label not in there), None)
    if lost is not None and read.skipped is not None:
        raise ConfigError(
            f"no recording of class '{lost}' can be read; the first error: {read.skipped.first}", place=source
        )
    return read, min(growing, default=None)


def _common_rate(files: RecordingFiles, read: ReadFiles[sound_files.Sound], source: str) -> float:
    """The rate of all files in Hz; `ConfigError` if they differ."""
    rates = [sound.rate for sound in read.values]
    if other := next((place for place, rate in enumerate(rates) if rate != rates[0]), 0):
        first, path = (files.recordings[read.places[place]].path for place in (0, other))
        raise ConfigError(
            f"{path} has {rates[other]:g} Hz and {first.name} {rates[0]:g}",
            place=source,
            remedy=f"state rate={rates[0]:g}, to which all are resampled",
        )
    return rates[0]


def _examples(sounds: list[sound_files.Sound], counts: Sequence[int], length: int, hop: int) -> Pixels:
    """Examples [N, 1, length] of all recordings, which are forgotten one by one: no sample is held twice."""
    images, end = np.empty((sum(counts), 1, length), np.float32), sum(counts)
    for count in reversed(counts):
        images[end - count : end] = cut(sounds.pop().samples, length, hop)
        end -= count
    return images


def _say(
    files: RecordingFiles,
    read: ReadFiles[sound_files.Sound],
    counts: Sequence[int],
    seconds: str,
    source: str,
) -> None:
    said_once.say_once(
        f"{source}: {format_count(len(counts), 'recording')}, {format_count(sum(counts), 'example')} of "
        f"{seconds} s"
    )
    if several := sum(sound.channels > 1 for sound in read.values):
        said_once.say_once(
            f"{source}: {several} of {format_count(len(counts), 'recording')} with several channels: their "
            "mean is used"
        )
    peaks = [max(sound.samples.max(), -sound.samples.min()) for sound in read.values]
    if loud := [place for place, peak in zip(read.places, peaks, strict=True) if peak > LOUDEST]:
        said_once.say_once(
            f"{source}: {len(loud)} of {format_count(len(counts), 'recording')} with samples up to "
            f"{max(peaks):g}, where 1 is full scale: save them as whole numbers, or divide them by 32768; "
            f"the first: {files.recordings[loud[0]].path}",
            logging.WARNING,
        )
    per_class = Counter(files.recordings[place].label for place in read.places)
    long = {
        files.recordings[place].label for place, count in zip(read.places, counts, strict=True) if count > 1
    }
    if alone := [name for name in files.class_names if per_class[name] == 1 and name in long]:
        said_once.say_once(
            f"{source}: there is one recording alone of {shorten_names(alone)}: a part of it is held out",
            logging.WARNING,
        )


def cut(samples: sound_files.Samples, length: int, hop: int) -> Pixels:
    """Examples [N, 1, length] of a recording, at every `hop` samples; the first may be filled with silence.

    What is left at the end becomes another one, filled with silence, if at least half of what it adds is
    sound.
    """
    images = np.zeros((count_of(len(samples), length, hop), 1, length), np.float32)
    for place, image in enumerate(images[:, 0]):
        piece = samples[place * hop :][:length]
        image[: len(piece)] = piece
    return images


def count_of(samples: int, length: int, hop: int) -> int:
    """How many examples a recording of this number of samples gives."""
    return max(1, 1 + (samples - length + min(hop, length) // 2) // hop)
