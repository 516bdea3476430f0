"""SenML (RFC 8428) in JSON, or in CBOR with cbor2 (the extra `cbor`): a table with a column for each name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from edge_client.data.tables.series_rows import TIME, numbered_rows, seconds_of, wide_rows
from edge_client.data.tables.table import Row, Table
from edge_client.data.tables.value_files import read_values
from schemas.errors import ConfigError

MIN_TIME = 2**28  # seconds from which a time is one since 1970; a smaller one is relative to now
NAMES = ("bs", "bv", "bu", "bt", "bn", "bver", "n", "u", "v", "vs", "vb", "s", "t", "ut", "vd")
VERSION = 10  # A pack of a later one must not be used (section 4.4)
LABELS: Mapping[Any, str] = dict(enumerate(NAMES, -6))  # the labels of CBOR (table 4)


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file, and its options; by default rows that lack a value are left out."""
    return SenmlTable(path, seconds_of(options, path)), {"time": TIME, "missing": "drop", **options}


@dataclass(frozen=True)
class Record:
    """A name's value at a time in seconds, with base values added; a sum over time has a name of its own."""

    name: str
    time: float
    value: str
    unit: str


@dataclass(frozen=True)
class SenmlTable(Table):
    """Packs of records, one after the other: a row for each moment, or one every `every` seconds."""

    path: Path
    every: float = 0

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows; `ConfigError` for what is not SenML, or mixes units or kinds of time."""
        records = self._records
        if records and records[0].time < MIN_TIME <= records[-1].time:
            raise ConfigError(
                f"'{records[0].name}' has a time relative to now, others have one since 1970",
                place=self.path,
                remedy="record them with a base time (bt)",
            )
        names = list(_checked_units(self.path, records))
        readings = ((record.time, record.name, record.value) for record in records)
        yield numbered_rows(names, wide_rows(readings, names, every=self.every))

    @property
    def units(self) -> Mapping[str, str]:
        return {name: unit for name, unit in _checked_units(self.path, self._records).items() if unit}

    @cached_property
    def _records(self) -> list[Record]:
        """The records of all packs in the order of their times."""
        records = (record for pack in read_values(self.path) for record in _resolve_records(self.path, pack))
        return sorted(records, key=attrgetter("time"))


def _checked_units(path: Path, records: list[Record]) -> dict[str, str]:
    """The unit of each name, "" if none is stated; `ConfigError` for a name with two."""
    units = dict[str, str]()
    for record in records:
        before = units.get(record.name) or record.unit
        if record.unit not in ("", before):
            raise ConfigError(
                f"'{record.name}' is in {before} and in {record.unit}", place=path, remedy="convert one"
            )
        units[record.name] = before
    return units


def _resolve_records(path: Path, pack: Any) -> Iterator[Record]:
    """The records of a pack with its base values added, which hold until they change (section 4.6)."""
    if not isinstance(pack, list) or not all(isinstance(record, dict) for record in pack):
        raise ConfigError(f"{path} is not SenML", remedy="expected lists of records")
    base = dict[str, Any]()
    for stated in pack:
        record = {LABELS.get(key, key): value for key, value in stated.items()}
        if strange := next((key for key in record if str(key).endswith("_")), None):
            raise ConfigError(f"'{strange}' must be understood, by its last letter, and is not", place=path)
        base |= {key: value for key, value in record.items() if key in ("bn", "bt", "bu", "bv", "bs")}
        try:
            if record.get("bver", VERSION) > VERSION:
                raise ConfigError("a pack of a later version of SenML", place=path, key="bver")
            name = str(base.get("bn", "")) + str(record.get("n", ""))
            time = float(base.get("bt", 0)) + float(record.get("t", 0))
            unit = str(record.get("u", base.get("bu", "")))
            if "v" in record:
                yield Record(name, time, str(base.get("bv", 0) + record["v"]), unit)
            if "s" in record:
                yield Record(
                    f"{name} sum", time, str(base.get("bs", 0) + record["s"]), f"{unit} s" if unit else ""
                )
            if "vb" in record:
                yield Record(name, time, str(int(record["vb"])), unit)
        except (TypeError, ValueError) as error:
            raise ConfigError("a record is not SenML", place=path, quoted=stated) from error
        if "vs" in record:
            yield Record(name, time, str(record["vs"]), unit)
