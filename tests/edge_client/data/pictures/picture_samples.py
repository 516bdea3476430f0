"""Small pictures of every depth, written by OpenCV and Pillow."""

import io
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Values = NDArray[Any]
Writer = Callable[[Path], None]
RNG = np.random.default_rng(1)
GREY16 = RNG.integers(0, 65536, (6, 9), np.uint16)
COLOUR16 = RNG.integers(0, 65536, (6, 9, 3), np.uint16)
ALPHA16 = RNG.integers(0, 65536, (6, 9, 4), np.uint16)
FLOATS = RNG.random((6, 9), np.float32)
SIGNED = RNG.integers(-(2**31), 2**31, (6, 9)).astype(np.int32)


def opencv(values: Values, *options: int) -> Writer:
    """Writes blue first, as OpenCV has it."""
    return lambda path: _checked(cv2.imwrite(str(path), values, options))


def pillow(values: Values, **options: Any) -> Writer:
    return lambda path: Image.fromarray(values).save(path, **options)


def plain(head: bytes, values: Values) -> Writer:
    return lambda path: _checked(path.write_bytes(head + values.astype(">u2").tobytes()))


def deflated_tiff(values: Values, order: str = ">") -> Writer:
    """Writes a TIFF in that byte order, deflated, the colours [3, H, W] in planes of their own."""
    planes = values if values.ndim == 3 else values[None]
    strips = [zlib.compress(plane.astype(values.dtype.newbyteorder(order)).tobytes()) for plane in planes]
    count, (height, width) = len(planes), planes.shape[1:]
    sample = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    bits = [8 * values.itemsize] * count
    offsets = [8 + sum(map(len, strips[:place])) for place in range(count)]
    tags = {256: [width], 257: [height], 258: bits, 259: [8], 262: [1 if count == 1 else 2], 273: offsets}
    tags |= {277: [count], 278: [height], 279: list(map(len, strips)), 284: [min(count, 2)]}
    tags |= {339: [sample] * count}
    start = 8 + sum(map(len, strips))
    head = (b"MM" if order == ">" else b"II") + struct.pack(f"{order}HI", 42, start)
    rows, further, after = b"", b"", start + 2 + 12 * len(tags) + 4
    for tag, numbers in tags.items():
        data = struct.pack(f"{order}{len(numbers)}I", *numbers)
        place = struct.pack(f"{order}I", after + len(further)) if len(data) > 4 else data
        further += data if len(data) > 4 else b""
        rows += struct.pack(f"{order}HHI", tag, 4, len(numbers)) + place
    made = head + b"".join(strips) + struct.pack(f"{order}H", len(tags)) + rows + bytes(4) + further
    return lambda path: _checked(path.write_bytes(made))


def _checked(written: object) -> None:
    assert written


UNCOMPRESSED, LZW, DEFLATE = ((cv2.IMWRITE_TIFF_COMPRESSION, number) for number in (1, 5, 8))
DEEP: Mapping[str, tuple[Writer, float]] = {
    "grey.png": (opencv(GREY16), 65535),
    "grey.pgm": (opencv(GREY16), 65535),
    "grey.tif": (opencv(GREY16, *UNCOMPRESSED), 65535),
    "packed.tif": (opencv(GREY16, *LZW), 65535),
    "big-endian.tif": (pillow(GREY16.astype(">u2")), 65535),
    "deflated-grey.tif": (deflated_tiff(GREY16), 65535),
    "deflated-signed.tif": (deflated_tiff(GREY16.view(np.int16)), 32767),
    "deflated-whole.tif": (deflated_tiff(SIGNED), 2**31 - 1),
    "deflated-floats.tif": (deflated_tiff(FLOATS), 1),
    "grey.jp2": (opencv(np.tile(GREY16, (8, 8)), cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000), 65535),
    "signed.tif": (opencv(GREY16.view(np.int16)), 32767),
    "whole.tif": (opencv(SIGNED), 2**31 - 1),
    "unsigned.tif": (opencv(SIGNED.view(np.uint32)), 2**32 - 1),
    "floats.tif": (opencv(FLOATS), 1),
    "floats.pfm": (opencv(FLOATS), 1),
    "twelve.pgm": (plain(b"P5 # camera\n9 6\n4095\n", GREY16 >> 4), 4095),
    "twelve.ppm": (plain(b"P6\n9 6\n4095\n", COLOUR16 >> 4), 4095),
    "colour.png": (opencv(COLOUR16), 65535),
    "colour.ppm": (opencv(COLOUR16), 65535),
    "colour.tif": (opencv(COLOUR16, *UNCOMPRESSED), 65535),
    "packed-colour.tif": (opencv(COLOUR16, *DEFLATE), 65535),
    "alpha.png": (opencv(ALPHA16), 65535),
    "alpha.tif": (opencv(ALPHA16, *LZW), 65535),
}
"""How each is written, and the value that is full brightness."""


def read_by_opencv(path: Path) -> Values:
    """The numbers [C, H, W] of a file, red first."""
    values: Values = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if values.ndim == 2:
        return values[None]
    return values[..., [2, 1, 0, 3][: values.shape[2]]].transpose(2, 0, 1)


def encoded(picture: Image.Image, form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    picture.save(stream, form)
    return stream.getvalue()
