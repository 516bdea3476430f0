"""Folders of pictures, as libraries and programs write them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.programs import run
from tests.file_matrix.rows import NOTHING, Rows, Truth, refused
from tests.file_matrix.writers.scenes import (
    HEIGHT,
    WIDTH,
    Array,
    by_opencv,
    by_pillow,
    by_tifffile,
    write_scenes,
)

PICTURES = Rows()
Save = Callable[[Path, Array], None]
LOSSY = 0.02
"""Two decoders of a lossy format differ by a few levels of 255."""


def _pictures(
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
    """A row of four pictures in two classes."""
    bound = tolerance if tolerance is not None else 1e-6 if read is None else LOSSY

    @PICTURES.row(kind, writer, "folder:FOLDER", requests="*/*", **more)
    def write(folder: Path) -> Truth:
        return write_scenes(folder, pixels, ending, save, read, tolerance=bound)


# Pillow: each mode that a format has. The mode is that of the file, the pixels those of the scene.


def _pillow(
    kind: str,
    ending: str,
    mode: str = "RGB",
    pixels: str = "colour",
    read: Callable[[Path], Array] | None = None,
    intended: Mapping[str, str] = NOTHING,
    **how: Any,
) -> None:
    def save(path: Path, array: Array) -> None:
        from PIL import Image

        picture = Image.fromarray(array)
        if mode in ("LA", "RGBA"):
            picture.putalpha(Image.linear_gradient("L").resize(picture.size))
        elif mode != picture.mode:
            picture = picture.convert(mode)
        picture.save(path, **how)

    _pictures(kind, "pillow", ending, save, pixels, read, intended=intended)


OTHER_KIND = {"training": "expected files such as", "infer": "expected .png or .jpg", "serve": "no image"}
_pillow("PNG, 1 bit", "png", "1", "bits")
_pillow("PNG, grey", "png", "L", "grey")
_pillow("PNG, grey with transparency", "png", "LA", "grey")
_pillow("PNG, palette", "png", "P", read=by_pillow)
_pillow("PNG, palette, a transparent colour", "png", "P", read=by_pillow, transparency=0)
_pillow("PNG, colour", "png")
_pillow("PNG, colour with transparency", "png", "RGBA")
_pillow("PNG, grey of 16 bits", "png", "I;16", "grey 16")
_pillow("PNG, grey of 12 bits in 16", "png", "I;16", "grey 12")
_pillow("JPEG, grey", "jpg", "L", "grey", by_opencv)
_pillow("JPEG, colour", "jpg", read=by_opencv)
_pillow("JPEG, progressive", "jpeg", read=by_opencv, progressive=True)
_pillow("JPEG, ending .JPG", "JPG", read=by_opencv)
_pillow("JPEG, CMYK", "jpg", "CMYK", read=by_pillow)
_pillow("BMP, 1 bit", "bmp", "1", "bits")
_pillow("BMP, grey", "bmp", "L", "grey")
_pillow("BMP, palette", "bmp", "P", read=by_pillow)
_pillow("BMP, colour", "bmp")
_pillow("GIF, grey", "gif", "L", "grey", by_pillow)
_pillow("GIF, palette", "gif", "P", read=by_pillow)
_pillow("TIFF, 1 bit, group 4", "tif", "1", "bits", compression="group4")
_pillow("TIFF, grey", "tif", "L", "grey")
_pillow("TIFF, grey with transparency", "tif", "LA", "grey")
_pillow("TIFF, palette", "tif", "P", read=by_pillow)
_pillow("TIFF, colour, LZW", "tif", compression="tiff_lzw")
_pillow("TIFF, colour, deflate", "tiff", compression="tiff_adobe_deflate")
_pillow("TIFF, colour, JPEG", "tif", read=by_pillow, compression="jpeg")
_pillow("TIFF, colour with transparency", "tif", "RGBA")
_pillow("TIFF, CMYK", "tif", "CMYK", read=by_pillow)
_pillow("TIFF, grey of 16 bits", "tif", "I;16", "grey 16")
_pillow("TIFF, grey of 32 bits", "tif", "I", "signed 32")
_pillow("TIFF, floats", "tif", "F", "float")
_pillow("WebP, lossy", "webp", read=by_opencv)
_pillow("WebP, lossless", "webp", lossless=True)
_pillow("WebP, lossless with transparency", "webp", "RGBA", lossless=True, exact=True)
_pillow("AVIF", "avif", read=by_pillow)
_pillow("JPEG 2000, grey", "jp2", "L", "grey")
_pillow("JPEG 2000, colour", "jp2")
_pillow("JPEG 2000, grey of 16 bits", "jp2", "I;16", "grey 16")
_pillow("PBM, 1 bit", "pbm", "1", "bits")
_pillow("PGM, grey", "pgm", "L", "grey")
_pillow("PGM, grey of 16 bits", "pgm", "I;16", "grey 16")
_pillow("PPM, colour", "ppm")
_pillow("TGA, colour", "tga")
_pillow("PCX, colour", "pcx", intended=OTHER_KIND)
_pillow("SGI, colour", "sgi", intended=OTHER_KIND)
_pillow("QOI, colour", "qoi")


def _rotated(orientation: int) -> None:
    """A camera's JPEG that is to be shown rotated."""

    def save(path: Path, array: Array) -> None:
        from PIL import ExifTags, Image

        picture = Image.fromarray(array)
        exif = picture.getexif()
        exif[ExifTags.Base.Orientation] = orientation
        picture.save(path, exif=exif)

    _pictures(f"JPEG, orientation {orientation} of a camera", "pillow", "jpg", save, read=by_opencv)


for orientation in (2, 3, 4, 5, 6, 7, 8):
    _rotated(orientation)


def _several(kind: str, ending: str, read: Callable[[Path], Array], **how: Any) -> None:
    """A file of several pictures, of which the first is meant."""

    def save(path: Path, array: Array) -> None:
        from PIL import Image

        picture = Image.fromarray(array)
        picture.save(path, save_all=True, append_images=[Image.new("RGB", picture.size)], **how)

    _pictures(kind, "pillow", ending, save, read=read)


_several("GIF, animated", "gif", by_pillow)
_several("TIFF, two pages", "tif", by_pillow)
_several("MPO, two views", "mpo", by_pillow)
_several("PNG, animated", "png", by_pillow)
_several("WebP, animated", "webp", by_pillow, lossless=True)


# OpenCV, of the depths that its arrays have.


def _opencv(
    kind: str, ending: str, pixels: str, read: Callable[[Path], Array] | None = None, **more: Any
) -> None:
    def save(path: Path, array: Array) -> None:
        import cv2

        assert cv2.imwrite(str(path), array if array.ndim == 2 else array[..., ::-1]), path

    _pictures(kind, "opencv-python-headless", ending, save, pixels, read, **more)


_opencv("PNG, grey", "png", "grey")
_opencv("PNG, colour", "png", "colour")
_opencv("PNG, grey of 16 bits", "png", "grey 16")
_opencv("PNG, colour of 16 bits", "png", "colour 16")
_opencv("PNG, colour of 12 bits in 16", "png", "colour 12")
_opencv("JPEG, grey", "jpg", "grey", by_opencv)
_opencv("JPEG, colour", "jpg", "colour", by_opencv)
_opencv("BMP, colour", "bmp", "colour")
_opencv("TIFF, colour", "tif", "colour")
_opencv("TIFF, grey of 16 bits", "tif", "grey 16")
_opencv("TIFF, colour of 16 bits", "tif", "colour 16")
_opencv("TIFF, floats", "tif", "float")
FEWER_BITS = refused("save it with 8 or 16 bits, or one channel of floats")
_opencv("TIFF, floats of 64 bits", "tif", "double", intended=FEWER_BITS)
_opencv("TIFF, floats in colour", "tif", "float colour", intended=FEWER_BITS)
_opencv("PGM, grey of 16 bits", "pgm", "grey 16")
_opencv("PPM, colour of 16 bits", "ppm", "colour 16")
_opencv("JPEG 2000, grey of 16 bits", "jp2", "grey 16", by_opencv)
_opencv("JPEG 2000, colour", "jp2", "colour", by_opencv)
_opencv("WebP", "webp", "colour", by_opencv)
_opencv("AVIF", "avif", "colour", by_opencv)
_opencv("PFM, floats", "pfm", "float")


# tifffile, for microscopes and cameras of science.


def _tifffile(kind: str, pixels: str, *, change: Callable[[Array], Array] | None = None, **how: Any) -> None:
    """A row of `tifffile.imwrite`, after a `change` of the pixels."""

    def save(path: Path, array: Array) -> None:
        import tifffile

        tifffile.imwrite(path, array if change is None else change(array), **how)

    _pictures(kind, "tifffile", "tif", save, pixels, None if change is None else by_tifffile)


_tifffile("TIFF, grey", "grey")
_tifffile("TIFF, colour", "colour", photometric="rgb")
_tifffile("TIFF, grey of 16 bits, big endian", "grey 16", byteorder=">")
_tifffile("TIFF, colour of 16 bits", "colour 16", photometric="rgb")
_tifffile("TIFF, grey of 10 bits in 16", "grey 10")
_tifffile("TIFF, signed 16 bits", "signed 16")
_tifffile("TIFF, floats", "float")
_tifffile("BigTIFF, grey of 16 bits", "grey 16", bigtiff=True)
_tifffile("TIFF, tiles, zlib", "grey 16", tile=(16, 16), compression="zlib")
_tifffile("TIFF, ImageJ", "grey 16", imagej=True)
_tifffile("TIFF, OME", "grey 16", ome=True)
_tifffile(
    "TIFF, stack of three pages",
    "grey 16",
    change=lambda array: np.stack([array, array // 2, array // 3]),
    photometric="minisblack",
)


def _imageio(kind: str, ending: str, pixels: str, read: Callable[[Path], Array] | None = None) -> None:
    def save(path: Path, array: Array) -> None:
        from imageio import v3

        v3.imwrite(path, array)

    _pictures(kind, "imageio", ending, save, pixels, read)


_imageio("PNG, grey of 16 bits", "png", "grey 16")
_imageio("JPEG, colour", "jpg", "colour", by_opencv)
_imageio("TIFF, floats", "tiff", "float")


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


def _by_tifffile_of_12_bits(path: Path) -> Array:
    """Pixels of 12 bits as 16."""
    return np.round(by_tifffile(path) * (65535 / 4095)).astype(np.uint16)


_convert("PNG, grey of 16 bits", "png", "grey 16")
_convert("PNG, colour of 16 bits", "png", "colour 16")
_convert("PNG, palette", "png", "colour", read=by_pillow, prefix="PNG8:")
_convert("JPEG, colour", "jpg", "colour", read=by_opencv)
_convert("JPEG, CMYK", "jpg", "colour", "-colorspace", "CMYK", read=by_pillow)
_convert("TIFF, grey of 16 bits", "tif", "grey 16")
_convert("TIFF, grey of 12 bits", "tif", "grey 16", "-depth", "12", read=_by_tifffile_of_12_bits)
_convert("TIFF, colour of 16 bits, zip", "tif", "colour 16", "-compress", "zip")
_convert("PGM, plain text", "pgm", "grey", "-compress", "none")
_convert("PGM, grey of 16 bits", "pgm", "grey 16")
_convert("PPM, colour of 16 bits", "ppm", "colour 16")
_convert("BMP, version 3", "bmp", "colour", prefix="BMP3:")
_convert("GIF", "gif", "grey", read=by_pillow)
_convert("TGA", "tga", "colour", read=by_pillow)
_convert("WebP, lossless", "webp", "colour", "-define", "webp:lossless=true")


@PICTURES.row("PNG, grey of 16 bits", "pnmtopng", "folder:FOLDER", requests="*/*")
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
