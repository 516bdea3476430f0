"""Conversion of examples to a network's input shape; data keeps its shape until a network is known.

A missing or superfluous channel axis of 1 is adapted, since grey pictures are saved as [N, H, W] or [N, 1, H,
W]. Pictures from files are resized and converted to grey or colour, as `infer` does with a file; so are
arrays of pictures where the federation says how. Anything else is refused with both shapes.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from edge_client.data.columns import in_columns
from edge_client.data.said_once import say_once
from edge_client.system.hardware.memory import memory
from schemas.errors import ConfigError
from schemas.values import Preprocessing, Resizing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from edge_client.data.dataset import LabelledData, Labels, Pixels

Shape = tuple[int, ...]
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's mode by number of channels
MAX_INPUT, MIN_SPREAD = 50, 0.02  # inputs beyond it, or closer together, have another range than the model's
SHRUNK_TO = 640  # a photo of 12 million pixels takes 36 MB, with this longest side 0.9 MB
LUMA = (0.299, 0.587, 0.114)  # shares of red, green and blue in grey (ITU-R 601), as Pillow has them


def fit_data(
    data: "LabelledData", shape: Shape, common: Preprocessing | None = None, *, lazily: bool = False
) -> "LabelledData":
    """The same examples as [N, *shape], with columns in the order and pictures resized as `common` states.

    That is the data's own preprocessing unless given; `lazily`, pictures are resized when they are read.
    Raises `ConfigError` with both shapes, or both lists of columns, if that is impossible.
    """
    common = data.preprocessing if common is None else common
    data = in_columns(data, common.columns)
    how = common.resizing
    cut = data.sizes is not None and how is not None and (how.crop is not None or how.letterbox)
    if (data.input_shape == shape and not cut) or not len(data):
        return data
    if why := shape_misfit(data, shape, common):
        raise ConfigError(why)
    images = None if cut else fit_images(data.images, shape)
    say_once(f"the data, {in_words(data.input_shape)}, is taken as {in_words(shape)}, which the model takes")
    if images is None and lazily:
        return redraw_lazily(data, shape, how)
    labels = data.labels if images is not None else moved_labels(data, shape)
    images = _resize_images(data, shape, how) if images is None else images
    return replace(data, images=images, labels=labels, sizes=None)


def say_other_scale(data: "LabelledData", common: Preprocessing) -> None:
    """Warn once of numbers that a model's preprocessing makes very large or very small.

    Arrays say by their type alone whether they are 0 to 255 or 0 to 1, and floats not even so: the figures of
    a federation that says how pictures are resized are of 0 to 1.
    """
    unsure = common.resizing is not None and data.images.dtype.kind == "f"
    if (data.preprocessing.scale == common.scale and not unsure) or not len(data):
        return
    low, high = float(data.images.min()), float(data.images.max())
    ends = [(end / common.scale - common.mean[0]) / min(common.std) for end in (low, high)]
    if max(map(abs, ends)) > MAX_INPUT or ends[1] - ends[0] < MIN_SPREAD:
        say_once(
            f"numbers from {low:g} to {high:g} become {ends[0]:.2g} to {ends[1]:.2g} by the model's "
            f"preprocessing, which divides by {common.scale:g}: save them in the range of the other data",
            logging.WARNING,
        )


def shape_misfit(data: "LabelledData", shape: Shape, common: Preprocessing | None = None) -> str:
    """Why the examples cannot be converted to this shape; empty if they can."""
    own, says_how = data.input_shape, (common or data.preprocessing).resizing is not None
    pictures = len(shape) == 3 and shape[0] in MODES
    # Opaque is 255, and the brightness of arrays may have another unit.
    arrays = pictures and len(own) == 3 and own[0] in MODES and shape[0] < 4
    if not len(data) or (pictures and data.resizable) or (arrays and says_how) or alike(own, shape):
        return data.question if data.unscaled and len(shape) > len(own) else ""
    remedy = "; with [data] interpolation in the federation file arrays of pictures are resized, too"
    return f"the model takes {in_words(shape)}, the data is {in_words(own)}{remedy if arrays else ''}"


def fit_images(images: "Pixels", shape: Shape) -> "Pixels | None":
    """Images [N, ...] as [N, *shape] if only a channel axis of 1 differs, else None."""
    import numpy as np

    return np.asarray(images).reshape(len(images), *shape) if alike(images.shape[1:], shape) else None


def alike(own: Shape, shape: Shape) -> bool:
    """Whether two shapes are equal but for a first axis of 1."""
    return own == shape or (1, *own) == shape or own == (1, *shape)


def redrawn(
    pixels: "Pixels", shape: Shape, how: Resizing | None = None, size: Shape | None = None
) -> "Pixels":
    """A picture [C, H, W] in other colours and another size; floats keep their depth.

    `size` is its own height and width, if it has been stretched, or lies at the top left of a canvas.
    """
    import numpy as np
    from PIL import Image

    how, (channels, height, width) = how or Resizing(), shape
    if how.letterbox:
        return _letterboxed(pixels, shape, how, size or pixels.shape[1:])
    box = _crop_box(pixels.shape[1:], size or pixels.shape[1:], shape[1:], how.crop)
    if pixels.shape == shape and box is None:
        return pixels
    by = Image.Resampling[how.interpolation.upper()]

    def resize(picture: "Image.Image") -> "Image.Image":
        return picture.resize((width, height), by, box)

    if pixels.dtype == np.uint8:
        given = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        picture = np.asarray(resize(given.convert(MODES[channels])))
        return picture.reshape(height, width, channels).transpose(2, 0, 1)
    planes = [Image.fromarray(plane) for plane in _in_colours(pixels, channels)]
    return np.stack([np.asarray(resize(plane)) for plane in planes])


def letterbox_scale(size: Shape, wanted: Shape) -> float:
    """By what a picture of this height and width is magnified in a letterbox."""
    return min(wanted[0] / size[0], wanted[1] / size[1])


def _letterboxed(pixels: "Pixels", shape: Shape, how: Resizing, size: Shape) -> "Pixels":
    own, scale = pixels[:, : size[0], : size[1]], letterbox_scale(size, shape[1:])
    height, width = (max(1, round(scale * length)) for length in size)
    stretched = how.model_copy(update={"letterbox": False})
    made: Pixels = on_canvas([redrawn(own, (shape[0], height, width), stretched)], shape)[0][0]
    return made


def on_canvas(
    pictures: "Sequence[Pixels]", shape: Shape | None = None
) -> "tuple[Pixels, NDArray[np.int64] | None]":
    """Pictures [N, C, H, W] at the top left of black ones; and their heights and widths, if these differ.

    Without a shape it is the largest height and width, with one colour if all are grey, else three.
    """
    import numpy as np

    sizes = np.array([picture.shape[1:] for picture in pictures], np.int64)
    channels = 1 if all(len(picture) == 1 for picture in pictures) else 3
    shape = (channels, *sizes.max(0).tolist()) if shape is None else shape
    kind = np.result_type(*{picture.dtype for picture in pictures})
    made = np.zeros((len(pictures), *shape), kind)
    for canvas, picture, (height, width) in zip(made, pictures, sizes.tolist(), strict=True):
        canvas[:, :height, :width] = redrawn(picture, (shape[0], height, width))
    return made, sizes if (sizes != shape[1:]).any() else None


def moved_labels(data: "LabelledData", shape: Shape) -> "Labels":
    """The labels once pictures are redrawn in this shape: boxes are magnified with them."""
    import numpy as np

    if not data.has_boxes:
        return data.labels
    sizes = np.tile(data.input_shape[1:], (len(data), 1)) if data.sizes is None else data.sizes
    scales = np.array([letterbox_scale(size, shape[1:]) for size in sizes.tolist()], np.float32)
    boxes = data.labels[:, :, 1:] * scales[:, None, None]
    return np.asarray(np.concatenate([data.labels[:, :, :1], boxes], 2))


def _crop_box(
    own: Shape, size: Shape, wanted: Shape, crop: float | None
) -> tuple[float, float, float, float] | None:
    """Left, top, right and bottom of the part that is resized of a picture, stretched from `size` to `own`.

    None for all of it.
    """
    if crop is None or size == wanted:
        return None
    share = crop * min(size[0] / wanted[0], size[1] / wanted[1])
    down, right = (
        max(0.0, (1 - share * want / have) / 2 * now)
        for now, have, want in zip(own, size, wanted, strict=True)
    )
    return right, down, own[1] - right, own[0] - down


def shrunk(pixels: "Pixels", side: int, channels: int = 3) -> "Pixels":
    """A picture [C, H, W] whose longest side is at most `side`, of at most `channels` if it was larger."""
    own, *size = pixels.shape
    if max(size) <= side:
        return pixels
    height, width = (max(1, round(length * side / max(size))) for length in size)
    return redrawn(pixels, (min(own, channels), height, width))


def _in_colours(pixels: "Pixels", channels: int) -> "Pixels":
    """Floats [1, 3 or 4, H, W] as a picture with this number of channels, as Pillow converts bytes."""
    import numpy as np

    colours, alpha = pixels[:3], pixels[3:]
    if channels == 1:
        return colours if len(colours) == 1 else np.tensordot(LUMA, colours, 1)[None].astype(np.float32)
    if len(colours) == 1:
        colours = np.repeat(colours, 3, axis=0)
    if channels == 3:
        return colours
    return np.concatenate([colours, alpha if len(alpha) else np.full_like(colours[:1], 255)])


def with_sides(data: "LabelledData", sides: tuple[int, int]) -> "LabelledData":
    """Pictures of bytes or of files as [N, C, height, width], as their preprocessing resizes them.

    Each picture is resized when it is read. Raises `ConfigError` for other data.
    """
    import numpy as np

    picture = data.in_units or data.images.dtype == np.uint8
    if data.images.ndim != 4 or not picture or data.input_shape[0] not in MODES:
        kind = f"{in_words(data.input_shape)} of {data.images.dtype}"
        raise ConfigError(
            f"only pictures of bytes, grey or coloured, can be resized, and the examples are {kind}"
        )
    shape = data.input_shape[0], *sides
    return redraw_lazily(data, shape, data.preprocessing.resizing)


def redraw_lazily(data: "LabelledData", shape: Shape, how: Resizing | None) -> "LabelledData":
    """The same pictures, each of which becomes [C, H, W] of this shape when it is read."""
    images: Any = RedrawnPictures(data, shape, how)
    return replace(data, images=images, labels=moved_labels(data, shape), sizes=None)


class RedrawnPictures:
    """Pictures [N, *shape] of which an array is made of those that are asked for by their places."""

    def __init__(self, data: "LabelledData", shape: Shape, how: Resizing | None) -> None:
        self._data, self._how = data, how
        self.shape, self.ndim, self.dtype = (len(data), *shape), len(shape) + 1, data.images.dtype

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, places: "NDArray[np.int64] | slice") -> "Pixels":
        """The pictures [M, *shape] at these places."""
        import numpy as np

        chosen = np.arange(len(self))[places]
        return _all_redrawn(self._data.subset(chosen), self.shape[1:], self._how)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "Pixels":
        import numpy as np

        return np.asarray(self[:], dtype)


def in_words(shape: Shape) -> str:
    """A shape as text: 1x8x8."""
    return "x".join(str(size) for size in shape) or "a single number"


# A device fits what it trains on and what it holds out, again for every task.
@lru_cache(maxsize=2)
def _resize_images(data: "LabelledData", shape: Shape, how: Resizing | None) -> "Pixels":
    return _all_redrawn(data, shape, how)


def _all_redrawn(data: "LabelledData", shape: Shape, how: Resizing | None) -> "Pixels":
    import numpy as np

    needed, free = len(data) * math.prod(shape) * data.images.itemsize, memory().free
    if free is not None and needed > free:
        raise ConfigError(
            f"{len(data):,} pictures of {in_words(shape)} take {needed / 2**30:.1f} GiB of memory, and "
            f"{free / 2**30:.1f} GiB are free",
            remedy="give fewer examples, or state a smaller [model] input-shape in the federation file",
        )
    made = np.empty((len(data), *shape), data.images.dtype)
    for place, pixels in enumerate(data.images):
        size = None if data.sizes is None else tuple(data.sizes[place].tolist())
        made[place] = redrawn(pixels, shape, how, size)
    return made
