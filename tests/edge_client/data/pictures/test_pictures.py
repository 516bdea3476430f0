"""Picture files of every depth and kind, beside OpenCV and Pillow."""

import io
import struct
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from edge_client.data.pictures import picture_files
from edge_client.data.pictures.picture_files import CLEAR, ENDINGS, HEIF_REMEDY, endings_read, read_picture
from edge_client.data.pictures.scale import parsed_scale
from edge_client.data.shapes import redrawn
from schemas.errors import ConfigError
from schemas.values import MIN_MAX, PictureScale
from tests.edge_client.data.pictures.picture_samples import (
    COLOUR16,
    DEEP,
    GREY16,
    deflated_tiff,
    encoded,
    read_by_opencv,
)


@pytest.mark.parametrize("name", DEEP)
def test_deep_pictures_keep_every_number_as_opencv_reads_it(tmp_path: Path, name: str) -> None:
    write, full = DEEP[name]
    write(tmp_path / name)
    wanted = read_by_opencv(tmp_path / name)
    for file in (tmp_path / name, (tmp_path / name).read_bytes()):
        pixels = read_picture(file).pixels
        assert pixels.dtype == np.float32
        np.testing.assert_allclose(pixels, wanted * (255.0 / full), rtol=2e-7, atol=2e-5)


def test_a_camera_of_16_bits_agrees_with_one_of_8(tmp_path: Path) -> None:
    bytes_ = (GREY16 >> 8).astype(np.uint8)
    Image.fromarray(bytes_).save(tmp_path / "8.png")
    Image.fromarray(bytes_.astype(np.uint16) * 257).save(tmp_path / "16.png")
    shallow, deep = (read_picture(tmp_path / f"{bits}.png").pixels for bits in (8, 16))
    assert (shallow.dtype, deep.dtype) == (np.uint8, np.float32)
    assert (shallow == deep).all()


# 1000 of 65535, then three times as much: the factor 1/4000 makes a quarter and three quarters of them.
@pytest.mark.parametrize(
    ("scale", "wanted"),
    [(None, [1000 / 257, 3000 / 257]), (MIN_MAX, [0, 255]), (1 / 4000, [255 / 4, 3 * 255 / 4])],
)
def test_a_scale_says_what_becomes_full_brightness(
    tmp_path: Path, scale: PictureScale | None, wanted: list[float]
) -> None:
    Image.fromarray(np.array([[1000, 3000]], np.uint16)).save(tmp_path / "a.png")
    pixels = read_picture(tmp_path / "a.png", scale=scale).pixels
    np.testing.assert_allclose(pixels[0, 0], wanted, rtol=1e-6)


@pytest.mark.parametrize(("scale", "wanted"), [(MIN_MAX, [0, 255]), (1 / 100, [51, 127.5])])
def test_a_scale_holds_for_bytes_and_leaves_transparency(scale: PictureScale, wanted: list[float]) -> None:
    picture = Image.fromarray(np.array([[[20] * 3 + [7], [50] * 3 + [9]]], np.uint8), "RGBA")
    pixels = read_picture(encoded(picture), scale=scale).pixels
    np.testing.assert_allclose(pixels[:, 0], [wanted] * 3 + [[7, 9]], rtol=1e-6)


def test_min_max_of_one_grey_is_black() -> None:
    assert not read_picture(encoded(Image.new("L", (2, 2), 9)), scale=MIN_MAX).pixels.any()


def test_white_is_zero_in_a_tiff_of_16_bits_that_says_so(tmp_path: Path) -> None:
    Image.fromarray(GREY16).save(tmp_path / "a.tif", tiffinfo={262: 0})
    assert (read_picture(tmp_path / "a.tif").pixels[0] == (65535 - GREY16.astype(np.float32)) / 257).all()


@pytest.mark.parametrize("text", ["full", "min-max", "1/4095", "0.5"])
def test_scales_are_parsed(text: str) -> None:
    wanted = {"full": None, "min-max": MIN_MAX, "1/4095": 1 / 4095, "0.5": 0.5}
    assert parsed_scale(text, source="folder:a") == wanted[text]


@pytest.mark.parametrize("text", ["", "maximum", "0", "-1", "1/0", "nan", "inf", "1/x"])
def test_other_scales_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"folder:a: scale={text} must be full, min-max, or a positive"):
        parsed_scale(text, source="folder:a")


GREY, COLOUR = Image.effect_noise((9, 6), 90), Image.effect_noise((9, 6), 90).convert("RGB")
SHALLOW = {
    "1": (GREY.convert("1"), "L"),
    "L": (GREY, "L"),
    "LA": (GREY.convert("LA"), "L"),
    "P": (COLOUR.convert("P"), "RGB"),
    "PA": (COLOUR.convert("PA"), "RGBA"),
    "RGB": (COLOUR, "RGB"),
    "RGBA": (COLOUR.convert("RGBA"), "RGBA"),
    "CMYK": (COLOUR.convert("CMYK"), "RGB"),
    "YCbCr": (COLOUR.convert("YCbCr"), "RGB"),
}


@pytest.mark.parametrize("mode", SHALLOW)
def test_pictures_of_8_bits_are_bytes_as_pillow_converts_them(mode: str) -> None:
    picture, wanted = SHALLOW[mode]
    data = encoded(picture, "TIFF") if mode != "PA" else encoded(picture.convert("RGBA"))
    with Image.open(io.BytesIO(data)) as file:
        expected = np.atleast_3d(np.asarray(file.convert(wanted))).transpose(2, 0, 1)
    pixels = read_picture(data).pixels
    assert pixels.dtype == np.uint8
    assert (pixels == expected).all()


@pytest.mark.parametrize("alpha", [100, 65_535])
def test_transparency_of_16_bits_of_grey_is_noted(alpha: int) -> None:
    pixels = np.full((2, 3, 2), 65_535, ">u2")
    pixels[0, 0, 1] = alpha
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 3, 2, 16, 4, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    read = read_picture(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    assert (read.pixels == 255).all()
    assert (CLEAR in read.notes) is (alpha == 100)


def test_a_transparent_palette_keeps_its_transparency() -> None:
    picture = Image.new("P", (2, 1), 1)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.info["transparency"] = 1
    assert read_picture(encoded(picture)).pixels[:, 0, 0].tolist() == [10, 20, 30, 0]


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
@pytest.mark.parametrize("form", ["PNG", "TIFF"])
@pytest.mark.parametrize("turn", [3, 6, 8])
def test_pictures_are_upright_at_every_depth(depth: type, form: str, turn: int) -> None:
    values = (GREY16 >> (8 if depth == np.uint8 else 0)).astype(depth)
    exif = Image.Exif()
    exif[0x0112] = turn
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, form, exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(stream)), np.float32)
    assert upright.shape == ((6, 9) if turn == 3 else (9, 6))
    factor = 1 if depth == np.uint8 else 257
    np.testing.assert_allclose(read_picture(stream.getvalue()).pixels[0], upright / factor, rtol=1e-6)


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP", "PNG", "MPO", "AVIF"])
def test_of_several_pictures_in_a_file_the_first_is_taken_and_said(form: str) -> None:
    first, second = Image.new("RGB", (16, 16), (200, 0, 0)), Image.new("RGB", (16, 16), (0, 0, 200))
    stream = io.BytesIO()
    first.save(stream, form, save_all=True, append_images=[second])
    read = read_picture(stream.getvalue())
    assert read.notes == (picture_files.SEVERAL,)
    np.testing.assert_allclose(read.pixels[:3].mean((1, 2)), [200, 0, 0], atol=4)


def test_a_heic_photo_is_read_by_pillow_heif_or_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    data = encoded(Image.new("RGB", (64, 64), (10, 200, 90)), "HEIF")
    np.testing.assert_allclose(read_picture(data).pixels.mean((1, 2)), [10, 200, 90], atol=4)
    assert ".heic" in endings_read()[0]
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(
        ConfigError, match=r"cannot read the image: it is HEIC: pip install 'edge-fed.*\[heif\]'"
    ):
        read_picture(data)


def test_endings_are_those_that_pillow_and_pillow_heif_register() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    Image.init()
    assert Image.registered_extensions().keys() >= ENDINGS
    formats = {Image.registered_extensions()[ending] for ending in ENDINGS}
    assert formats - {"MPO"} == {*picture_files.COMMON, *picture_files.FURTHER}


def test_what_is_not_installed_is_left_out_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_files, "find_spec", lambda name: None)
    others = {ending: form for ending, form in Image.registered_extensions().items() if form != "AVIF"}
    monkeypatch.setattr(Image, "registered_extensions", lambda: others)
    endings, remedies = endings_read()
    assert not endings & {".heic", ".avif"}
    assert remedies[".heic"] == HEIF_REMEDY
    assert "later Pillow" in remedies[".avif"]
    assert ".jpg" in endings


JPEG = encoded(COLOUR.resize((90, 60)), "JPEG")
BROKEN = {
    "empty": (b"", "it is not an image"),
    "text": (b"Dear diary, today", "it is not an image"),
    "cut JPEG": (JPEG[: len(JPEG) // 2], "it is broken"),
    "cut PNG": (encoded(COLOUR)[:-60], "it is broken"),
    "cut deep PNG": (encoded(Image.fromarray(GREY16))[:70], "it is broken"),
    "cut PPM": (b"P6\n9 6\n4095\n" + bytes(99), "."),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "it is not an image"),
    "missing numbers": (encoded(Image.fromarray(np.full((2, 2), np.nan, np.float32)), "TIFF"), "finite"),
    "huge": (lambda: encoded(Image.new("1", (7000, 7000))), "7000x7000 pixels are more than 40 million"),
    "deep and large": (b"P6 4000 4000 65535\n", "4000x4000 pixels are more than 13 million"),
    "bomb": (lambda: encoded(Image.new("1", (20000, 20000))), "."),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_pictures_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    data, why = BROKEN[name]
    (tmp_path / "a.jpg").write_bytes(data if isinstance(data, bytes) else data())
    with pytest.raises(ConfigError, match=rf"(?s)cannot read image .*a\.jpg: .*({why})"):
        read_picture(tmp_path / "a.jpg")


@pytest.mark.parametrize("values", [np.zeros((4, 5, 3), np.float32), np.zeros((4, 5), np.float64)])
def test_a_tiff_that_pillow_does_not_read_names_the_remedy(tmp_path: Path, values: np.ndarray) -> None:
    cv2.imwrite(str(tmp_path / "a.tif"), values)
    with pytest.raises(ConfigError, match="this kind of TIFF: save it with 8 or 16 bits"):
        read_picture(tmp_path / "a.tif")


def test_planes_of_8_bits_are_read(tmp_path: Path) -> None:
    planes = (COLOUR16.transpose(2, 0, 1) >> 8).astype(np.uint8)
    deflated_tiff(planes)(tmp_path / "a.tif")
    assert (read_picture(tmp_path / "a.tif").pixels == planes).all()


def test_colours_that_would_be_cut_to_8_bits_are_refused(tmp_path: Path) -> None:
    values = np.full((64, 64, 3), 65535, np.uint16)
    cv2.imwrite(str(tmp_path / "a.jp2"), values)
    (tmp_path / "a.ppm").write_text("P3\n1 1\n65535\n1 2 3\n")
    deflated_tiff(COLOUR16.transpose(2, 0, 1))(tmp_path / "planes.tif")
    for name in ("a.jp2", "a.ppm", "planes.tif"):
        with pytest.raises(ConfigError, match="only 8 bits could be read: save it as PNG"):
            read_picture(tmp_path / name)


@pytest.mark.parametrize("shape", [(1, 4, 7), (3, 4, 7), (4, 4, 7), (1, 6, 9), (3, 12, 18)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_deep_pictures_are_redrawn_as_bytes_are_but_keep_their_depth(
    channels: int, shape: tuple[int, int, int]
) -> None:
    bytes_ = np.random.default_rng(2).integers(0, 256, (channels, 6, 9), np.uint8)
    bytes_[3:] = 255
    shallow, deep = redrawn(bytes_, shape), redrawn(bytes_.astype(np.float32), shape)
    assert (deep.dtype, deep.shape) == (np.float32, shape)
    # Bytes are rounded after grey, and after each axis.
    np.testing.assert_allclose(deep, shallow, atol=2)
    fine = redrawn(bytes_.astype(np.float32) / 257, shape)
    np.testing.assert_allclose(fine[:3] * 257, deep[:3], atol=1e-3)
