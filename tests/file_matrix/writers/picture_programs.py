"""Folders of pictures, as programs write them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from tests.file_matrix.programs import run
from tests.file_matrix.rows import Rows, Truth
from tests.file_matrix.writers.scenes import (
    HEIGHT,
    LOSSY,
    WIDTH,
    Array,
    by_opencv,
    by_pillow,
    picture_row,
    write_scenes,
)

PICTURE_PROGRAMS = Rows()
_pictures = partial(picture_row, PICTURE_PROGRAMS)


# Programs, which get raw pixels on their standard input, little endian.


def _convert(
    kind: str,
    ending: str,
    pixels: str,
    *options: str,
    read: Callable[[Path], Array] | None = None,
    prefix: str = "",
) -> None:
    def save(path: Path, array: Array) -> None:
        form = "gray:-" if array.ndim == 2 else "rgb:-"
        depth = str(8 * array.itemsize)
        size = ("-size", f"{WIDTH}x{HEIGHT}", "-depth", depth, "-endian", "LSB")
        run("convert", *size, form, *options, f"{prefix}{path}", stdin=array.tobytes())

    _pictures(kind, "convert", ending, save, pixels, read)


def _by_convert(path: Path) -> Array:
    """Grey pixels as 16 bits by the program that wrote them."""
    raw = run("convert", path, "-depth", "16", "-endian", "LSB", "gray:-")
    return np.frombuffer(raw, "<u2").reshape(HEIGHT, WIDTH)


_convert("PNG, grey of 16 bits", "png", "grey 16")
_convert("PNG, colour of 16 bits", "png", "colour 16")
_convert("PNG, palette", "png", "colour", read=by_pillow, prefix="PNG8:")
_convert("JPEG, colour", "jpg", "colour", read=by_opencv)
_convert("JPEG, CMYK", "jpg", "colour", "-colorspace", "CMYK", read=by_pillow)
_convert("TIFF, grey of 16 bits", "tif", "grey 16")
_convert("TIFF, grey of 12 bits", "tif", "grey 16", "-depth", "12", read=_by_convert)
_convert("TIFF, colour of 16 bits, zip", "tif", "colour 16", "-compress", "zip")
_convert("PGM, plain text", "pgm", "grey", "-compress", "none")
_convert("PGM, grey of 16 bits", "pgm", "grey 16")
_convert("PPM, colour of 16 bits", "ppm", "colour 16")
_convert("BMP, version 3", "bmp", "colour", prefix="BMP3:")
_convert("GIF", "gif", "grey", read=by_pillow)
_convert("TGA", "tga", "colour", read=by_pillow)
_convert("WebP, lossless", "webp", "colour", "-define", "webp:lossless=true")


@PICTURE_PROGRAMS.row("PNG, grey of 16 bits", "pnmtopng", "folder:FOLDER", requests="*/*")
def _(folder: Path) -> Truth:
    def save(path: Path, array: Array) -> None:
        head = f"P5 {WIDTH} {HEIGHT} 65535\n".encode()
        path.write_bytes(run("pnmtopng", stdin=head + array.astype(">u2").tobytes()))

    return write_scenes(folder, "grey 16", "png", save, None, tolerance=1e-6)


def _encoder(
    kind: str,
    writer: str,
    ending: str,
    *command: str,
    read: Callable[[Path], Array] = by_pillow,
    pixels: str = "colour",
    tolerance: float = LOSSY,
) -> None:
    """A row of a program that turns `IN` (a PNG file) into `OUT`."""

    def save(path: Path, array: Array) -> None:
        import cv2

        source = path.with_suffix(".source.png")
        assert cv2.imwrite(str(source), array if array.ndim == 2 else array[..., ::-1])
        run(*(str({"IN": source, "OUT": path}.get(word, word)) for word in command))
        source.unlink()

    _pictures(kind, writer, ending, save, pixels, read, tolerance=tolerance)


def _by_heif(path: Path) -> Array:
    """Pixels by libheif's own program, as 8 bits."""
    from PIL import Image

    run("heif-convert", path, path.with_suffix(".read.png"))
    with Image.open(path.with_suffix(".read.png")) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    path.with_suffix(".read.png").unlink()
    return pixels


_encoder("HEIC", "heif-enc", "heic", "heif-enc", "-q", "90", "-o", "OUT", "IN", read=_by_heif)
_encoder("HEIC, ending .HEIF", "heif-enc", "HEIF", "heif-enc", "-q", "90", "-o", "OUT", "IN", read=_by_heif)
_encoder(
    "HEIC, 10 bits",
    "heif-enc",
    "heic",
    "heif-enc",
    "-q",
    "90",
    "-b",
    "10",
    "-o",
    "OUT",
    "IN",
    read=_by_heif,
    pixels="colour 16",
)
_encoder("AVIF", "heif-enc", "avif", "heif-enc", "-A", "-q", "90", "-o", "OUT", "IN", read=_by_heif)
_encoder("AVIF, 10 bits", "avifenc", "avif", "avifenc", "-d", "10", "--min", "0", "--max", "10", "IN", "OUT")
_encoder("AVIF, lossless", "avifenc", "avif", "avifenc", "--lossless", "IN", "OUT")
_encoder("WebP, lossy", "cwebp", "webp", "cwebp", "-quiet", "IN", "-o", "OUT", read=by_opencv)
_encoder("WebP, lossless", "cwebp", "webp", "cwebp", "-quiet", "-lossless", "IN", "-o", "OUT", tolerance=1e-6)


def _ffmpeg(
    kind: str, ending: str, pixels: str, *options: str, read: Callable[[Path], Array] | None = None
) -> None:
    def save(path: Path, array: Array) -> None:
        form = (
            ("gray" if array.ndim == 2 else "rgb24")
            if array.itemsize == 1
            else ("gray16le" if array.ndim == 2 else "rgb48le")
        )
        raw = ("-f", "rawvideo", "-pix_fmt", form, "-s", f"{WIDTH}x{HEIGHT}", "-i", "-")
        run("ffmpeg", "-v", "error", *raw, *options, path, stdin=array.tobytes())

    _pictures(kind, "ffmpeg", ending, save, pixels, read)


_ffmpeg("JPEG, a frame of a camera", "jpg", "colour", "-pix_fmt", "yuvj420p", "-q:v", "2", read=by_opencv)
_ffmpeg("JPEG, grey", "jpg", "grey", "-pix_fmt", "gray", "-q:v", "2", read=by_opencv)
_ffmpeg("PNG, colour", "png", "colour")
_ffmpeg("PNG, grey of 16 bits", "png", "grey 16", "-pix_fmt", "gray16be")
_ffmpeg("PNG, colour of 16 bits", "png", "colour 16", "-pix_fmt", "rgb48be")
_ffmpeg("TIFF, grey of 16 bits", "tiff", "grey 16", "-pix_fmt", "gray16le")
_ffmpeg("TIFF, colour of 16 bits", "tiff", "colour 16", "-pix_fmt", "rgb48le")
_ffmpeg("PGM, grey of 16 bits", "pgm", "grey 16", "-pix_fmt", "gray16be")
_ffmpeg("BMP, colour", "bmp", "colour", "-pix_fmt", "bgr24")
_ffmpeg("GIF", "gif", "grey", read=by_pillow)
_ffmpeg("TGA, colour", "tga", "colour", "-pix_fmt", "bgr24")
_ffmpeg("JPEG 2000, grey of 16 bits", "jp2", "grey 16", "-pix_fmt", "gray16le", "-pred", "1", read=by_opencv)
