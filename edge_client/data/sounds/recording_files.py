"""Which files of a folder are recordings, what their names say, and which are for training or testing."""

import importlib.util
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.data.class_folders import (
    files_below,
    files_of_classes,
    parts_of,
    say_left_out,
    without_classes,
)
from edge_client.data.classes import Names, in_order
from edge_client.data.sounds.sound_files import ENDINGS, FURTHER, PLAIN, REMEDIES
from schemas.errors import ConfigError

LABEL = "label"
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Recording:
    """A file with the fields of its name; `label` is its class."""

    path: Path
    fields: Mapping[str, str]

    @property
    def label(self) -> str:
        """The name of its class."""
        return self.fields[LABEL]

    @property
    def ending(self) -> str:
        """The ending of the file's name, in lower case."""
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
        raise ConfigError(f"{source}: there is no such folder")
    parts, pattern, rule = parts_of(folder, split), options.get("name"), options.get("test")
    if parts.official and rule is not None:
        raise ConfigError(f"{source} has folders for training and testing: leave out test={rule}")
    found = [recording for part in parts.every for recording in _below(part, pattern)]
    if not found:
        if pattern is None:
            raise ConfigError(f"{source}: {without_classes(parts.chosen, _endings())}")
        raise ConfigError(
            f"{source} has no recordings: expected files such as .wav, named {pattern}.wav in it"
        )
    every = _chosen(found, options, source)
    names = in_order(recording.label for recording in every)
    if parts.official:
        return RecordingFiles([r for r in every if r.path.is_relative_to(parts.chosen)], names, official=True)
    return RecordingFiles(_part(every, rule, split, source), names, official=rule is not None)


def _endings() -> Collection[str]:
    """Endings of the files that can be read here."""
    return PLAIN if importlib.util.find_spec("soundfile") is None else PLAIN + FURTHER


def _below(part: Path, pattern: str | None) -> list[Recording]:
    """The recordings of a part, labelled by folders or by names."""
    if pattern is None:
        classes = files_of_classes(part, _endings(), remedies=REMEDIES)
        return [Recording(path, {LABEL: name}) for name, paths in classes.items() for path in paths]
    files, matcher, endings = files_below(part, ENDINGS), _matcher(pattern), _endings()
    every = [_matched(path, matcher, pattern) for path in files.paths]
    found = [recording for recording in every if recording.ending in endings]
    out = [recording for recording in every if recording.ending not in endings]
    labels = {recording.label for recording in found}
    if lost := next((recording for recording in out if recording.label not in labels), None):
        raise ConfigError(
            f"{lost.path}: class '{lost.label}' has no file that can be read: {REMEDIES[lost.ending]}"
        )
    say_left_out(part, Counter(files.others) + Counter(recording.ending for recording in out), REMEDIES)
    return found


def _matcher(pattern: str) -> re.Pattern[str]:
    if LABEL not in _FIELD.findall(pattern):
        raise ConfigError(f"name={pattern} has no {{label}}, which names the class")
    return re.compile(_FIELD.sub(r"(?P<\1>.+?)", re.escape(pattern).replace(r"\{", "{").replace(r"\}", "}")))


def _matched(path: Path, matcher: re.Pattern[str], pattern: str) -> Recording:
    match = matcher.fullmatch(path.stem)
    if match is None:
        raise ConfigError(f"{path} is not named {pattern}{path.suffix}: rename it, or move it away")
    return Recording(path, match.groupdict())


def _chosen(found: Sequence[Recording], options: Mapping[str, str], source: str) -> list[Recording]:
    """The recordings of `only`, in the order of `group`."""
    chosen, only, group = list(found), options.get("only"), options.get("group")
    if only is not None:
        field, _, value = only.partition(":")
        _check_field(field, found, source)
        chosen = [recording for recording in chosen if recording.fields[field] == value]
        if not chosen:
            known = ", ".join(sorted({recording.fields[field] for recording in found}))
            raise ConfigError(f"{source}: no recording has {only}", quoted=known)
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
        value = repr(wrong.fields[field])
        raise ConfigError(f"{wrong.path}: '{field}' is no number for test={rule}", quoted=value)
    return [r for r in found if (int(r.fields[field]) < int(most)) == (split == "test")]


def _check_field(field: str, found: Sequence[Recording], source: str) -> None:
    if field not in found[0].fields:
        raise ConfigError(f"{source}: no field '{field}' in the names: {', '.join(found[0].fields)}")
