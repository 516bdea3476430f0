"""A fleet file: devices with their labels and notes, as CSV (.csv) or JSON (.json), which operators write.

`edge-server enroll --from` and `edge-server inventory import` read the same files, exported ones included.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edge_server.storage.inventory.records import InventoryDevice, checked_note
from schemas.base import is_name
from schemas.errors import ConfigError, nearest
from schemas.selectors import MAX_LABELS, checked_key, checked_value, parse_label

LABEL = "label."  # Beginning of a column for one label: `label.site`
WRITTEN = ("device", "federation", "labels", "note", "data", "enrolled-at", "replaces", "removed-at")
"""Columns that are read, besides those for one label each."""
SHOWN = (
    *("stated-labels", "site", "alive", "seen-at", "certificate-until", "revoked-at"),
    *("machine", "client", "torch", "onnxruntime", "model"),
)  # Columns of an export that are not read: devices state them
MAX_ROWS = 50_000


@dataclass(frozen=True)
class FleetRow:
    """One device of a fleet file; `where` names file and row for messages.

    `labels` are those that the row sets, or removes (None); with `all_labels` they are all labels of the
    device. What the row does not state is None.
    """

    where: str
    device: str
    federation: str = ""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    all_labels: bool = False
    note: str | None = None
    data: str | None = None
    enrolled_at: float | None = None
    replaces: str | None = None
    removed_at: float | None = None

    def error(self, problem: str) -> ConfigError:
        return ConfigError(problem, place=self.where)

    def labels_after(self, before: Mapping[str, str]) -> dict[str, str]:
        """The labels of a device that had `before`."""
        kept = {} if self.all_labels else before
        return {key: value for key, value in {**kept, **self.labels}.items() if value is not None}


def read_fleet_file(path: Path) -> list[FleetRow]:
    """The rows in the order of the file, each device once; raises `ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError("there is no such file", place=path) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 ({error.reason})", place=path, remedy="save it as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=path) from error
    records = _json_records(path, text) if path.suffix.lower() == ".json" else _csv_records(path, text)
    try:
        rows = [_row(where, record) for where, record in records]
        if not rows:
            raise ConfigError(
                "there is no device in it", place=path, remedy="write one row per device below the header"
            )
        _check_each_once(rows)
    except ConfigError as error:
        # Texts of the file may have line breaks and control characters.
        raise ConfigError("".join(letter if letter.isprintable() else "?" for letter in str(error))) from None
    return rows


def _check_each_once(rows: Sequence[FleetRow]) -> None:
    """A row without a federation may be of any, so that its device has no other row."""
    named: dict[str, list[FleetRow]] = {}
    for row in rows:
        others = named.setdefault(row.device, [])
        known = next((other for other in others if row.federation in ("", other.federation)), None)
        known = known or next((other for other in others if not other.federation), None)
        others.append(row)
        if known is not None:
            raise row.error(
                f"'{row.device}' is in {known.where.rpartition(', ')[2]} already: give each device a name of "
                "its own"
            )


# --- CSV ---
def _csv_records(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    head = text.partition("\n")[0]
    # Spreadsheets of many countries separate columns by semicolons.
    delimiter = ";" if ";" in head and "," not in head else ","
    rows = enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), start=1)
    try:
        columns = [name.strip() for name in next(rows, (1, [""]))[1]]
        _check_columns(path, columns)
        for number, cells in rows:
            if not any(map(str.strip, cells)):
                continue
            where = f"{path}, row {number}"
            if number > MAX_ROWS:
                raise ConfigError(f"a fleet file has at most {MAX_ROWS} rows", place=where)
            if len(cells) > len(columns):
                raise ConfigError(
                    f"{len(cells)} cells, and the header names {len(columns)} columns",
                    place=where,
                    remedy="put a cell with a comma in quotes",
                )
            yield where, dict(zip(columns, map(str.strip, cells), strict=False))
    except csv.Error as error:
        raise ConfigError(f"not valid CSV: {error}", place=path) from error


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise ConfigError(f"the column '{twice}' is named twice", place=f"{path}, row 1")
    if "device" not in columns:
        raise ConfigError(
            "there is no column 'device'",
            place=f"{path}, row 1",
            remedy="the first row names the columns, for example device,label.site,note",
        )
    for name in columns:
        _check_column(f"{path}, row 1", name)


def _check_column(where: str, name: str) -> None:
    if name.startswith(LABEL):
        try:
            checked_key(name.removeprefix(LABEL))
        except ConfigError as error:
            raise ConfigError(f"column '{name}': {error}", place=where) from None
    elif name not in (*WRITTEN, *SHOWN):
        raise ConfigError(f"unknown column '{name}'{nearest(name, (*WRITTEN, f'{LABEL}KEY'))}", place=where)


# --- JSON ---
def _json_records(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not valid JSON: {error}", place=path) from error
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise ConfigError('not a list of devices: [{"device": "pi-1", "labels": {}}, ...]', place=path)
    if len(document) > MAX_ROWS:
        raise ConfigError(f"a fleet file has at most {MAX_ROWS} devices", place=path)
    for number, entry in enumerate(document, start=1):
        where = f"{path}, device {number}"
        # An export has the operator's labels apart from all labels.
        stated = {key.replace("_", "-"): value for key, value in entry.items()}
        stated["labels"] = stated.pop("own-labels", stated.get("labels"))
        for name in stated.keys() - set(FROM_MODEL):
            _check_column(where, name)
        yield where, {key: _cell(where, key, value) for key, value in stated.items() if value is not None}


FROM_MODEL = ("drift", "skipped", "shown", "board", "versions", "disk-free-bytes")
"""Further keys of an export as JSON that are not read."""


def _cell(where: str, key: str, value: Any) -> str:
    """The value as a cell of a CSV file has it."""
    if key in (*SHOWN, *FROM_MODEL):
        return ""
    if key == "labels" and isinstance(value, dict):
        return labels_text(_checked_labels(where, value))
    if key in ("enrolled-at", "removed-at") and isinstance(value, int | float):
        return _json_time(where, key, value)
    if isinstance(value, str):
        return value.strip()
    raise ConfigError(f"{json.dumps(value)[:60]} is not text", place=where, key=key)


def _json_time(where: str, key: str, value: float) -> str:
    try:
        return time_text(float(value))
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{value} is not a time in seconds since 1970", place=where, key=key) from None


def _checked_labels(where: str, labels: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {checked_key(key): checked_value(str(value)) for key, value in labels.items()}
    except ConfigError as error:
        raise ConfigError(str(error), place=where) from None


# --- rows ---
def _row(where: str, record: Mapping[str, str]) -> FleetRow:
    device, federation = record.get("device", ""), record.get("federation", "")
    for name in filter(None, (device or "(empty)", federation, record.get("replaces"))):
        if not is_name(name):
            raise ConfigError(
                f"'{name}' is not a name: 1 to 64 letters, digits, dots, dashes, underscores", place=where
            )
    try:
        labels = _labels(record)
        note = checked_note(record["note"]) if "note" in record else None
        enrolled, removed = (_time(record, key) for key in ("enrolled-at", "removed-at"))
    except ConfigError as error:
        raise ConfigError(str(error), place=where) from None
    return FleetRow(
        where,
        device,
        federation,
        labels,
        all_labels="labels" in record,
        note=note,
        data=record.get("data") or None,
        enrolled_at=enrolled,
        replaces=record.get("replaces"),
        removed_at=removed,
    )


def _labels(record: Mapping[str, str]) -> dict[str, str | None]:
    listed = [part for part in record.get("labels", "").split(";") if part.strip()]
    labels: dict[str, str | None] = dict(parse_label(part) for part in listed)
    for column, value in record.items():
        if column.startswith(LABEL):
            labels[column.removeprefix(LABEL)] = checked_value(value) if value else None
    if sum(value is not None for value in labels.values()) > MAX_LABELS:
        raise ConfigError(f"more than {MAX_LABELS} labels")
    return labels


def _time(record: Mapping[str, str], key: str) -> float | None:
    text = record.get(key, "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"'{text}' is not a time such as 2026-11-26T12:00:00+00:00", key=key) from None


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels in one cell: `role=camera;site=barn`."""
    return ";".join(f"{key}={value}" for key, value in sorted(labels.items()))


def time_text(at: float | None) -> str:
    """A time in seconds since 1970 as ISO 8601; empty for None."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat()


# The inventory as CSV and JSON, which `edge-server inventory import` reads again.
SOFTWARE = {"client": "edge-federation", "torch": "torch", "onnxruntime": "onnxruntime"}
"""Columns of versions, with the names of the packages."""


def csv_text(devices: Sequence[InventoryDevice]) -> str:
    """One row per device, with a column for each label that the operator has set on one of them."""
    keys = sorted({key for device in devices for key in device.own_labels})
    read = (
        "federation",
        "device",
        *(LABEL + key for key in keys),
        "note",
        "enrolled-at",
        "replaces",
        "removed-at",
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*read, *SHOWN))
    for device in devices:
        cells = _read_cells(device)
        shown = _shown_cells(device)
        writer.writerow([*(cells.get(column, "") for column in read), *(shown[column] for column in SHOWN)])
    return out.getvalue()


def document(device: InventoryDevice) -> dict[str, Any]:
    """A device as JSON; `labels` are the operator's and the device's together."""
    return {**device.model_dump(mode="json"), "labels": device.labels}


def _read_cells(device: InventoryDevice) -> dict[str, str]:
    return {
        "federation": device.federation,
        "device": device.device,
        **{LABEL + key: value for key, value in device.own_labels.items()},
        "note": device.note,
        "enrolled-at": time_text(device.enrolled_at),
        "replaces": device.replaces,
        "removed-at": time_text(device.removed_at),
    }


def _shown_cells(device: InventoryDevice) -> dict[str, str]:
    return {
        "stated-labels": labels_text(device.stated_labels),
        "site": device.site,
        "alive": "yes" if device.alive else "no",
        "seen-at": time_text(device.seen_at),
        "certificate-until": time_text(device.certificate_until),
        "revoked-at": time_text(device.revoked_at),
        "machine": _harmless(device.machine),
        **{column: _harmless(device.versions.get(package, "")) for column, package in SOFTWARE.items()},
        "model": _harmless(device.model),
    }


def _harmless(text: str) -> str:
    """What a device states, so that no spreadsheet takes it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
