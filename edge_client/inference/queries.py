"""Reads the input of `edge-client infer`: image files, folders of them, arrays, and the shipped digits."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from edge_client.data import digits, file_kinds, shapes, source_options
from edge_client.data.arrays import (
    PICTURES,
    SIGNALS,
    ArrayOptions,
    array_options,
    as_batch,
    examples_of,
    read_npy,
    read_npz,
)
from edge_client.data.broken_files import MAX_BROKEN, read_each
from edge_client.data.class_folders import counts_in_words, files_below, parts_of
from edge_client.data.classes import shorten_names
from edge_client.data.dataset import LabelledData, Labels, Pixels
from edge_client.data.pictures.folders import picture_options
from edge_client.data.pictures.picture_files import endings_read
from edge_client.data.pictures.scale import scale_in_words
from edge_client.data.sounds import recordings, sound_files
from edge_client.data.tables.kinds import TABLES, read_source
from edge_client.data.tasks.conversion import in_task
from edge_client.inference.input_files import read_image, read_recording, takes_recordings
from edge_client.inference.onnx_model import LoadedModel
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
        return _make_examples(given, digits.read_digits("test"), model, known=True)
    if kind == "python":
        raise ConfigError(
            f"infer: {given} is code", remedy="save what it returns with numpy.savez, and name that file"
        )
    if kind in (*TABLES, "wav"):
        place, options = source_options.place_and_options(argument)
        file_kinds.check_kind(kind, place)
        if kind == "wav":
            return _make_examples(given, _recordings(place, options, model), model, known=True)
        data, _ = read_source(kind, place, options, split="test")
        return _make_examples(given, data, model, known="label" in dict(parse_qsl(options)))
    path, options = source_options.place_and_options(argument) if kind in ("folder", "npz") else (given, "")
    if takes_recordings(model) and path.is_dir():
        return _of_sounds(path, model)
    if kind == "folder" or path.is_dir():
        return _of_folder(path, options, model)
    if path.suffix.lower() in sound_files.ENDINGS:
        return _of_recordings([path], model)
    if path.suffix == ".npy":
        return _number_examples(path, as_batch(read_npy(path), model.input_shape, model.preprocessing))
    if path.suffix == ".npz":
        return _of_archive(path, options, model)
    if path.suffix.lower() not in endings_read()[0]:
        file_kinds.check_kind("", path)
    return _of_files([path], model)


def _of_files(
    paths: Sequence[Path],
    model: LoadedModel,
    labels: Labels | None = None,
    *,
    notes: tuple[str, ...] = (),
    most: float = MAX_BROKEN,
    side: int = shapes.SHRUNK_TO,
) -> NamedExamples:
    place = os.path.commonpath(paths) or "."
    shape, about = model.input_shape, model.preprocessing
    read = read_each(paths, lambda path: read_image(path, shape, about, side), source=place, most=most)
    count = len(read.values)
    # One note of each kind for all of a folder's images.
    texts = (
        note if count == 1 else f"{number} of {count} pictures {note}"
        for note, number in Counter(note for image in read.values for note in image.notes).items()
    )
    return NamedExamples(
        tuple(str(paths[index]) for index in read.places),
        np.stack([image.pixels for image in read.values]),
        None if labels is None else labels[read.places],
        (*notes, *(f"{place}: {text}" for text in texts)),
    )


def _of_folder(root: Path, text: str, model: LoadedModel) -> NamedExamples:
    """The images of a folder, with labels if its subfolders are the model's classes."""
    options = picture_options(text, source=f"folder:{root}", scale=model.preprocessing.picture_scale)
    if options.scale != model.preprocessing.picture_scale:
        raise ConfigError(_other_scale(f"folder:{root}", model))
    below, (endings, remedies) = parts_of(root, "test").chosen, endings_read()
    files = files_below(below, endings)
    others = counts_in_words(files.others, remedies)
    if not files.paths:
        raise ConfigError(
            f"there are no images in {below} ({others or 'it is empty'})", remedy="expected .png or .jpg"
        )
    notes = (f"{below}: files of another kind are left out: {others}",) if others else ()
    inside = [path for path in files.paths if path.parent != below]
    names = [path.relative_to(below).parts[0] for path in inside]
    labels, unknown = _labels_of(below, names, model)
    if labels is not None:
        return _of_files(inside, model, labels, notes=notes, most=options.broken, side=options.side)
    return _of_files(files.paths, model, notes=(*notes, *unknown), most=options.broken, side=options.side)


def _labels_of(
    folder: Path, names: Sequence[str], model: LoadedModel
) -> tuple[Labels | None, tuple[str, ...]]:
    """Labels by the files' sub-folders; None with a note if one of these is not a class of the model."""
    known = model.preprocessing.class_names
    unknown = dict.fromkeys(name for name in names if name not in known)
    if not names or not known:
        return None, ()
    if unknown:
        classes = f"not a class of {model.path.name}, which knows {shorten_names(known)}"
        return None, (f"{folder}: nothing is measured: {shorten_names([*unknown])} is {classes}",)
    return np.array([known.index(name) for name in names]), ()


def _other_scale(source: str, model: LoadedModel) -> str:
    own = scale_in_words(model.preprocessing.picture_scale)
    return f"{source}: {model.path.name} takes pictures of scale={own}: leave the scale out"


def _of_archive(path: Path, text: str, model: LoadedModel) -> NamedExamples:
    source, arrays, scale = f"npz:{path}", read_npz(path), model.preprocessing.picture_scale
    options = array_options(text, source=source)
    if options.scaled and options.scale != scale:
        raise ConfigError(_other_scale(source, model))
    for name in {"images", "x_test"} & arrays.keys():
        arrays[name] = as_batch(arrays[name], model.input_shape, model.preprocessing)
    if "images" in arrays and "labels" not in arrays:
        return _number_examples(path, arrays["images"])
    # The model says what its inputs are.
    kind = PICTURES if len(model.input_shape) == 3 else SIGNALS
    data, _ = examples_of(arrays, split="test", source=str(path), options=ArrayOptions(kind))
    return _make_examples(path, data, model, known=True)


def _make_examples(given: Path, data: LabelledData, model: LoadedModel, *, known: bool) -> NamedExamples:
    """The examples of a source; without `known` labels nothing is measured."""
    if known:
        data = in_task(data, model.task.name, model.preprocessing.class_names)
    examples = _number_examples(given, model.fit(data).images, data.labels if known else None)
    waiting = f"{given}: what is half written is left out, such as a last line without a line end"
    return examples if data.settles_at is None else replace(examples, notes=(waiting,))


def _recordings(folder: Path, options: str, model: LoadedModel) -> LabelledData:
    """The test part of the source `wav:`, at the model's rate and of its length unless the options differ."""
    rate, stated = model.preprocessing.rate, dict(parse_qsl(options))
    if rate is not None and takes_recordings(model):
        own = {"rate": f"{rate:g}", "seconds": str(model.input_shape[1] / rate)}
        options = "&".join(filter(None, [options, *(f"{k}={v}" for k, v in own.items() if k not in stated)]))
    data, _ = recordings.read_recordings(folder, options, split="test")
    if rate not in (None, data.preprocessing.rate):
        raise ConfigError(f"wav:{folder}?{options}: {model.path.name} takes recordings of {rate:g} Hz")
    return data


def _of_sounds(root: Path, model: LoadedModel) -> NamedExamples:
    """The recordings of a folder, with labels if its sub-folders are classes of the model."""
    part = parts_of(root, "test").chosen
    paths = files_below(part, sound_files.ENDINGS).paths
    if not paths:
        raise ConfigError(f"there are no recordings in {part}", remedy="expected files such as .wav")
    folders = [path.relative_to(part).parts[0] for path in paths if path.parent != part]
    labels, notes = _labels_of(part, folders, model)
    return replace(_of_recordings(paths, model, labels if len(folders) == len(paths) else None), notes=notes)


def _of_recordings(paths: Sequence[Path], model: LoadedModel, labels: Labels | None = None) -> NamedExamples:
    """The examples of each recording, and the label of each; a few broken ones are left out."""
    source = os.path.commonpath(paths) or "."
    read = read_each(paths, lambda path: read_recording(path, model), source=source)
    counts = [len(images) for images in read.values]
    of_files = zip(read.places, counts, strict=True)
    names = tuple(f"{paths[place]}[{n}]" for place, count in of_files for n in range(count))
    repeated = None if labels is None else np.repeat(labels[read.places], counts)
    return NamedExamples(names, np.concatenate(read.values), repeated)


def _number_examples(source: Path, images: Pixels, labels: Labels | None = None) -> NamedExamples:
    if len(images) == 0:
        raise ConfigError(f"{source} holds no examples")
    return NamedExamples(tuple(f"{source}[{index}]" for index in range(len(images))), images, labels)
