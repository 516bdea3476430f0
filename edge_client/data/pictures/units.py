"""Numbers of pictures in units of which 255 is full brightness: of files and of arrays, without Pillow."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.pictures.scale import scale_in_words
from edge_client.data.said_once import say_once
from schemas.errors import ConfigError, format_count
from schemas.values import MIN_MAX, PictureScale

FULL_RANGES = {
    np.dtype(kind): float(np.iinfo(kind).max) for kind in (np.uint8, np.uint16, np.int16, np.uint32)
}
"""Where the range of the types ends that cameras have; numpy makes others of any whole numbers."""
MIN_SPREAD = 1 / 8  # deep pictures that use less of their range are probably to be scaled otherwise


def in_units(planes: NDArray[Any], full: float, scale: PictureScale | None) -> NDArray[Any]:
    """Pixels [C, H, W] of numbers of this shape; bytes stay bytes. A fourth channel is alpha.

    Raises `ConfigError` unless all are finite.
    """
    if scale is None and planes.dtype == np.uint8:
        return np.ascontiguousarray(planes)
    if planes.dtype.kind == "f" and not np.isfinite(planes).all():
        raise ConfigError(
            "its pixels are not all finite numbers", remedy="put a number in place of missing ones"
        )
    made: NDArray[Any] = planes.astype(np.float64 if planes.itemsize > 2 else np.float32, order="C")
    cut = 3 if len(made) == 4 else len(made)
    colours, alpha = made[:cut], made[cut:]
    low, high = (colours.min(), colours.max()) if scale == MIN_MAX else (0.0, full)
    if isinstance(scale, float):
        high = 1 / scale
    colours -= low
    colours /= (high - low or 1.0) / 255
    alpha /= full / 255
    return made.astype(np.float32, copy=False)


def arrays_in_units(images: NDArray[Any], scale: PictureScale | None) -> NDArray[Any]:
    """Pictures [N, C, H, W] as files of their type are read; 1 is full brightness of floats."""
    if scale is None and images.dtype == np.uint8:
        return images
    full = float(np.iinfo(images.dtype).max) if images.dtype.kind in "iu" else 1.0
    made = np.empty(images.shape, np.float32)
    for place, planes in enumerate(images):
        made[place] = in_units(planes, full, scale)
    return made


def say_range(
    pictures: Iterable[NDArray[Any]], count: int, where: str | Path, scale: PictureScale | None
) -> None:
    """Tell once how much of their range those of `count` pictures use that are scaled."""
    # A factor concerns pictures of 8 bits, too.
    scaled = [pixels for pixels in pictures if scale is not None or pixels.dtype != np.uint8]
    if not scaled or scale == MIN_MAX:
        return
    low, high = min(pixels.min() for pixels in scaled) / 255, max(pixels.max() for pixels in scaled) / 255
    is_odd = low < -1.01 or high > 1.01 or high - low < MIN_SPREAD
    what = "have more than 8 bits" if scale is None else f"are taken with scale={scale_in_words(scale)}"
    say_once(
        f"{where}: {len(scaled)} of {format_count(count, 'picture')} {what}; their pixels are "
        f"{low:.2g} to {high:.2g}, where 1 is full brightness"
        + (": another scale= would spread them" if is_odd else ""),
        logging.WARNING if is_odd else logging.INFO,
    )
