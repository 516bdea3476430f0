"""Folders of pictures, as libraries write them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import NOTHING, Rows, refused
from tests.file_matrix.writers.scenes import Array, by_opencv, by_pillow, by_tifffile, picture_row

PICTURES = Rows()
_pictures = partial(picture_row, PICTURES)


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


OTHER_KIND = {
    "training": "expected files such as",
    "infer": "expected .png or .jpg",
    "serve": "save it as PNG",
}
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
