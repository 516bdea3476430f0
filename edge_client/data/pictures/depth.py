"""The numbers of a picture in units of which 255 is its full range, whatever its depth.

Pictures of 8 bits stay bytes, everything deeper becomes float32, so that cameras of 8 and of 16 bits agree:

| file | 255 is |
| --- | --- |
| 12 or 16 bits; whole numbers with a sign or of 32 bits | the largest number of that type |
| PGM and PPM | the largest value that the file states |
| floats (TIFF, PFM) | 1.0 |

unless a scale says otherwise: `min-max` spreads each picture from its darkest to its brightest pixel, with a
factor 255 is the value that times the factor is 1. Pillow cuts 16-bit colour to the high byte; the low byte
comes from decoding once more in the other byte order.
"""

import sys
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.ImageFile import ImageFile

from edge_client.data.dataset import Pixels
from schemas.errors import ConfigError
from schemas.values import MIN_MAX, PictureScale

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
BITS, PHOTOMETRIC, PLANES, SAMPLE_FORMAT = 258, 262, 284, 339
"""Tags of a TIFF."""


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
        picture.tile = [_recoded(tile, AS_UNPACKED[raw]) for tile in picture.tile]
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


def in_units(values: Values, full: float, scale: PictureScale | None) -> Pixels:
    """Pixels [C, H, W] of numbers [H, W] or [H, W, C]; `ConfigError` unless all are finite."""
    planes = np.atleast_3d(values).transpose(2, 0, 1)
    if scale is None and planes.dtype == np.uint8:
        return np.ascontiguousarray(planes)
    if planes.dtype.kind == "f" and not np.isfinite(planes).all():
        raise ConfigError("its pixels are not all finite numbers: put a number in place of missing ones")
    made: Values = planes.astype(np.float64 if planes.itemsize > 2 else np.float32, order="C")
    low, high = (made[:3].min(), made[:3].max()) if scale == MIN_MAX else (0.0, full)
    if isinstance(scale, float):
        high = 1 / scale
    made[:3] -= low
    made[:3] /= (high - low or 1.0) / 255
    made[3:] /= full / 255
    return made.astype(np.float32, copy=False)


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
        again.tile = [_recoded(tile, raw) for tile in again.tile]
        return np.asarray(ImageOps.exif_transpose(again), np.uint16)


def _recoded(tile: Any, raw: str) -> Any:
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
