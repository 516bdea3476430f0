"""The inventory of a fleet: one SQLite file with a row per device of each federation.

The fleet service writes what devices say; operators' commands write labels, notes, enrolment and removal.
Both may happen at once in different processes.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_server.storage.inventory import fleet_file, listing, records
from edge_server.storage.inventory.rows import (
    SELECT,
    device_of,
    insert,
    known_device,
    read_device,
    selectable_of,
    take_row,
    update_device,
)
from edge_server.storage.sqlite_file import SqliteFile
from schemas.errors import ConfigError, nearest
from schemas.selectors import EVERY, MAX_LABELS, Where, checked_key, checked_value

if TYPE_CHECKING:
    from schemas.messages import Birth, Death, Telemetry
    from schemas.values import BoardState

SAMPLE_S, SAMPLED_S = 600.0, 86_400.0  # Seconds between two states of a board that are kept, and for how long


class Inventory:
    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, listing.MIGRATIONS)
        self._sampled_at: dict[tuple[str, str], float] = {}

    def close(self) -> None:
        self._file.close()

    def changed_elsewhere(self) -> int:
        """A number that changes whenever another connection has written to the inventory."""
        return self._file.changed_elsewhere()

    def version(self) -> tuple[int, int]:
        """A value that changes whenever any connection, this one included, has written to the inventory."""
        return self._file.version()

    # --- reading ---
    def device(self, federation: str, device: str) -> records.InventoryDevice | None:
        """One device; None if the inventory does not know it."""
        with self._file.reading() as database:
            return read_device(database, federation, device)

    def devices(
        self, where: Where = EVERY, *, federation: str | None = None, removed: bool = False
    ) -> list[records.InventoryDevice]:
        """The devices that a selector chooses, by federation and name; `removed` ones only on request."""
        rows = self.rows(federation=federation, removed=removed)
        return [device_of(row) for row in rows if not where.requirements or where.matches(selectable_of(row))]

    def rows(self, *, federation: str | None = None, removed: bool = False) -> list[tuple[Any, ...]]:
        """The rows behind `devices`, which `rows.device_of` makes into values."""
        with self._file.reading() as database:
            return database.execute(
                f"{SELECT} WHERE (?1 IS NULL OR federation = ?1) AND (?2 OR removed_at IS NULL)"
                " ORDER BY federation, device",
                (federation, removed),
            ).fetchall()

    def labels(self, federation: str) -> dict[str, dict[str, str]]:
        """The labels that the operator has set, by device."""
        with self._file.reading() as database:
            rows = database.execute(
                "SELECT device, own_labels FROM devices WHERE federation = ? AND own_labels != '{}'",
                (federation,),
            ).fetchall()
        return {device: json.loads(labels) for device, labels in rows}

    def federations(self) -> list[str]:
        with self._file.reading() as database:
            rows = database.execute("SELECT DISTINCT federation FROM devices ORDER BY federation").fetchall()
        return [name for (name,) in rows]

    # --- what devices say ---
    def record_birth(self, birth: "Birth", at: float, *, site: str = "") -> bool:
        """Take a birth, unless another way has brought one of a newer session; returns whether it was taken.

        On one way, a broker or a site's gateway, births keep their order, and each of two devices of one name
        counts its own sessions: the one that is there has spoken last.
        """
        profile = birth.profile
        return self._say(
            birth.federation,
            birth.device,
            birth.session,
            {
                "stated_labels": json.dumps(dict(birth.labels), sort_keys=True),
                "site": site,
                "certificate_until": birth.certificate_until,
                "seen_at": at,
                "alive": 1,
                "machine": profile.machine,
                "versions": json.dumps(dict(profile.software), sort_keys=True),
                "model": birth.model,
                "disk_free_bytes": profile.disk_free_bytes,
                "drift": birth.data.drift.model_dump_json() if birth.data.drift else None,
                "shown": json.dumps(birth.page_texts, sort_keys=True),
                "skipped": birth.data.skipped.model_dump_json() if birth.data.skipped else None,
            },
        )

    def record_death(self, death: "Death", at: float) -> bool:
        """Take a last will, unless it is of an older session; returns whether it was taken.

        The broker repeats it to each new connection: a device that is known to be gone was not seen again.
        """
        known = self.device(death.federation, death.device)
        if known is None:
            return False
        seen_at = at if known.alive else known.seen_at
        return self._say(death.federation, death.device, death.session, {"alive": 0, "seen_at": seen_at})

    def record_telemetry(self, telemetry: "Telemetry", at: float) -> bool:
        """Take the state of a board, unless it is of an older session; returns whether it was taken."""
        if self.device(telemetry.federation, telemetry.device) is None:
            return False
        board = {} if telemetry.board is None else {"board": telemetry.board.model_dump_json()}
        changes = {"seen_at": at, "alive": 1, **board}
        taken = self._say(telemetry.federation, telemetry.device, telemetry.session, changes)
        if taken and telemetry.board is not None:
            self._sample(telemetry.federation, telemetry.device, telemetry.board, at)
        return taken

    def _sample(self, federation: str, device: str, board: "BoardState", at: float) -> None:
        """Keep the state for the curves of the last day, every `SAMPLE_S` seconds."""
        if 0 <= at - self._sampled_at.get((federation, device), float("-inf")) < SAMPLE_S:
            return
        self._sampled_at[federation, device] = at
        with self._file.writing() as database:
            row = (federation, device, at, board.celsius, board.disk_free_bytes)
            database.execute("INSERT OR REPLACE INTO board_states VALUES (?, ?, ?, ?, ?)", row)
            query = "DELETE FROM board_states WHERE federation = ? AND device = ? AND at NOT BETWEEN ? AND ?"
            database.execute(query, (federation, device, at - SAMPLED_S, at))

    def board_states(self, federation: str, device: str) -> list[tuple[float, float | None, int | None]]:
        """The board in the last day, the oldest first: time, degrees Celsius, free bytes of its disk."""
        query = "SELECT at, celsius, disk_free_bytes FROM board_states WHERE federation = ? AND device = ?"
        with self._file.reading() as database:
            return database.execute(f"{query} ORDER BY at", (federation, device)).fetchall()

    def record_absent(self, federation: str, present: Collection[str]) -> None:
        """Let all devices of a federation but those `present` count as not connected."""
        with self._file.writing() as database:
            query = "SELECT device FROM devices WHERE federation = ? AND alive"
            for (device,) in database.execute(query, (federation,)).fetchall():
                if device not in present:
                    update_device(database, federation, device, {"alive": False})

    def _say(self, federation: str, device: str, session: int, changes: Mapping[str, Any]) -> bool:
        columns = ", ".join(f"{name} = ?" for name in changes)
        with self._file.writing() as database:
            insert(database, federation, device)
            taken = database.execute(
                f"UPDATE devices SET session = ?, {columns}"
                " WHERE federation = ? AND device = ? AND (session <= ? OR site = ?)",
                (session, *changes.values(), federation, device, session, changes.get("site")),
            )
            return taken.rowcount == 1

    def predecessors(self, federation: str, device: str) -> list[str]:
        """The dead boards whose place a device took, the last one first."""
        query = "SELECT device, replaces FROM devices WHERE federation = ? AND replaces != ''"
        with self._file.reading() as database:
            replaced: dict[str, str] = dict(database.execute(query, (federation,)).fetchall())
        found: list[str] = []
        while (before := replaced.get(found[-1] if found else device)) and before not in (device, *found):
            found.append(before)
        return found

    def of_name(self, device: str, federation: str | None = None) -> records.InventoryDevice:
        """The device of that name, removed ones included.

        Raises `ConfigError` if no federation has it, or, without `federation`, if several have.
        """
        with self._file.reading() as database:
            query = f"{SELECT} WHERE device = ?1 AND (?2 IS NULL OR federation = ?2)"
            rows = database.execute(query, (device, federation)).fetchall()
        if len(rows) > 1:
            found = ", ".join(device_of(row).federation for row in rows)
            raise ConfigError(
                f"'{device}' is a device of several federations ({found})", remedy="add --federation"
            )
        if not rows:
            names = {known.device for known in self.devices(federation=federation, removed=True)}
            of = "" if federation is None else f" of federation {federation}"
            raise ConfigError(
                f"'{device}' is not in the inventory{of}{nearest(device, names)}",
                remedy="`edge-server devices` lists all",
            )
        return device_of(rows[0])

    # --- what operators change ---
    def add(self, federation: str, device: str, **changes: Any) -> None:
        """Add a device if it is unknown, and set these fields of `InventoryDevice`."""
        with self._file.writing() as database:
            insert(database, federation, device)
            update_device(database, federation, device, changes)

    def set_labels(
        self, federation: str, device: str, changes: Mapping[str, str | None]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Set the operator's labels, or remove those with None; returns the labels before and after.

        Raises `ConfigError` for an unknown device, and for labels that are not valid.
        """
        for key, value in changes.items():
            checked_key(key)
            if value is not None:
                checked_value(value)
        with self._file.writing() as database:
            before = known_device(database, federation, device).own_labels
            after = {key: value for key, value in {**before, **changes}.items() if value is not None}
            if len(after) > MAX_LABELS:
                raise ConfigError(f"{device}: {len(after)} labels; a device has at most {MAX_LABELS}")
            update_device(database, federation, device, {"own_labels": after})
        return dict(before), after

    def set_note(self, federation: str, device: str, note: str) -> str:
        """Set the operator's note; returns the note before. Raises `ConfigError` for an unknown device."""
        note = records.checked_note(note)
        with self._file.writing() as database:
            before = known_device(database, federation, device).note
            update_device(database, federation, device, {"note": note})
        return before

    def take_rows(self, rows: Sequence[fleet_file.FleetRow], federation: str) -> list[records.Change]:
        """Take the rows of a fleet file, all or none; rows that state no federation are of `federation`.

        Returns what was changed, one entry per device. Raises `ConfigError`.
        """
        with self._file.writing() as database:
            changes = [take_row(database, row, row.federation or federation) for row in rows]
        return [change for change in changes if change.before != change.after]

    def remove(self, federation: str, device: str, at: float) -> records.InventoryDevice:
        """Mark a device as removed; its row stays. Raises `ConfigError` for an unknown device."""
        with self._file.writing() as database:
            known = known_device(database, federation, device)
            update_device(database, federation, device, {"removed_at": at, "alive": False})
        return known

    def replace(self, federation: str, old: str, new: str, at: float) -> records.InventoryDevice:
        """Let `new` take the place of `old`: its labels and note; `old` counts as removed.

        Raises `ConfigError` if `old` is unknown or was removed.
        """
        if old == new:
            raise ConfigError(f"{old} cannot replace itself", remedy="name the old board and the new one")
        with self._file.writing() as database:
            former = known_device(database, federation, old)
            if former.removed_at is not None:
                raise ConfigError(f"{old} was removed from the inventory already")
            insert(database, federation, new)
            taken = {
                "own_labels": former.own_labels,
                "note": former.note,
                "replaces": old,
                "removed_at": None,
            }
            update_device(database, federation, new, taken)
            update_device(database, federation, old, {"removed_at": at, "alive": False})
        return former


class DeviceReader:
    """The devices of one inventory, kept in memory between two calls; belongs to one thread.

    Making a value takes eight times as long as reading its row, and few devices change between two calls.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._version: tuple[int, int] | None = None
        self._known: dict[tuple[Any, ...], records.InventoryDevice] = {}

    def devices(self) -> Sequence[records.InventoryDevice]:
        """The devices that were not removed, by federation and name."""
        version = self._inventory.version()
        if version != self._version:
            known = self._known
            self._known = {row: known.get(row) or device_of(row) for row in self._inventory.rows()}
            self._version = version
        return tuple(self._known.values())
