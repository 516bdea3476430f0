"""The devices of an inventory as a command lists them: plain values, read quickly, without pydantic."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edge_server.storage.sqlite_file import SqliteFile
from schemas.selectors import Where, selectable

MIGRATIONS = (
    """
CREATE TABLE devices (
    federation TEXT NOT NULL, device TEXT NOT NULL, session INTEGER NOT NULL DEFAULT 0,
    own_labels TEXT NOT NULL DEFAULT '{}', stated_labels TEXT NOT NULL DEFAULT '{}',
    note TEXT NOT NULL DEFAULT '', site TEXT NOT NULL DEFAULT '', enrolled_at REAL, certificate_until REAL,
    revoked_at REAL, seen_at REAL, alive INTEGER NOT NULL DEFAULT 0, machine TEXT NOT NULL DEFAULT '',
    versions TEXT NOT NULL DEFAULT '{}', model TEXT NOT NULL DEFAULT '', disk_free_bytes INTEGER,
    board TEXT, drift TEXT, replaces TEXT NOT NULL DEFAULT '', removed_at REAL,
    PRIMARY KEY (federation, device)) WITHOUT ROWID
""",
    "ALTER TABLE devices ADD COLUMN skipped TEXT",
    """
CREATE TABLE board_states (
    federation TEXT NOT NULL, device TEXT NOT NULL, at REAL NOT NULL, celsius REAL, disk_free_bytes INTEGER,
    PRIMARY KEY (federation, device, at)) WITHOUT ROWID
""",
    "ALTER TABLE devices ADD COLUMN shown TEXT NOT NULL DEFAULT '{}'",
)


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A part of `InventoryDevice`; `labels` are the operator's and the device's."""

    federation: str
    device: str
    labels: Mapping[str, str]
    note: str
    enrolled_at: float | None
    certificate_until: float | None
    revoked_at: float | None
    seen_at: float | None
    alive: bool
    versions: Mapping[str, str]
    model: str
    replaces: str
    removed_at: float | None
    skipped: Mapping[str, Any] | None


_PARSED = ("own_labels", "stated_labels", "site")
_COLUMNS = (*(known.name for known in fields(ListedDevice) if known.name != "labels"), *_PARSED)
_QUERY = (
    f"SELECT {', '.join(_COLUMNS)} FROM devices WHERE (?1 IS NULL OR federation = ?1)"
    " AND (?2 OR removed_at IS NULL) ORDER BY federation, device"
)


def list_inventory(
    path: Path, where: Where, *, federation: str | None = None, removed: bool = False
) -> list[ListedDevice]:
    """The devices that a selector chooses, by federation and name; `removed` ones only on request."""
    with closing(SqliteFile(path, MIGRATIONS)) as file, file.reading() as database:
        rows = database.execute(_QUERY, (federation, removed)).fetchall()
    return [device for row in rows if (device := _chosen(dict(zip(_COLUMNS, row, strict=True)), where))]


def _chosen(row: dict[str, Any], where: Where) -> ListedDevice | None:
    """The device of a row, if the selector chooses it."""
    labels = {**json.loads(row.pop("stated_labels")), **json.loads(row.pop("own_labels"))}
    device, federation, site = row["device"], row["federation"], row.pop("site")
    if not where.matches(selectable(labels, device=device, federation=federation, site=site)):
        return None
    row.update(labels=labels, alive=bool(row["alive"]), versions=json.loads(row["versions"]))
    row["skipped"] = json.loads(row["skipped"] or "null")
    return ListedDevice(**row)
