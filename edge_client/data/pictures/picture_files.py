"""Picture files as pixels: one way for training, `infer` and `serve`.

Pillow reads what it can without starting another program; HEIC needs pillow-heif.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL import __version__ as pillow_version
from PIL.ImageFile import ImageFile

from edge_client.data.dataset import Pixels
from edge_client.data.pictures.depth import GREY_MODES, GREY_WITH_ALPHA, coding_of, is_cut, is_deep, values_of
from edge_client.data.pictures.units import in_units
from schemas.errors import ConfigError
from schemas.values import PictureScale

MAX_PIXELS = 40_000_000
"""Of a picture with 8 bits per colour, or of one colour: deep colours take four times the memory."""
COMMON = ("JPEG", "PNG", "GIF", "BMP", "DIB", "PPM")
FURTHER = ("TIFF", "WEBP", "AVIF", "JPEG2000", "TGA", "QOI", "HEIF")
"""Formats that are read; no others, some of which start programs. Pillow imports the first at once."""
HEIF_ENDINGS = frozenset({".heic", ".heif", ".hif"})
ENDINGS = HEIF_ENDINGS | frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".bmp", ".dib", ".tif", ".tiff"),
        *(".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".tga", ".qoi", ".webp", ".avif", ".avifs"),
        *(".jp2", ".j2k", ".jpc", ".jpf", ".jpx", ".j2c"),
    }
)
"""Endings of picture files, in lower case."""
HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
HEIF_REMEDY = "pip install 'edge-federation[heif]' reads them"
NO_IMAGE = "it is no image of a kind that is read: save it as PNG or JPEG"
SEVERAL = "taken as the first of several in their file"
CLEAR = (
    "with transparent parts, which get the colours stored for them, often black: draw them on a background"
)


@dataclass(frozen=True, eq=False)
class Picture:
    """Pixels [C, H, W] with C of 1, 3 or 4, and notes on what a user may not expect."""

    pixels: Pixels
    notes: tuple[str, ...] = ()


def endings_read() -> tuple[frozenset[str], Mapping[str, str]]:
    """The endings of pictures that this installation reads, and by ending what would read the others."""
    is_there = find_spec("pillow_heif") is not None
    heif = {} if is_there else dict.fromkeys(HEIF_ENDINGS, HEIF_REMEDY)
    missing = ENDINGS - HEIF_ENDINGS - Image.registered_extensions().keys()
    remedies = heif | dict.fromkeys(missing, f"a later Pillow than {pillow_version} reads them")
    return ENDINGS - remedies.keys(), remedies


def read_picture(file: Path | bytes, *, scale: PictureScale | None = None) -> Picture:
    """The first picture of a file, or of the bytes of one, upright; `ConfigError` that names the file."""
    try:
        if isinstance(file, bytes):
            return _read(io.BytesIO(file), scale)
        with file.open("rb") as opened:
            return _read(opened, scale)
    except UnidentifiedImageError as error:
        raise ConfigError(f"cannot read {name_of(file)}: {NO_IMAGE}") from error
    except ConfigError as error:
        raise ConfigError(f"cannot read {name_of(file)}: {error}") from error
    except Exception as error:
        # Pillow's readers raise many kinds of errors for damaged files.
        if reason := getattr(error, "strerror", None):
            raise ConfigError(f"cannot read {name_of(file)}: {reason}") from error
        raise ConfigError(f"cannot read {name_of(file)}: it is broken", quoted=error) from error


def name_of(file: Path | bytes) -> str:
    """A picture in messages."""
    return "the image" if isinstance(file, bytes) else f"image {file}"


def _read(file: BinaryIO, scale: PictureScale | None) -> Picture:
    with _open(file) as picture:
        if is_cut(picture, file):
            raise ConfigError("of its colours only 8 bits could be read: save it as PNG, or with 8 bits")
        notes = (SEVERAL,) if getattr(picture, "is_animated", False) else ()
        values, full = values_of(picture, file)
        planes = np.atleast_3d(values).transpose(2, 0, 1)
        alpha = planes[3] if len(planes) == 4 else _alpha_of_grey(picture)
        if alpha is not None and alpha.min() < (full if len(planes) == 4 else 255):
            notes = (*notes, CLEAR)
    return Picture(in_units(planes, full, scale), notes)


def _alpha_of_grey(picture: ImageFile) -> Pixels | None:
    """The transparency of a grey picture, if it has any, in 8 bits."""
    # Pillow opens grey of 16 bits with alpha as RGBA.
    has_alpha = picture.mode in ("LA", "La") or coding_of(picture)[1] == GREY_WITH_ALPHA
    if not has_alpha and not (picture.mode in GREY_MODES and "transparency" in picture.info):
        return None
    return np.asarray(picture.convert("LA"))[..., 1]


def _open(file: BinaryIO) -> ImageFile:
    """The picture, not decoded yet; `ConfigError` if it is too large."""
    head = file.read(12)
    if head[4:8] == b"ftyp" and head[8:] in HEIF_BRANDS:
        _register_heif()
    try:
        picture = Image.open(file, formats=COMMON)
    except UnidentifiedImageError:
        Image.init()
        picture = _open_further(file, head)
    limit = MAX_PIXELS // (len(picture.getbands()) if is_deep(picture) else 1)
    if picture.width * picture.height > limit:
        raise ConfigError(
            f"{picture.width}x{picture.height} pixels are more than {limit // 10**6} million, the most "
            "for pictures of its depth"
        )
    return picture


def _open_further(file: BinaryIO, head: bytes) -> ImageFile:
    try:
        return Image.open(file, formats=[name for name in FURTHER if name in Image.OPEN])
    except UnidentifiedImageError:
        if head[:4] in (b"II*\0", b"MM\0*"):
            raise ConfigError(
                "Pillow does not read this kind of TIFF: save it with 8 or 16 bits, or one channel of floats"
            ) from None
        raise


def _register_heif() -> None:
    try:
        import pillow_heif
    except ImportError:
        raise ConfigError(f"it is HEIC: {HEIF_REMEDY}") from None
    pillow_heif.register_heif_opener()
