"""Image arrays in `.npy` and `.npz` files, in any common axis order.

| option of `npz:PATH?...` | meaning |
| --- | --- |
| `kind` | what examples [N, A, B] are: `pictures` [N, height, width] or `signals` [N, channels, samples] |
| `scale` | full brightness of pictures: `full`, `min-max` or a factor, as of picture files (`units`) |
"""

import zipfile
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from edge_client.data import dataset, said_once, shapes, source_options, validation
from edge_client.data.dataset import LabelledData, Labels, Pixels, make_labelled_data
from edge_client.data.pictures.scale import parsed_scale
from edge_client.data.pictures.units import FULL_RANGES, arrays_in_units, say_range
from schemas.errors import ConfigError, nearest
from schemas.values import PictureScale, Preprocessing

_CHANNELS = (1, 3, 4)
_SPLIT_NAMES = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
_WHOLE_NAMES = ("images", "labels")
PICTURES, SIGNALS = "pictures", "signals"


@dataclass(frozen=True)
class ArrayOptions:
    """What the user says of arrays: their kind, empty if unsaid, and if `scaled` the scale of pictures.

    Without `has_options` the source takes no options, and remedies name none.
    """

    kind: str = ""
    scale: PictureScale | None = None
    scaled: bool = False
    has_options: bool = False


UNSAID = ArrayOptions()


def array_options(text: str, *, source: str) -> ArrayOptions:
    """The options behind `npz:PATH?`; `ConfigError` for others."""
    options = source_options.options_of(text, ("kind", "scale"), source=source)
    kind = source_options.one_of(options, "kind", ("", PICTURES, SIGNALS), source=source)
    if "scale" not in options:
        return ArrayOptions(kind, has_options=True)
    if kind == SIGNALS:
        raise ConfigError(
            "scale= is of pictures", place=source, remedy=f"leave out kind={SIGNALS}, or scale="
        )
    return ArrayOptions(kind, parsed_scale(options["scale"], source=source), scaled=True, has_options=True)


def channels_first(images: Pixels, kind: str = "") -> Pixels:
    """Images as [N, C, H, W]; accepts [N, H, W] (grey), [N, H, W, C] and [N, C, H, W].

    Channels are last if only the last axis has 1, 3 or 4 entries. Without a kind [N, H, W] are pictures if
    they are 8-bit or square; others may be signals [N, channels, samples] and are returned unchanged.
    """
    if kind == SIGNALS:
        return images
    if images.ndim == 3 and (
        kind == PICTURES or images.dtype == np.uint8 or images.shape[1] == images.shape[2] > 1
    ):
        return images[:, None]
    if images.ndim == 4 and images.shape[-1] in _CHANNELS and images.shape[1] not in _CHANNELS:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def examples(
    images: Pixels,
    labels: Labels,
    source: str,
    *,
    options: ArrayOptions = UNSAID,
    class_names: tuple[str, ...] = (),
    other_parts: tuple[Labels, ...] = (),
) -> LabelledData:
    """Examples of checked arrays: pictures, channels first, in units of brightness, or signals.

    A network may say what nobody else does, whether examples [N, A, B] are pictures (`question`).
    """
    question = _question(images, options, source)
    is_square = images.ndim == 3 and images.shape[1] == images.shape[2] > 1
    if is_square and images.dtype != np.uint8 and not options.kind:
        side = images.shape[1]
        said_once.say_once(
            f"{source}: examples of {side}x{side} are taken for grey pictures; for signals state "
            + (f"?kind={SIGNALS} or " if options.has_options else "")
            + f"[model] input-shape = [{side}, {side}]"
        )
    pixels, preprocessing = channels_first(images, options.kind), None
    is_picture = pixels.ndim == 4 and pixels.dtype.kind != "b"
    if options.scaled and not is_picture:
        raise ConfigError(
            f"scale= is of pictures, and the examples are {images.shape[1:]}",
            place=source,
            remedy="leave it out",
        )
    if options.scaled or (is_picture and pixels.dtype in FULL_RANGES):
        pixels = arrays_in_units(pixels, options.scale)
        say_range(pixels, len(pixels), source, options.scale)
        preprocessing = Preprocessing(picture_scale=options.scale)
    elif is_picture and pixels.dtype.kind in "iu":
        said_once.say_once(
            f"{source}: pixels of {pixels.dtype} are taken as they are; as uint8 or uint16 they would be "
            "scaled by the range of that type"
        )
    data = make_labelled_data(
        pixels,
        labels,
        class_names=class_names,
        preprocessing=preprocessing,
        other_parts=other_parts,
        source=source,
    )
    return replace(data, question=question, unscaled=bool(question) and images.dtype in FULL_RANGES)


def _question(images: Pixels, options: ArrayOptions, source: str) -> str:
    """What has to be said of examples [N, A, B] that may be pictures or signals; else empty."""
    if images.ndim != 3 or channels_first(images, options.kind) is not images or options.kind:
        return ""
    _, rows, columns = images.shape
    picture = f"return them as [N, 1, {rows}, {columns}]"
    signal = f"state [model] input-shape = [{rows}, {columns}]"
    if options.has_options:
        picture, signal = f"name it npz:PATH?kind={PICTURES}", f"?kind={SIGNALS}"
    return (
        f"{source}: examples of {rows}x{columns} may be grey pictures or signals of {rows} channels: "
        f"for pictures {picture}, for signals {signal}"
    )


def as_batch(images: Pixels, shape: tuple[int, ...], preprocessing: Preprocessing | None = None) -> Pixels:
    """One example or many as [N, *shape]; an array that is neither is returned unchanged, to be refused.

    Pictures in the whole numbers of cameras become what files of such numbers are to the preprocessing.
    """
    images = _in_shape(images, shape)
    if (
        preprocessing is None
        or len(shape) != 3
        or images.shape[1:] != shape
        or images.dtype not in FULL_RANGES
    ):
        return images
    if images.dtype == np.uint8 and preprocessing.picture_scale is None:
        return images
    units = arrays_in_units(images, preprocessing.picture_scale)
    return units * np.float32(preprocessing.scale / 255.0)


def _in_shape(images: Pixels, shape: tuple[int, ...]) -> Pixels:
    single = shapes.fit_images(images[None], shape)
    if single is not None:
        return single
    many = channels_first(images)
    found = shapes.fit_images(many, shape) if many.ndim else None
    return many if found is None else found


def read_npy(path: Path) -> Pixels:
    """The array of a `.npy` file; `ConfigError` for another file, or one that needs unpickling."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read {path} as a numpy array", quoted=error) from error
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{path} holds several arrays", remedy="name it .npz")
    return array


def read_npz(path: Path) -> dict[str, Pixels]:
    """The arrays of an `.npz` file by name; `ConfigError` for another file, or one that needs unpickling."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read {path} as an .npz archive", quoted=error) from error


def examples_of(
    arrays: dict[str, Pixels], *, split: str, source: str, options: ArrayOptions = UNSAID
) -> tuple[LabelledData, bool]:
    """The examples of an archive, and whether it has its own test part.

    Their classes are those of both parts. Raises `ConfigError` if neither `x_train y_train x_test y_test` nor
    `images labels` exist, and for arrays that are no examples (`validation`).
    """
    official = all(name in arrays for names in _SPLIT_NAMES.values() for name in names)
    parts = _SPLIT_NAMES if official else {split: _WHOLE_NAMES}
    missing = next((name for name in parts[split] if name not in arrays), None)
    if missing is not None:
        raise ConfigError(
            f"{source} has no array '{missing}'{nearest(missing, arrays)}",
            remedy="expected images and labels, or x_train, y_train, x_test and y_test",
        )
    images, _ = parts[split]
    pixels = validation.checked_images(arrays[images], f"{source}: array '{images}'")
    # The names of the classes, if any.
    names = tuple(map(str, arrays.get("class_names", arrays.get("label_names", ()))))
    labels = {
        name: validation.checked_labels(
            arrays[own], f"{source}: array '{own}'", images=len(arrays[of]), class_names=names
        )
        for name, (of, own) in parts.items()
    }
    others = tuple(labels.values())
    data = examples(pixels, labels[split], source, options=options, class_names=names, other_parts=others)
    return data, official


def read_digits(split: source_options.Split) -> dataset.LabelledData:
    """1,438 digits for training or 359 for tests, always the same split."""
    with resources.as_file(resources.files("edge_client.data") / "digits.npz") as path:
        arrays = read_npz(path)
    preprocessing = Preprocessing(scale=16.0, mean=(0.3053,), std=(0.3760,))
    return source_options.split_off(
        dataset.make_labelled_data(arrays["images"], arrays["labels"], preprocessing=preprocessing), split
    )
