"""The scenes that all writers of pictures store, and readers that are not the product's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.file_matrix.rows import Rows, Truth

Array = NDArray[Any]
HEIGHT, WIDTH = 32, 40
CLASSES = ("dark", "light")
EACH = 2
"""Pictures of a class."""
LOSSY = 0.02
"""Two decoders of a lossy format differ by a few levels of 255."""
Save = Callable[[Path, Array], None]


def scene(number: int, top: float) -> Array:
    """A smooth picture [H, W, 3] from 0 to 1, at most `top` in red; no two corners and channels are alike."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    red = (0.3 + 0.7 * columns / WIDTH) * (1 - 0.5 * rows / HEIGHT)
    green = 0.2 + 0.5 * rows / HEIGHT
    blue = 0.15 + 0.05 * number + 0.3 * (rows + columns) / (HEIGHT + WIDTH)
    return np.stack([red, green, blue], axis=2) * top


KINDS: dict[str, Callable[[Array], Array]] = {
    "grey": lambda scene: np.round(scene[..., 0] * 255).astype(np.uint8),
    "colour": lambda scene: np.round(scene * 255).astype(np.uint8),
    "grey 16": lambda scene: np.round(scene[..., 0] * 65535).astype(np.uint16),
    "grey 12": lambda scene: np.round(scene[..., 0] * 4095).astype(np.uint16),
    "grey 10": lambda scene: np.round(scene[..., 0] * 1023).astype(np.uint16),
    "colour 16": lambda scene: np.round(scene * 65535).astype(np.uint16),
    "colour 12": lambda scene: np.round(scene * 4095).astype(np.uint16),
    "signed 16": lambda scene: np.round(scene[..., 0] * 32767).astype(np.int16),
    "signed 32": lambda scene: np.round(scene[..., 0] * 65535).astype(np.int32),
    "float": lambda scene: scene[..., 0].astype(np.float32),
    "double": lambda scene: scene[..., 0].astype(np.float64),
    "float colour": lambda scene: scene.astype(np.float32),
    "bits": lambda scene: scene[..., 0] > 0.3,
}
"""Pixels [H, W] or [H, W, 3] of a kind from a scene."""


def units(pixels: Array) -> Array:
    """Pixels as [C, H, W] from 0 to 1: the full range of whole numbers, floats and bits as they are."""
    largest = np.iinfo(pixels.dtype).max if pixels.dtype.kind in "ui" else 1
    values = pixels.astype(np.float64) / largest
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def picture_row(
    rows: Rows,
    kind: str,
    writer: str,
    ending: str,
    save: Save,
    pixels: str = "colour",
    read: Callable[[Path], Array] | None = None,
    *,
    tolerance: float | None = None,
    **more: Any,
) -> None:
    """Add a row of four pictures in two classes; `more` are further fields of it."""
    bound = tolerance if tolerance is not None else 1e-6 if read is None else LOSSY

    @rows.row(kind, writer, "folder:FOLDER", requests="*/*", **more)
    def write(folder: Path) -> Truth:
        return write_scenes(folder, pixels, ending, save, read, tolerance=bound)


def write_scenes(
    folder: Path,
    kind: str,
    ending: str,
    save: Save,
    read: Callable[[Path], Array] | None,
    *,
    tolerance: float,
) -> Truth:
    """Save the scenes below a folder for each class; their truth is what `read` gives, or what was saved."""
    inputs, labels = [], []
    for name, top in zip(CLASSES, (0.4, 1.0), strict=True):
        (folder / name).mkdir()
        for number in range(EACH):
            path, pixels = folder / name / f"{number}.{ending}", KINDS[kind](scene(number, top))
            save(path, pixels)
            inputs.append(units(pixels if read is None else read(path)))
            labels.append(name)
    return Truth(np.stack(inputs), labels, tolerance)


def by_opencv(path: Path) -> Array:
    """Pixels by OpenCV: grey or colour as stored, 8 or 16 bits or floats, rotated as the camera says."""
    import cv2

    flags = cv2.IMREAD_ANYDEPTH | cv2.IMREAD_ANYCOLOR
    pixels: Array | None = cv2.imread(str(path), flags)
    assert pixels is not None, f"OpenCV cannot read {path}"
    return pixels if pixels.ndim == 2 else pixels[..., ::-1]


def by_pillow(path: Path) -> Array:
    """Pixels by Pillow: the first picture of the file, grey where Pillow says so, else in colour."""
    from PIL import Image, ImageOps

    with Image.open(path) as picture:
        mode = "L" if picture.mode in ("1", "L", "LA") else "RGB"
        return np.asarray(ImageOps.exif_transpose(picture).convert(mode))


def by_tifffile(path: Path) -> Array:
    """Pixels by tifffile: the first page."""
    import tifffile

    pixels: Array = tifffile.imread(path, key=0)
    return pixels
