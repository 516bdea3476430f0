"""The rows of the inventory's table: read, written and turned into values."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edge_server.storage.inventory import fleet_file, records
from schemas.base import fields_of
from schemas.errors import ConfigError
from schemas.selectors import MAX_LABELS, selectable

_JSON = frozenset({"own_labels", "stated_labels", "versions", "board", "drift", "skipped", "shown"})
_FIELDS = tuple(records.InventoryDevice.model_fields)
SELECT = f"SELECT {', '.join(_FIELDS)} FROM devices"


def take_row(database: sqlite3.Connection, row: fleet_file.FleetRow, federation: str) -> records.Change:
    """Take one row of a fleet file, and say what it changes; raises `ConfigError`."""
    previous = read_device(database, federation, row.device)
    labels = row.labels_after(previous.own_labels if previous else {})
    if len(labels) > MAX_LABELS:
        raise row.error(f"{row.device} would have more than {MAX_LABELS} labels")
    stated = {"own_labels": labels, **fields_of(row, "note", "enrolled_at", "replaces", "removed_at")}
    after = {name: value for name, value in stated.items() if value is not None}
    before = None if previous is None else fields_of(previous, *after)
    if before != after:
        insert(database, federation, row.device)
        update_device(database, federation, row.device, after)
    return records.Change(federation, row.device, before, after)


def insert(database: sqlite3.Connection, federation: str, device: str) -> None:
    """Add a device, unless it is known."""
    database.execute("INSERT OR IGNORE INTO devices (federation, device) VALUES (?, ?)", (federation, device))


def update_device(
    database: sqlite3.Connection, federation: str, device: str, changes: Mapping[str, Any]
) -> None:
    if not changes:
        return
    unknown = changes.keys() - set(_FIELDS)
    assert not unknown, unknown
    columns = ", ".join(f"{name} = ?" for name in changes)
    values = [
        json.dumps(dict(value), sort_keys=True) if name in _JSON and isinstance(value, Mapping) else value
        for name, value in changes.items()
    ]
    database.execute(
        f"UPDATE devices SET {columns} WHERE federation = ? AND device = ?", (*values, federation, device)
    )


def known_device(database: sqlite3.Connection, federation: str, device: str) -> records.InventoryDevice:
    """A device; raises `ConfigError` if it is unknown."""
    found = read_device(database, federation, device)
    if found is None:
        raise ConfigError(
            f"'{device}' is not in the inventory of federation {federation}",
            remedy="`edge-server devices` lists it",
        )
    return found


def read_device(database: sqlite3.Connection, federation: str, device: str) -> records.InventoryDevice | None:
    """A device; None if the inventory does not have it."""
    query = f"{SELECT} WHERE federation = ? AND device = ?"
    row = database.execute(query, (federation, device)).fetchone()
    return None if row is None else device_of(row)


def selectable_of(row: Sequence[Any]) -> dict[str, str]:
    """As `InventoryDevice.selectable`."""
    device, federation, site = (row[_FIELDS.index(name)] for name in ("device", "federation", "site"))
    stated, own = (json.loads(row[_FIELDS.index(name)]) for name in ("stated_labels", "own_labels"))
    return selectable({**stated, **own}, device=device, federation=federation, site=site)


def device_of(row: Iterable[Any]) -> records.InventoryDevice:
    values = dict(zip(_FIELDS, row, strict=True))
    for name in _JSON:
        if values[name] is not None:
            values[name] = json.loads(values[name])
    return records.InventoryDevice.model_validate(values)
