"""Reads the input of `edge-client infer`: image files, folders of them, arrays, and the shipped digits."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from edge_client.data.arrays import as_batch, class_names_of, examples_of, read_npy, read_npz
from edge_client.data.classes import in_classes
from edge_client.data.dataset import LabelledData, Labels, Pixels, labelled
from edge_client.data.digits import read_digits
from edge_client.data.image_folders import has_parts, pictures_below, pictures_of_classes
from edge_client.data.table_readers import TABLES
from edge_client.data.tasks.conversion import in_task
from edge_client.data.wav_source import read_recordings
from edge_client.inference.image_files import read_image
from edge_client.inference.onnx_model import LoadedModel
from edge_client.inference.recordings import read_recording
from schemas.errors import ConfigError


@dataclass(frozen=True, eq=False)
class NamedExamples:
    """Raw examples [N, ...] of one input, a name for each, labels [N] if known, and notes for the user."""

    names: tuple[str, ...]
    images: Pixels
    labels: Labels | None = None
    notes: tuple[str, ...] = ()


def read_input(given: Path, model: LoadedModel) -> NamedExamples:
    """Read the input that a command-line argument names; raises `ConfigError` if the model cannot take it."""
    kind, colon, argument = ("", "", "") if given.exists() else str(given).partition(":")
    if kind == "digits" and not colon:
        digits = read_digits("test")
        return _numbered(given, model.fit(digits).images, digits.labels)
    if kind == "python":
        raise ConfigError(
            f"infer: {given} is code: save what it returns with numpy.savez, and name that file"
        )
    if kind in READERS:
        place, _, options = argument.partition("?")
        data = READERS[kind](Path(place).expanduser(), options)
        return _labelled(given, data, model, known=kind == "wav" or "label" in dict(parse_qsl(options)))
    path = Path(argument) if kind in ("folder", "npz") else given
    if path.is_dir():
        return _of_folder(path, model)
    if path.suffix == ".wav":
        return _numbered(path, read_recording(path, model))
    if path.suffix == ".npy":
        return _numbered(path, as_batch(read_npy(path), model.input_shape))
    return _of_archive(path, model) if path.suffix == ".npz" else _of_files([path], model)


def _of_files(paths: Sequence[Path], model: LoadedModel, labels: Labels | None = None) -> NamedExamples:
    read = [read_image(path, model.input_shape, scale=model.preprocessing.scale) for path in paths]
    notes = Counter(image.note for image in read if image.note)
    # One note per size of a folder's images.
    texts = (
        note if len(read) == 1 else f"{count} of {len(read)} pictures {note}" for note, count in notes.items()
    )
    place = os.path.commonpath(paths) or "."
    names = tuple(str(path) for path in paths)
    return NamedExamples(
        names, np.stack([image.pixels for image in read]), labels, tuple(f"{place}: {note}" for note in texts)
    )


def _of_folder(root: Path, model: LoadedModel) -> NamedExamples:
    """The images of a folder, with labels if its subfolders are the model's classes."""
    below = root / "test" if has_parts(root) else root
    classes = {name: paths for name, paths in pictures_of_classes(below).items() if paths}
    known = model.preprocessing.class_names
    if classes and set(classes) <= set(known):
        labels = np.repeat(
            [known.index(name) for name in classes], [len(paths) for paths in classes.values()]
        )
        return _of_files([path for paths in classes.values() for path in paths], model, labels)
    paths = pictures_below(below)
    if not paths:
        raise ConfigError(f"there are no images in {below}: expected files such as .png or .jpg")
    return _of_files(paths, model)


def _of_archive(path: Path, model: LoadedModel) -> NamedExamples:
    arrays = read_npz(path)
    if "images" in arrays and "labels" not in arrays:
        return _numbered(path, as_batch(arrays["images"], model.input_shape))
    images, labels, _ = examples_of(arrays, split="test", source=str(path))
    names, known = class_names_of(arrays), model.preprocessing.class_names
    if names and known:
        labels = in_classes(labelled(images, labels, class_names=names), known).labels
    return _numbered(path, images, labels)


def _labelled(given: Path, data: LabelledData, model: LoadedModel, *, known: bool) -> NamedExamples:
    """The examples of a source; without `known` labels nothing is measured."""
    if not known:
        return _numbered(given, model.fit(data).images)
    fitting = in_task(data, model.task.name, model.preprocessing.class_names)
    return _numbered(given, model.fit(fitting).images, fitting.labels)


def _recordings(folder: Path, options: str) -> LabelledData:
    return read_recordings(folder, options, split="test")[0]


READERS: Mapping[str, Callable[[Path, str], LabelledData]] = {**TABLES, "wav": _recordings}
"""Sources with options, by the word before the colon; their readers need no torch."""


def _numbered(source: Path, images: Pixels, labels: Labels | None = None) -> NamedExamples:
    if len(images) == 0:
        raise ConfigError(f"{source} holds no images")
    return NamedExamples(tuple(f"{source}[{index}]" for index in range(len(images))), images, labels)
