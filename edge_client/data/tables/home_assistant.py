"""The recorder database of Home Assistant (schema 53) as a table with a column for each entity.

It records the changes of all entities, one below the other, in `states`; `states_meta` has their names.
"""

import heapq
import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import dropwhile
from pathlib import Path

from edge_client.data.source_options import names_in
from edge_client.data.tables import series_rows, sqlite_table
from edge_client.data.tables.table import Row, Table
from schemas.errors import ConfigError, nearest

log = logging.getLogger(__name__)

NO_VALUE = frozenset({"unavailable", "unknown", ""})
SWITCHED = {"on": "1", "off": "0"}  # states of binary sensors and switches as inputs; labels keep their words
MAX_NAMED = 20  # entities that a message names, those that change most first

ENTITIES = "SELECT entity_id, metadata_id FROM states_meta"
BUSIEST = (
    "SELECT m.entity_id FROM states_meta m JOIN states USING (metadata_id) GROUP BY 1 ORDER BY count(*) DESC"
)
CHANGES = """SELECT last_updated_ts, state FROM states WHERE metadata_id = ? AND last_updated_ts IS NOT NULL
ORDER BY last_updated_ts, state_id"""
ATTRIBUTES = """SELECT shared_attrs FROM states JOIN state_attributes USING (attributes_id)
WHERE metadata_id = ? GROUP BY attributes_id ORDER BY max(state_id)"""
RUNS = 'SELECT "end", closed_incorrect FROM recorder_runs WHERE "end" IS NOT NULL'
LAST = "SELECT max(last_updated_ts) FROM states WHERE last_updated_ts < ?"


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of the stated entities and labels; by default rows that lack a value are left out."""
    every, labels = series_rows.seconds_of(options, path), names_in(options, "label")
    table = HomeAssistantTable(path, names_in(options, "entities"), labels, every)
    if "window" in options and not every:
        raise ConfigError(
            "states change at uneven times, and windows need even ones",
            place=path,
            remedy="state every=60, in seconds",
        )
    return table, {"time": series_rows.TIME, "missing": "drop", **options}


@dataclass(frozen=True)
class HomeAssistantTable(Table):
    """The states of entities: a row for each moment at which one changed, or one every `every` seconds.

    An entity has no value while it is unavailable or unknown, and none has while nothing was recorded.
    """

    path: Path
    entities: tuple[str, ...]
    labels: tuple[str, ...] = ()
    every: float = 0

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows; `ConfigError` for what is no such database, or lacks an entity."""
        with self._open_database() as (database, numbers):
            readings = heapq.merge(
                *(self._changes(database, name, number) for name, number in numbers.items()),
                sorted((end, name, "") for end in _ends(database) for name in numbers),
                key=lambda reading: reading[0],
            )
            names = list(numbers)
            rows = series_rows.wide_rows(readings, names, every=self.every)
            # Each entity has its first state at another moment.
            yield series_rows.numbered_rows(names, dropwhile(lambda row: "" in row, rows))

    @property
    def units(self) -> Mapping[str, str]:
        """The entities' units; one that has changed is said in the log."""
        with self._open_database() as (database, numbers):
            units = {name: _units(database, number) for name, number in numbers.items()}
        for name, stated in units.items():
            if len(stated) > 1:
                log.warning("%s: %s was recorded in %s", self.path, name, " and in ".join(stated))
        return {name: stated[-1] for name, stated in units.items() if stated}

    @contextmanager
    def _open_database(self) -> Iterator[tuple[sqlite3.Connection, dict[str, int]]]:
        """The database, and the numbers of the entities in it."""
        try:
            with sqlite_table.open_database(self.path) as database:
                yield database, self._numbers(database)
        except sqlite3.Error as error:
            raise ConfigError(
                f"{self.path} is not a recorder database of Home Assistant, or is broken", quoted=error
            ) from error

    def _numbers(self, database: sqlite3.Connection) -> dict[str, int]:
        numbers = dict(database.execute(ENTITIES).fetchall())
        if not self.entities:
            busiest = ", ".join(name for (name,) in database.execute(BUSIEST).fetchmany(MAX_NAMED))
            raise ConfigError(
                f"{self.path}: state entities=..., of which those that change most are {busiest}"
            )
        wanted = dict.fromkeys([*self.entities, *self.labels])
        unknown = next((name for name in wanted if name not in numbers), None)
        if unknown is not None:
            raise ConfigError(f"{self.path} has no entity '{unknown}'{nearest(unknown, numbers)}")
        return {name: numbers[name] for name in wanted}

    def _changes(self, database: sqlite3.Connection, name: str, number: int) -> Iterator[series_rows.Reading]:
        for time, state in database.execute(CHANGES, [number]):
            value = "" if state is None or state in NO_VALUE else state
            yield time, name, value if name in self.labels else SWITCHED.get(value, value)


def _ends(database: sqlite3.Connection) -> Iterator[float]:
    """When recording stopped; a run that ended by a crash has the start of the next one as its end."""
    for end, is_crash in database.execute(RUNS).fetchall():
        time = datetime.fromisoformat(end).replace(tzinfo=UTC).timestamp()
        (last,) = database.execute(LAST, [time]).fetchone()
        yield last if is_crash and last is not None else time


def _units(database: sqlite3.Connection, number: int) -> list[str]:
    """The units of an entity, the newest last."""
    attributes = (json.loads(text or "{}") for (text,) in database.execute(ATTRIBUTES, [number]))
    units = (each.get("unit_of_measurement") for each in attributes)
    return list(dict.fromkeys(unit for unit in units if unit))
