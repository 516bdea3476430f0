"""Conversion of examples to a network's input shape; data keeps its shape until a network is known.

A missing or superfluous channel axis of 1 is adapted, since grey pictures are saved as [N, H, W] or [N, 1, H,
W]. Pictures from files are resized and converted to grey or colour, as `infer` does with a file. Anything
else is refused with both shapes.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from edge_client.data.columns import in_columns
from edge_client.data.said_once import say_once
from schemas.errors import ConfigError
from schemas.values import Feature, Preprocessing

if TYPE_CHECKING:
    from PIL import Image

    from edge_client.data.dataset import LabelledData, Pixels

Shape = tuple[int, ...]
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's mode by number of channels
MAX_INPUT, MIN_SPREAD = 50, 0.02  # inputs beyond it, or closer together, have another range than the model's
LUMA = (0.299, 0.587, 0.114)  # shares of red, green and blue in grey (ITU-R 601), as Pillow has them


def fit_data(data: "LabelledData", shape: Shape, columns: Sequence[Feature] = ()) -> "LabelledData":
    """The same examples as [N, *shape], with their columns in this order.

    Raises `ConfigError` with both shapes, or both lists of columns, if that is impossible.
    """
    data = in_columns(data, columns)
    if data.input_shape == shape or not len(data):
        return data
    if why := shape_misfit(data, shape):
        raise ConfigError(why)
    images = fit_images(data.images, shape)
    say_once(f"the data, {in_words(data.input_shape)}, is taken as {in_words(shape)}, which the model takes")
    return replace(data, images=_resize_images(data, shape) if images is None else images)


def say_other_scale(data: "LabelledData", common: Preprocessing) -> None:
    """Warn once of numbers that a model's preprocessing makes very large or very small.

    Arrays say by their type alone whether they are 0 to 255 or 0 to 1.
    """
    if data.preprocessing.scale == common.scale or not len(data):
        return
    low, high = float(data.images.min()), float(data.images.max())
    ends = [(end / common.scale - common.mean[0]) / min(common.std) for end in (low, high)]
    if max(map(abs, ends)) > MAX_INPUT or ends[1] - ends[0] < MIN_SPREAD:
        say_once(
            f"numbers from {low:g} to {high:g} become {ends[0]:.2g} to {ends[1]:.2g} by the model's "
            f"preprocessing, which divides by {common.scale:g}: save them in the range of the other data",
            logging.WARNING,
        )


def shape_misfit(data: "LabelledData", shape: Shape) -> str:
    """Why the examples cannot be converted to this shape; empty if they can."""
    own = data.input_shape
    picture = data.resizable and len(shape) == 3 and shape[0] in MODES
    if not len(data) or picture or alike(own, shape):
        return data.question if data.unscaled and len(shape) > len(own) else ""
    return f"the model takes {in_words(shape)}, the data is {in_words(own)}"


def fit_images(images: "Pixels", shape: Shape) -> "Pixels | None":
    """Images [N, ...] as [N, *shape] if only a channel axis of 1 differs, else None."""
    return images.reshape(len(images), *shape) if alike(images.shape[1:], shape) else None


def alike(own: Shape, shape: Shape) -> bool:
    """Whether two shapes are equal but for a first axis of 1."""
    return own == shape or (1, *own) == shape or own == (1, *shape)


def resize(picture: "Image.Image", width: int, height: int) -> "Image.Image":
    """The picture in another size, by the same filter everywhere."""
    from PIL import Image

    return picture.resize((width, height), Image.Resampling.BILINEAR)


def redrawn(pixels: "Pixels", shape: Shape) -> "Pixels":
    """A picture [C, H, W] in other colours and another size; floats keep their depth."""
    import numpy as np
    from PIL import Image

    if pixels.shape == shape:
        return pixels
    channels, height, width = shape
    if pixels.dtype == np.uint8:
        given = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        picture = np.asarray(resize(given.convert(MODES[channels]), width, height))
        return picture.reshape(height, width, channels).transpose(2, 0, 1)
    planes = [Image.fromarray(plane) for plane in _in_colours(pixels, channels)]
    return np.stack([np.asarray(resize(plane, width, height)) for plane in planes])


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


def with_side(data: "LabelledData", side: int) -> "LabelledData":
    """Pictures [N, C, H, W] of bytes or of files as [N, C, side, side]; `ConfigError` for other data."""
    import numpy as np

    picture = data.in_units or data.images.dtype == np.uint8
    if data.images.ndim != 4 or not picture or data.input_shape[0] not in MODES:
        kind = f"{in_words(data.input_shape)} of {data.images.dtype}"
        raise ConfigError(
            f"only pictures of bytes, grey or coloured, can be resized, and the examples are {kind}"
        )
    return replace(data, images=_all_redrawn(data, (data.input_shape[0], side, side)))


def in_words(shape: Shape) -> str:
    """A shape as text: 1x8x8."""
    return "x".join(str(size) for size in shape) or "a single number"


# A device fits what it trains on and what it holds out, again for every task.
@lru_cache(maxsize=2)
def _resize_images(data: "LabelledData", shape: Shape) -> "Pixels":
    return _all_redrawn(data, shape)


def _all_redrawn(data: "LabelledData", shape: Shape) -> "Pixels":
    import numpy as np

    made = np.empty((len(data), *shape), data.images.dtype)
    for place, pixels in enumerate(data.images):
        made[place] = redrawn(pixels, shape)
    return made
