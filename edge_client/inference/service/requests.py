"""Prediction requests over HTTP, MQTT or JSON lines: an image file, a recording, `.npy`, `.npz`, or JSON:

    {"image": "<base64 of an image file>", "top": 3, "id": "any text"}
    {"pixels": [[...], ...], "top": 3}           raw pixels: [H, W], [C, H, W] or [N, C, H, W]
    {"values": {"temperature": 21.4, "co2": 480}}

`values` are a row of a table by the names of its columns, in any order; of a window each is a list, the
oldest value first. Several examples are a list of such objects.
Requests are untrusted: sizes are limited, and an invalid request raises a `ConfigError` of one line.
"""

import base64
import binascii
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_client.data import dataset, shapes
from edge_client.data.arrays import as_batch
from edge_client.data.columns import column_misfit, features_of
from edge_client.data.sounds.sound_files import is_sound
from edge_client.inference import onnx_model, queries
from schemas.errors import ConfigError
from schemas.values import Feature

MAX_IMAGES = 256
MAX_UNPACKED = 32 * 1024 * 1024  # largest sum of an archive's unpacked arrays in bytes
_INPUTS = ("image", "pixels", "values")
_FIELDS = frozenset({*_INPUTS, "top", "id"})


@dataclass(frozen=True, eq=False)
class PredictionRequest:
    """Raw images [N, C, H, W], the number of classes to return for each, the request's id, and notes.

    `frame` is that of a picture file.
    """

    images: dataset.Pixels
    top: int = 1
    id: str | None = None
    notes: tuple[str, ...] = ()
    frame: onnx_model.Frame | None = None


def read_request(body: bytes, model: onnx_model.LoadedModel, *, top: int = 1) -> PredictionRequest:
    """Read a message, whose own `top` has priority; raises `ConfigError` if it is invalid."""
    if not body:
        raise ConfigError("the body is empty", remedy="send an image file, .npy, .npz or JSON")
    if body[:4] == b"PK\x03\x04" or body[:6] == b"\x93NUMPY":
        images = as_batch(_array(body), model.input_shape, model.preprocessing)
        return _check_request(PredictionRequest(images, top), model)
    if is_sound(body[:20]):
        images = queries.read_recording(io.BytesIO(body), model, most=MAX_IMAGES)
        return _check_request(PredictionRequest(images, top), model)
    if body[:2] == b"--" and b"form-data" in body[:200]:
        raise ConfigError(
            "the body is a form", remedy="send the file alone, as curl --data-binary @FILE does"
        )
    if body.lstrip()[:1] in (b"{", b"["):
        return read_line(body, model, top=top)
    return _of_image(body, model, PredictionRequest(np.empty(0), top))


def read_line(body: bytes | str, model: onnx_model.LoadedModel, *, top: int = 1) -> PredictionRequest:
    fields = fields_of(body)
    blank = blank_of(fields, top)
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise ConfigError(f"unknown field '{str(unknown[0])[:40]}' (known: {', '.join(sorted(_FIELDS))})")
    given = [name for name in _INPUTS if name in fields]
    if len(given) != 1:
        raise ConfigError("expected either 'image', 'pixels' or 'values'")
    value = fields[given[0]]
    if "image" in fields:
        return _of_image(_decode_base64(value), model, blank)
    images = (
        _numbers(value, "pixels")
        if "pixels" in fields
        else _read_named_values(value, model.preprocessing.columns)
    )
    batch = as_batch(images, model.input_shape)
    return _check_request(PredictionRequest(batch, blank.top, blank.id), model)


def fields_of(body: bytes | str) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError('expected a JSON object such as {"image": "<base64>"} or {"pixels": [...]}')
    return fields


def blank_of(fields: Mapping[str, Any], top: int) -> PredictionRequest:
    """`top` and `id` of a JSON message, without images."""
    return PredictionRequest(np.empty(0), _top(fields.get("top", top)), _id(fields.get("id")))


def request_id(body: bytes) -> str | None:
    """The id of a message that may be invalid otherwise; None without one."""
    try:
        return _id(fields_of(body).get("id"))
    except ConfigError:
        return None


def _of_image(data: bytes, model: onnx_model.LoadedModel, blank: PredictionRequest) -> PredictionRequest:
    read = queries.read_image(data, model.input_shape, model.preprocessing)
    return PredictionRequest(read.pixels[None], blank.top, blank.id, read.notes, read.frame)


def _decode_base64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ConfigError("'image' is not a text in base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"'image' is not valid base64: {error}") from error


def _read_named_values(value: Any, columns: Sequence[Feature]) -> dataset.Pixels:
    """Examples [N, columns] or [N, columns, window] from their values by name, in any order."""
    examples = value if isinstance(value, list) else [value]
    if not columns:
        raise ConfigError(
            "the model does not name its columns", remedy="send 'pixels', in the order of its table"
        )
    if not examples or not all(isinstance(example, dict) for example in examples):
        raise ConfigError(f"'values' are given by name, such as {{\"{columns[0].name}\": 21.4, ...}}")
    return _numbers([_in_order(example, columns) for example in examples], "values")


def _in_order(example: dict[str, Any], columns: Sequence[Feature]) -> list[Any]:
    own = features_of(example)
    if not own:
        raise ConfigError(
            f"'values' has no name that can be compared; the model takes {columns[0].name}, ..."
        )
    if why := column_misfit(own, columns):
        raise ConfigError(why)
    values = dict(zip((feature.name for feature in own), example.values(), strict=True))
    return [values[column.name] for column in columns]


def _numbers(value: Any, name: str) -> dataset.Pixels:
    try:
        return np.asarray(value, dtype=np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"'{name}' are not numbers in rows of equal length") from error


def _array(body: bytes) -> dataset.Pixels:
    """The array of an `.npy` file, or `images` (or the only one) of an `.npz`."""
    # Imported here: few requests are archives, and zipfile takes a megabyte.
    import zipfile

    try:
        if body[:2] != b"PK":
            return np.asarray(np.lib.format.read_array(io.BytesIO(body), allow_pickle=False))
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            sizes = sum(entry.file_size for entry in archive.infolist())
        if sizes > MAX_UNPACKED:
            raise ConfigError(f"the archive unpacks to {sizes} bytes, at most {MAX_UNPACKED} are read")
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            names = arrays.files
            name = "images" if "images" in names or len(names) != 1 else names[0]
            if name not in names:
                raise ConfigError(f"the archive has no array 'images' (it has: {', '.join(names)[:80]})")
            return np.asarray(arrays[name])
    except ConfigError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds for a damaged archive
        raise ConfigError(f"cannot read the array: {str(error)[:200] or type(error).__name__}") from error


def _check_request(request: PredictionRequest, model: onnx_model.LoadedModel) -> PredictionRequest:
    images = request.images
    if images.dtype.kind not in "uif":
        raise ConfigError(f"pixels are numbers, not {images.dtype}")
    if images.shape[1:] != model.input_shape:
        one = images.shape[1:] if images.ndim > len(model.input_shape) else images.shape
        wanted, got = shapes.in_words(model.input_shape), shapes.in_words(one)
        raise ConfigError(f"the model takes {model.examples} of {wanted}, got {got}")
    if not 1 <= len(images) <= MAX_IMAGES:
        raise ConfigError(f"{len(images)} {model.examples} at once, expected 1 to {MAX_IMAGES}")
    if not np.isfinite(images).all():
        raise ConfigError("the values are not all finite numbers")
    return request


def _top(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"'top' is {str(value)[:20]!r}, expected a whole number from 1")
    return value


def _id(value: Any) -> str | None:
    return None if value is None else str(value)[:200]
