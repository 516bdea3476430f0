"""Edge Impulse's data acquisition format in JSON and CBOR, and the folders that its studio exports.

CBOR needs cbor2 (the extra `cbor`). `info.labels` has the labels of an export; without it a file's label is
its name up to the first point.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.data.tables import file_table, value_files
from edge_client.data.tables.table import Table
from schemas.errors import ConfigError

ENDINGS = (".json", ".cbor")
LABELS = "info.labels"
ELSEWHERE = "read it by a function, python:module:function"


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    folder = path if path.is_dir() else path.parent
    labels = {name: label for place in (folder.parent, folder) for name, label in _labels(place).items()}

    def label(path: Path) -> str:
        return labels[path] if path in labels else path.name.partition(".")[0]

    table = file_table.RecordingTable(path, ENDINGS, read_acquisition, label)
    return table, table.options(options)


def read_acquisition(path: Path) -> file_table.Recording:
    """The signals of a file; `ConfigError` for what is no such file, or refers to pictures or sounds."""
    (payload, *_) = value_files.read_values(path) or [None]
    if isinstance(payload, dict):
        # Files that were never signed have it at the top.
        payload = payload.get("payload", payload)
    try:
        names = [str(sensor["name"]) for sensor in payload["sensors"]]
        units = {str(sensor["name"]): str(sensor.get("units", "")) for sensor in payload["sensors"]}
        step, given = float(payload["interval_ms"]), payload["values"]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a file of Edge Impulse: its payload lacks sensors, interval_ms or values",
            quoted=error,
        ) from error
    if isinstance(given, list) and any(isinstance(value, str) for value in given):
        raise ConfigError(
            f"{path} refers to pictures or sounds", remedy="export these, and read them by folder: or wav:"
        )
    try:
        values = np.array(given, np.float64)
        values = values[:, None] if values.ndim == 1 else values
    except (TypeError, ValueError) as error:
        raise ConfigError("its values are not rows of numbers", place=path, quoted=error) from error
    if values.ndim != 2 or not values.size or values.shape[1] != len(names):
        raise ConfigError(f"values of the shape {values.shape} for {len(names)} sensors", place=path)
    return file_table.Recording(dict(zip(names, values.T, strict=True)), units, step)


def _labels(folder: Path) -> dict[Path, str]:
    """The labels of the files that a folder's `info.labels` names; "" for those without a label."""
    try:
        text = (folder / LABELS).read_text("utf-8")
    except OSError:
        return {}
    try:
        files = json.loads(text)["files"]
        return {
            folder / file["path"]: _parse_label(folder / file["path"], file.get("label")) for file in files
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{folder / LABELS} is not a list of labels of Edge Impulse", quoted=repr(error)
        ) from error


def _parse_label(path: Path, label: Any) -> str:
    if not isinstance(label, dict):
        return "" if label is None else str(label)
    if label.get("type") == "multi-label":
        raise ConfigError(f"{path} has several labels, one after the other", remedy=ELSEWHERE)
    return str(label.get("label", "")) if label.get("type") == "label" else ""
