"""The inputs of weights in a file: stated in an exported model, or in what timm's hub puts beside weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_client.inference.export.metadata import read_preprocessing
from edge_client.models.registry import InputRecord
from edge_server.coordinator.pretrained.files import check_size
from schemas.values import ModelSpec, Preprocessing

BESIDE = "config.json"


def inputs_of_file(path: Path) -> InputRecord | None:
    """What is stated of the inputs; None if nothing is, or nothing that can be read.

    Raises `ConfigError` for a file of weights that is missing or too large.
    """
    check_size(path)
    try:
        return _read_export(path) if path.suffix.lower() == ".onnx" else _read_beside(path.with_name(BESIDE))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def record_of(about: Preprocessing, input_shape: tuple[int, ...]) -> InputRecord | None:
    """The inputs of a model of this shape; None if what pictures become was not stated for it."""
    if (how := about.resizing) is None or len(input_shape) != 3:
        return None
    colours, height, width = input_shape
    if not {len(about.mean), len(about.std)} <= {1, colours}:
        return None
    mean, std = (figures * (colours // len(figures)) for figures in (about.mean, about.std))
    return InputRecord((height, width), mean, std, how.crop, how.interpolation)


def _read_export(path: Path) -> InputRecord | None:
    """Of a model that a run has exported."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        properties = onnx.load(path, load_external_data=False).metadata_props
    except DecodeError:
        return None
    metadata = {entry.key: entry.value for entry in properties}
    return record_of(read_preprocessing(metadata), tuple(json.loads(metadata["input.shape"])))


def _read_beside(path: Path) -> InputRecord | None:
    """Of weights that were fetched by hand from timm's hub."""
    about: dict[str, Any] = json.loads(path.read_bytes())["pretrained_cfg"]
    shape = ModelSpec(name="timm", input_shape=about["input_size"], num_classes=1).input_shape
    figures = {"mean": about["mean"], "std": about["std"], "resizing": {"crop": about.get("crop_pct")}}
    record = record_of(Preprocessing.model_validate(figures), shape)
    return None if record is None else replace(record, interpolation=about.get("interpolation"))
