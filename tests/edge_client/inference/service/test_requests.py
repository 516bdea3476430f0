"""Valid requests, and the errors of all others."""

import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.service import requests
from edge_client.inference.service.requests import MAX_IMAGES, read_request, request_id
from schemas.errors import ConfigError
from tests.edge_client.inference.test_onnx_model import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model for inputs [1, 2, 3]."""
    folder = tmp_path_factory.mktemp("model")
    return load_model(write_model(folder / "model.onnx", shape=(1, 2, 3)), threads=1)


def png(size: tuple[int, int] = (3, 2), mode: str = "L", kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, (0, 0, 0, 255) if mode == "RGBA" else 0).save(file, kind)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def size(value: object) -> str | None:
    """The test id of a body."""
    return f"{len(value)}-bytes" if isinstance(value, bytes) else None


ONE = [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (png(), 1),
        (png(kind="BMP"), 1),
        (png(mode="RGBA"), 1),
        (npy(np.array(ONE, np.uint8)), 1),
        (npy(np.array([ONE])), 1),
        (npy(np.array([ONE, ONE], np.float64)), 2),
        (npy(np.array([[ONE], [ONE]])), 2),
        (npz(images=np.array([ONE, ONE, ONE]), labels=np.zeros(3)), 3),
        (npz(anything=np.array([ONE])), 1),
        (json.dumps({"pixels": ONE}).encode(), 1),
        (json.dumps({"pixels": [[ONE], [ONE]]}).encode(), 2),
        (json.dumps({"image": base64.b64encode(png()).decode()}).encode(), 1),
    ],
    ids=size,
)
def test_images_come_in_many_forms(model: LoadedModel, body: bytes, count: int) -> None:
    read = read_request(body, model)
    assert read.images.shape == (count, 1, 2, 3)
    assert (read.top, read.id, read.notes) == (1, None, ())


def test_pixels_are_used_unchanged(model: LoadedModel) -> None:
    body = json.dumps({"pixels": ONE, "top": 3, "id": "front-1"}).encode()
    read = read_request(body, model, top=2)
    np.testing.assert_array_equal(read.images[0, 0], ONE)
    assert (read.top, read.id) == (3, "front-1")


def test_an_image_of_another_size_is_resized_with_a_note(model: LoadedModel) -> None:
    assert read_request(png((6, 4), "RGB"), model).notes == ("resized from 6x4 to 3x2",)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the body is empty"),
        (b"no image", "it is not an image"),
        (b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + png(), "the body is a form"),
        (png()[:40], "cannot read the image"),
        (b"[1, 2]", "expected a JSON object"),
        (b'{"pixels": ', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"pixels": [[1, 2], [3]]}', "rows of equal length"),
        (b'{"pixels": [["a"]]}', "rows of equal length"),
        (b'{"pixels": [[1, 2]]}', "takes images of 1x2x3, got 1x2"),
        (b'{"pixels": [1, 2, 3, 4, 5, 6]}', "takes images of 1x2x3, got 6"),
        (b'{"pixels": 7}', "takes images of 1x2x3, got a single number"),
        (b'{"pixels": []}', "takes images of 1x2x3"),
        (b'{"pixels": [[0, 1, 2], [3, 4, NaN]]}', "not all finite"),
        (b'{"pixels": [[0, 1, 2], [3, 4, 1e999]]}', "not all finite"),
        (b'{"image": 3}', "not a text in base64"),
        (b'{"image": "????"}', "not valid base64"),
        (b'{"image": "aGVsbG8="}', "it is not an image"),
        (b"{}", "either 'image', 'pixels' or 'values'"),
        (b'{"image": "", "pixels": []}', "either 'image', 'pixels' or 'values'"),
        (b'{"imag": ""}', "unknown field 'imag'"),
        (b'{"pixels": [[0, 1, 2], [3, 4, 5]], "top": 0}', "'top' is '0'"),
        (b'{"pixels": [[0, 1, 2], [3, 4, 5]], "top": true}', "'top' is 'True'"),
        (npy(np.zeros((3, 2, 2))), "takes images of 1x2x3, got 1x2x2"),
        (npy(np.zeros((1, 3, 2, 3))), "takes images of 1x2x3, got 3x2x3"),
        (npy(np.zeros((0, 1, 2, 3))), "0 images at once"),
        (npy(np.zeros((MAX_IMAGES + 1, 1, 2, 3), np.uint8)), "257 images at once, expected 1 to 256"),
        (npy(np.array([["a", "b", "c"], ["a", "b", "c"]])), "pixels are numbers"),
        (npy(np.array([{}])), "cannot read the array"),
        (npy(np.array([ONE]))[:-3], "cannot read the array"),
        (npz(images=np.array([ONE]))[:-30], "cannot read the array"),
        (npz(a=np.array([ONE]), b=np.array([ONE])), "no array 'images' .it has: a, b"),
    ],
    ids=size,
)
def test_an_invalid_request_gives_a_one_line_error(model: LoadedModel, body: bytes, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        read_request(body, model)
    assert "\n" not in str(caught.value)
    assert " at 0x" not in str(caught.value)


def test_a_small_archive_that_unpacks_to_a_large_one_is_not_unpacked(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = npz(images=np.zeros((4096, 1, 2, 3), np.uint8))
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        size = archive.infolist()[0].file_size
    assert size > 10 * len(body)
    monkeypatch.setattr(requests, "MAX_UNPACKED", size - 1)
    with pytest.raises(ConfigError, match=f"unpacks to {size} bytes"):
        read_request(body, model)


def test_a_small_file_of_a_huge_image_is_not_decoded(model: LoadedModel) -> None:
    # 49 million pixels of one colour.
    with pytest.raises(ConfigError, match="7000x7000 pixels are more than 40 million"):
        read_request(png((7000, 7000), "1"), model)


@pytest.mark.parametrize(
    ("body", "mark"), [(b'{"id": 7, "x": 1}', "7"), (b'{"id": null}', None), (b"[]", None), (b"\xff", None)]
)
def test_the_id_of_a_bad_request_is_found(body: bytes, mark: str | None) -> None:
    assert request_id(body) == mark


def test_images_from_a_path_are_read_in_the_same_way(model: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(npz(images=np.array([ONE])))
    assert read_request((tmp_path / "x.npz").read_bytes(), model).images.dtype.kind == "i"
