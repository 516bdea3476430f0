"""Picture files as pixels: one way for training, `infer` and `serve`.

Pillow reads what it can without starting another program; HEIC needs pillow-heif.
"""

import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL import __version__ as pillow_version
from PIL.ImageFile import ImageFile

from edge_client.data.dataset import Pixels
from edge_client.data.pictures.units import in_units
from schemas.errors import ConfigError
from schemas.values import PictureScale

MAX_PIXELS = 40_000_000  # with 8 bits per colour, or one colour: deep colours take four times the memory
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
HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
HEIF_REMEDY = "pip install 'edge-federation[heif]' reads them"
NO_IMAGE = "it is not an image of a kind that is read: save it as PNG or JPEG"
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
    sounds = {".wav": "wav:FOLDER reads recordings"}
    remedies = sounds | heif | dict.fromkeys(missing, f"a later Pillow than {pillow_version} reads them")
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
    return "the image" if isinstance(file, bytes) else f"image {file}"


def _read(file: BinaryIO, scale: PictureScale | None) -> Picture:
    with _open(file) as picture:
        if is_cut(picture, file):
            raise ConfigError(
                "of its colours only 8 bits could be read", remedy="save it as PNG, or with 8 bits"
            )
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
                "Pillow does not read this kind of TIFF",
                remedy="save it with 8 or 16 bits, or one channel of floats",
            ) from None
        raise


def _register_heif() -> None:
    try:
        import pillow_heif
    except ImportError:
        raise ConfigError("it is HEIC", remedy=HEIF_REMEDY) from None
    pillow_heif.register_heif_opener()


# The numbers of a picture in units of which 255 is its full range, whatever its depth.
#
# Pictures of 8 bits stay bytes, everything deeper becomes float32, so that cameras of 8 and of 16 bits agree:
#
# | file | 255 is |
# | --- | --- |
# | 12 or 16 bits; whole numbers with a sign or of 32 bits | the largest number of that type |
# | PGM and PPM | the largest value that the file states |
# | floats (TIFF, PFM) | 1.0 |
#
# unless a scale says otherwise (`units`): `min-max` spreads each picture from its darkest to its brightest
# pixel, with a factor 255 is the value that times the factor is 1. Pillow cuts 16-bit colour to the high
# byte; the low byte comes from decoding once more in the other byte order.

Values = NDArray[Any]
GREY_MODES, DEEP_MODES = ("1", "L", "LA", "La"), ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
_OTHER_ORDER = {"L": "B", "B": "L", "N": "B" if sys.byteorder == "little" else "L"}
LOW_BYTES = {
    f"{colours};16{order}": f"{colours};16{other}"
    for colours in ("RGB", "RGBA", "RGBX")
    for order, other in _OTHER_ORDER.items()
}
"""Pillow's raw mode that decodes the low byte of 16-bit numbers, by the one that decodes the high byte."""
GREY_WITH_ALPHA = "LA;16B"
AS_UNPACKED = {"F;32BF": "F;32NF", "I;16BS": "I;16NS", "I;32BS": "I;32NS"}
"""libtiff unpacks numbers in this machine's order, where Pillow expects them as in the file."""
BITS, PHOTOMETRIC, PLANES, SAMPLE_FORMAT = 258, 262, 284, 339  # tags of a TIFF


def values_of(picture: ImageFile, file: BinaryIO) -> tuple[Values, float]:
    """The numbers [H, W] or [H, W, 3 or 4] of an opened picture, upright, and its full range."""
    codec, raw, most = coding_of(picture)
    if codec == "ppm" and most > 255:
        return _of_ppm(picture, file), float(most)
    if raw in LOW_BYTES:
        high = np.asarray(ImageOps.exif_transpose(picture), np.uint16)
        return high << 8 | _decoded_as(LOW_BYTES[raw], picture, file), 65535.0
    if raw == GREY_WITH_ALPHA:
        pairs = _decoded_as("RGBA", picture, file)
        return pairs[..., 0] << 8 | pairs[..., 1], 65535.0
    if codec == "libtiff" and raw in AS_UNPACKED:
        picture.tile = [_with_raw_mode(tile, AS_UNPACKED[raw]) for tile in picture.tile]
    upright = ImageOps.exif_transpose(picture)
    if picture.mode in DEEP_MODES:
        return _of_numbers(np.asarray(upright), picture)
    if picture.mode in GREY_MODES:
        return np.asarray(upright.convert("L")), 255.0
    clear = picture.mode.lower().endswith("a") or "transparency" in picture.info
    return np.asarray(upright.convert("RGBA" if clear else "RGB")), 255.0


def is_deep(picture: ImageFile) -> bool:
    """Whether an opened picture has more than 8 bits per colour."""
    _, raw, most = coding_of(picture)
    return picture.mode in DEEP_MODES or ";16" in raw or most > 255


def is_cut(picture: ImageFile, file: BinaryIO) -> bool:
    """Whether Pillow would cut the colours of an opened picture to 8 bits; in JPEG 2000 white turns black."""
    codec, raw, _ = coding_of(picture)
    if picture.mode in DEEP_MODES:
        return False
    tags = getattr(picture, "tag_v2", {})
    if tags.get(PLANES) == 2:
        return bool(max(tags.get(BITS, (8,))) > 8)
    if raw in LOW_BYTES or raw == GREY_WITH_ALPHA or codec == "ppm":
        return False
    return is_deep(picture) or (picture.format == "JPEG2000" and _bits_of_jpeg2000(file) > 8)


def coding_of(picture: ImageFile) -> tuple[str, str, int]:
    """Pillow's decoder and raw mode of an opened picture, and the largest value that a PPM states."""
    if not picture.tile:
        return "", "", 0
    codec, _, _, about = picture.tile[0]
    parts = about if isinstance(about, tuple) else (about,)
    most = parts[-1] if codec.startswith("ppm") else 0
    return codec, str(parts[0]), most


def _decoded_as(raw: str, picture: ImageFile, file: BinaryIO) -> NDArray[np.uint16]:
    """The picture, upright, its bytes decoded by another raw mode."""
    file.seek(0)
    with Image.open(file, formats=[str(picture.format)]) as again:
        again.tile = [_with_raw_mode(tile, raw) for tile in again.tile]
        return np.asarray(ImageOps.exif_transpose(again), np.uint16)


def _with_raw_mode(tile: Any, raw: str) -> Any:
    """What Pillow tells its decoder, with another raw mode; before Pillow 11 it was a plain tuple."""
    about = (raw, *tile[3][1:]) if isinstance(tile[3], tuple) else raw
    return tile._replace(args=about) if hasattr(tile, "_replace") else (*tile[:3], about)


def _of_ppm(picture: ImageFile, file: BinaryIO) -> Values:
    """The numbers of a binary PGM or PPM of 16 bits, which Pillow would round, or cut to 8."""
    shape = (picture.height, picture.width, len(picture.getbands()))
    file.seek(picture.tile[0][2])
    count = int(np.prod(shape))
    return np.frombuffer(file.read(2 * count), ">u2", count).reshape(shape)


def _of_numbers(values: Values, picture: ImageFile) -> tuple[Values, float]:
    """The numbers of a grey picture of more than 8 bits, and the largest of their type."""
    if values.dtype.kind == "f":
        return values, 1.0
    tags = getattr(picture, "tag_v2", {})
    bits, has_sign = tags.get(BITS, (16,))[0], tags.get(SAMPLE_FORMAT, (1,))[0] == 2
    if bits == 32 and not has_sign:
        values = values.view(np.uint32)
    full = 2.0 ** (bits - has_sign) - 1
    return (full - values if tags.get(PHOTOMETRIC) == 0 else values), full


def _bits_of_jpeg2000(file: BinaryIO) -> int:
    """Bits of the first colour, from the codestream's header (SIZ)."""
    place = file.tell()
    file.seek(0)
    head = file.read(1 << 16)
    file.seek(place)
    start = head.find(b"\xff\x4f\xff\x51")
    return 0 if start < 0 else (head[start + 42] & 0x7F) + 1
