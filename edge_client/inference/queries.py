"""Input of `edge-client infer`: image files, folders, arrays, the shipped digits; and answers for people."""

import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

import numpy as np

from edge_client.data import arrays, file_kinds, shapes, source_options
from edge_client.data.class_folders import MAX_BROKEN, counts_in_words, files_below, parts_of, read_each
from edge_client.data.classes import shorten_names, unknown_classes
from edge_client.data.dataset import LabelledData, Labels, Pixels
from edge_client.data.pictures.folders import READERS, BoxPictures, picture_options, read_boxes
from edge_client.data.pictures.picture_files import CLEAR, endings_read, name_of, read_picture
from edge_client.data.pictures.scale import scale_in_words
from edge_client.data.shapes import MODES, SHRUNK_TO, in_words, letterbox_scale, redrawn, shrunk
from edge_client.data.sounds import recordings, sound_files
from edge_client.data.sounds.recordings import cut
from edge_client.data.sounds.sound_files import read_sound
from edge_client.data.tables.kinds import TABLES, read_source
from edge_client.data.tasks.labels import in_task
from edge_client.inference.onnx_model import Box, Frame, LoadedModel
from schemas.errors import ConfigError
from schemas.values import Preprocessing

# Files as a model's input: pictures as raw pixels of its shape, and recordings.


@dataclass(frozen=True)
class ReadImage:
    """Raw pixels [C, H, W] of a picture file, notes on what was done with it, and where it lies in them."""

    pixels: Pixels
    notes: tuple[str, ...] = ()
    frame: Frame | None = None


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
    return ReadImage(np.ascontiguousarray(pixels), notes, _frame((height, width), shape, preprocessing))


def _frame(size: tuple[int, int], shape: tuple[int, ...], preprocessing: Preprocessing) -> Frame | None:
    """Of a picture of this height and width; None for a model that does not keep its proportions."""
    boxed = preprocessing.resizing is not None and preprocessing.resizing.letterbox
    return Frame(size, letterbox_scale(size, shape[1:])) if boxed else None


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


@dataclass(frozen=True, eq=False)
class NamedExamples:
    """Raw examples [N, ...] of one input, a name for each, labels [N] if known, and notes for the user.

    `frames` are those of picture files; of other inputs there are none.
    """

    names: tuple[str, ...]
    images: Pixels
    labels: Labels | None = None
    notes: tuple[str, ...] = ()
    frames: tuple[Frame | None, ...] = ()


def read_input(given: Path, model: LoadedModel) -> NamedExamples:
    """Read the input that a command-line argument names; raises `ConfigError` if the model cannot take it."""
    kind, colon, argument = ("", "", "") if given.exists() else str(given).partition(":")
    if kind == "digits" and not colon:
        return _make_examples(given, arrays.read_digits("test"), model, otherwise="give it other examples")
    if kind == "python":
        raise ConfigError(
            f"infer: {given} is code", remedy="save what it returns with numpy.savez, and name that file"
        )
    if kind in (*TABLES, *READERS, "wav"):
        place, options = source_options.place_and_options(argument)
        file_kinds.check_kind(kind, place)
        if kind in READERS:
            return _of_boxes(given, place, read_boxes(kind, place, options, split="test"), model)
        if kind == "wav":
            return _make_examples(
                given, _recordings(place, options, model), model, otherwise=_name_alone(place)
            )
        data, _ = read_source(kind, place, options, split="test")
        label = dict(parse_qsl(options)).get("label")
        otherwise = None if label is None else f"for answers alone leave label={label} out"
        return _make_examples(given, data, model, otherwise=otherwise)
    path, options = source_options.place_and_options(argument) if kind in ("folder", "npz") else (given, "")
    if takes_recordings(model) and path.is_dir():
        return _of_sounds(path, model)
    if kind == "folder" or path.is_dir():
        return _of_folder(path, options, model)
    if path.suffix.lower() in sound_files.ENDINGS:
        return _of_recordings([path], model)
    if path.suffix == ".npy":
        return _number_examples(
            path, arrays.as_batch(arrays.read_npy(path), model.input_shape, model.preprocessing)
        )
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
        tuple(image.frame for image in read.values),
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
    if not names or not known or model.task.labels != "classes":
        return None, ()
    if unknown := [*dict.fromkeys(name for name in names if name not in known)]:
        return None, (f"{folder}: nothing is measured: {_not_classes(unknown, model)}",)
    return np.array([known.index(name) for name in names]), ()


def _other_scale(source: str, model: LoadedModel) -> str:
    own = scale_in_words(model.preprocessing.picture_scale)
    return f"{source}: {model.path.name} takes pictures of scale={own}: leave the scale out"


def _of_archive(path: Path, text: str, model: LoadedModel) -> NamedExamples:
    source, archive, scale = f"npz:{path}", arrays.read_npz(path), model.preprocessing.picture_scale
    options = arrays.array_options(text, source=source)
    if options.scaled and options.scale != scale:
        raise ConfigError(_other_scale(source, model))
    for name in {"images", "x_test"} & archive.keys():
        archive[name] = arrays.as_batch(archive[name], model.input_shape, model.preprocessing)
    if "images" in archive and "labels" not in archive:
        return _number_examples(path, archive["images"])
    # The model says what its inputs are.
    kind = arrays.PICTURES if len(model.input_shape) == 3 else arrays.SIGNALS
    data, _ = arrays.examples_of(archive, split="test", source=str(path), options=arrays.ArrayOptions(kind))
    otherwise = "for answers alone save it without labels"
    return _make_examples(path, data, model, otherwise=otherwise)


def _make_examples(
    given: Path, data: LabelledData, model: LoadedModel, *, otherwise: str | None
) -> NamedExamples:
    """The examples of a source, and what to do where its labels are not those of the model; None without."""
    fitted = model.fit(data if otherwise is None else _in_task(given, data, model, otherwise))
    examples = _number_examples(given, fitted.images, None if otherwise is None else fitted.labels)
    waiting = f"{given}: what is half written is left out, such as a last line without a line end"
    return examples if data.settles_at is None else replace(examples, notes=(waiting,))


def _in_task(given: Path, data: LabelledData, model: LoadedModel, otherwise: str) -> LabelledData:
    names = model.preprocessing.class_names
    try:
        return in_task(data, model.task.name, names)
    except ConfigError as error:
        # What a federation would do about it is no remedy here.
        if error.remedy:
            why = f"{model.path.name} is of the task '{model.task.name}', and {error.reason}"
            raise ConfigError(why, place=given, remedy=otherwise) from error
        unknown = unknown_classes(data.own_classes, names, named=data.named)
        if unknown and model.task.labels != "numbers":
            raise ConfigError(_not_classes(unknown, model), place=given, remedy=otherwise) from error
        raise


def _not_classes(unknown: Sequence[str], model: LoadedModel) -> str:
    known = shorten_names(model.preprocessing.class_names)
    return f"{shorten_names(unknown)} is not a class of {model.path.name}, which knows {known}"


def _name_alone(place: Path) -> str:
    return f"for answers alone name {place if place.is_dir() else place.parent}"


def _of_boxes(given: Path, place: Path, found: BoxPictures, model: LoadedModel) -> NamedExamples:
    examples = _make_examples(given, found.data, model, otherwise=_name_alone(place))
    frames = tuple(_frame(size, model.input_shape, model.preprocessing) for size in found.sizes)
    return replace(examples, names=tuple(map(str, found.files)), frames=frames)


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


# Answers for people: in words, and as pictures with the boxes that a model finds.

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#46f0f0", "#f032e6", "#bcf60c")
"""Of one class after the other, and again."""
DRAWN_SIDE = 640  # pixels to which smaller pictures are magnified, by a whole number, so that text fits


def answer_in_words(result: Mapping[str, Any]) -> list[str]:
    """Each part of a `LoadedModel.result`: `seven 93.1%`, `co2 612.4`, `cell 93.1% at 12,30-60,78`."""
    if "boxes" in result:
        return [_box_in_words(box) for box in result["boxes"]] or ["nothing"]
    if "outputs" in result:
        outputs = [f"{output['name']} {output['value']:.6g}" for output in result["outputs"]]
        return [*outputs, "unusual"] if result.get("unusual") else outputs
    return [f"{ranked['name']} {ranked['probability']:.1%}" for ranked in result["top"]]


def _box_in_words(box: Mapping[str, Any]) -> str:
    """From the left upper to the right lower corner."""
    left, top, right, bottom = map(round, box["corners"])
    return f"{box['name']} {box['score']:.1%} at {left},{top}-{right},{bottom}"


def draw_boxes(pixels: Pixels, scale: float, boxes: Sequence[Box], frame: Frame | None = None) -> bytes:
    """A PNG of raw pixels [C, H, W] up to `scale` with boxes of the picture in them, classes and scores."""
    # Imported here: most inputs are not drawn into.
    from PIL import Image, ImageDraw

    bright = np.clip(pixels.astype(np.float32) * (255 / scale), 0, 255).astype(np.uint8)
    picture = Image.fromarray(bright[0] if len(bright) < 3 else bright[:3].transpose(1, 2, 0)).convert("RGB")
    times = max(1, DRAWN_SIDE // max(picture.size))
    picture = picture.resize((times * picture.width, times * picture.height))
    draw, worst_first, zoom = ImageDraw.Draw(picture), boxes[::-1], times * (frame.zoom if frame else 1)
    for box in worst_first:
        draw.rectangle([zoom * corner for corner in box.corners], outline=_colour(box), width=2)
    # No box runs through another's name.
    for box in worst_first:
        place, text = (zoom * box.corners[0], zoom * box.corners[1]), f"{box.name} {box.score:.0%}"
        draw.rectangle(draw.textbbox(place, text), fill=_colour(box))
        draw.text(place, text, fill="black")
    made = io.BytesIO()
    picture.save(made, "PNG")
    return made.getvalue()


def _colour(box: Box) -> str:
    return COLOURS[box.index % len(COLOURS)]
