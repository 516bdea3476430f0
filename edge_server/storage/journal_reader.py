"""Reading a run's journal, also during the run."""

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from edge_server.rounds import events, reputation
from edge_server.storage.journal import FORMAT, AggregatedUpdate, UndoneRound, unknown_format
from edge_server.strategy.explanations import DeviceChoice, Observation, RoundChoices
from schemas.base import Frozen
from schemas.errors import ConfigError, Reason
from schemas.messages import Delivery, Update, decode_task
from schemas.values import CapabilityProfile, DataCard, Feature


@dataclass(frozen=True)
class RecordedPlanning:
    """A planning; `needed` is None if it adds devices to an earlier one.

    `clients` were present, as {name: (tier, examples)}; `rng` is the seed of the choice's random generator.
    """

    attempt: int
    round: int
    deliver: bool
    needed: int | None
    selected: tuple[str, ...]
    clients: Mapping[str, tuple[int, int]]
    rng: tuple[int, ...]
    planned_at: float

    @property
    def joins(self) -> bool:
        """Whether its devices join an open round, which needs as many updates as before."""
        return self.needed is None and not self.deliver


@dataclass(frozen=True)
class ClosedRound:
    """A closed round: its model's digest, the aggregated updates, its line of history.

    `traffic` are the counts of the run up to there (`Tally.traffic`). A record that is not `tested` yet lacks
    the figures of its test, and the history has no line of it.
    """

    round: int
    state_sha256: str
    updates: tuple[AggregatedUpdate, ...]
    record: str
    traffic: Mapping[str, Any]
    tested: bool = True


@dataclass(frozen=True)
class ExaminedUpdate:
    """An update that was accepted (no reason) or refused, with its norms as far as they were computed."""

    round: int
    device: str
    digest: str
    reason: str | None = None
    norms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Strike:
    """A refusal that counts against a device."""

    device: str
    round: int
    reason: str


log = logging.getLogger(__name__)
T = TypeVar("T")
M = TypeVar("M", bound=Frozen)
REMEDY = "put the file back from a copy, or begin a new run in another folder"
SPARED = {
    *("run", "tasks", "devices", "updates", "strikes", "deliveries", "choices", "observations"),
    *("undone", "untested", "epochs", "restored", "ends"),
}  # Tables that a run can lose: their content is requested again, planned again, or only explanatory

OpenTask = tuple[str, int, str, int]  # A device, the attempt, the task as JSON, the most bytes of its answer


class JournalReader:
    """Reads a journal; raises `ConfigError` if there is none, or one of another format.

    An `immutable` journal, or one without a write-ahead log, is read without locks or further files.
    """

    def __init__(self, path: Path, *, immutable: bool = False) -> None:
        self._path = path
        if not path.is_file():
            raise ConfigError(f"there is no journal; is {path.parent} a run folder?", place=path)
        alone = immutable or not path.with_name(f"{path.name}-wal").exists()
        how = "mode=ro&immutable=1" if alone else "mode=ro"
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)
        try:
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise ConfigError(f"no journal that can be read: {error}", place=path, remedy=REMEDY) from error
        if not found:
            raise ConfigError(
                f"cut off, without its {path.name}-wal, or no journal of a run", place=path, remedy=REMEDY
            )
        if found != FORMAT:
            raise unknown_format(path, found)

    def _query_rows(self, asked: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """The rows of a query; none for a lost table that a run can do without."""
        try:
            return self._connection.execute(asked, values).fetchall()
        except sqlite3.Error as error:
            gone = str(error).removeprefix("no such table: ")
            if gone not in SPARED:
                raise ConfigError(f"{self._path}: {error}", remedy=REMEDY) from error
            log.warning("%s: table '%s' is gone: the run continues without what it held", self._path, gone)
            return []

    def _read(
        self, table: str, asked: str, make: Callable[..., T], values: tuple[Any, ...] = (), *, keys: int = 1
    ) -> list[T]:
        """An object per row of a query; a row that cannot be read is skipped.

        It is logged by its first `keys` columns.
        """
        return self._make_objects(table, self._query_rows(asked, values), make, keys=keys)

    def _make_objects(
        self, table: str, rows: Iterable[Any], make: Callable[..., T], *, keys: int = 1
    ) -> list[T]:
        made = []
        for row in rows:
            try:
                made.append(make(*row))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                name, problem = ", ".join(map(str, row[:keys])), str(error).splitlines()[0]
                where = f"{self._path}: table '{table}', row {name}"
                log.warning("%s cannot be read and is left out: %s", where, problem)
        return made

    def close(self) -> None:
        self._connection.close()

    def run(self) -> str | None:
        """The run's name; None before it has one."""
        rows = self._query_rows("SELECT run FROM run")
        return str(rows[0][0]) if rows else None

    def epochs(self) -> tuple[int, ...]:
        """The epochs of the lease in which the run was served, in order."""
        return tuple(self._read("epochs", "SELECT epoch FROM epochs ORDER BY epoch", int))

    def restored_attempt(self) -> int:
        """The number that plannings exceed since the run was restored from a backup; 0 if it never was."""
        return max(self._read("restored", "SELECT attempt FROM restored", int), default=0)

    def began_at(self) -> float | None:
        """When the run began, or was first planned, in seconds since 1970; None if neither has happened."""
        asked = "SELECT coalesce((SELECT began_at FROM run), (SELECT min(planned_at) FROM plannings)) AS at"
        return next(iter(self._read("run", f"SELECT at FROM ({asked}) WHERE at IS NOT NULL", float)), None)

    def classes(self) -> tuple[str, ...]:
        """The federation's list of classes; empty before it is known."""
        asked = "SELECT 'names', names FROM classes"
        return next(iter(self._read("classes", asked, lambda _, names: tuple(json.loads(names)))), ())

    def columns(self) -> tuple[Feature, ...]:
        """The federation's list of columns; empty before it is known, and without names."""

        def parse_columns(_: str, said: str) -> tuple[Feature, ...]:
            return tuple(map(Feature.model_validate, json.loads(said)))

        return next(iter(self._read("columns", "SELECT 'said', said FROM columns", parse_columns)), ())

    def last_planning(self) -> RecordedPlanning | None:
        return next(iter(self._plannings("ORDER BY attempt DESC LIMIT 1")), None)

    def plannings(self) -> list[RecordedPlanning]:
        return self._plannings("ORDER BY attempt")

    def _plannings(self, which: str) -> list[RecordedPlanning]:
        columns = "attempt, round, deliver, needed, selected, clients, rng, planned_at"
        return self._read("plannings", f"SELECT {columns} FROM plannings {which}", _parse_planning)

    def tiers(self) -> dict[str, int]:
        """The tier of each device at the last planning that it was present for."""
        asked = "SELECT attempt, clients FROM plannings ORDER BY attempt"
        known = self._read("plannings", asked, lambda _, clients: json.loads(clients).items())
        return {name: tier for clients in known for name, (tier, _) in clients}

    def tasks(self) -> list[OpenTask]:
        asked = "SELECT device, attempt, task, max_bytes FROM tasks ORDER BY attempt, device"
        return self._read("tasks", asked, _open_task, keys=2)

    def devices(self) -> list[tuple[str, int, str, str]]:
        """Every device that was present at a planning, as (name, session, profile, data)."""
        asked = "SELECT device, session, profile, data FROM devices ORDER BY device"
        return self._read("devices", asked, _device)

    def seen_devices(self) -> list[tuple[str, str, str, float]]:
        """Every device of a planning as (name, profile, data, last presence in seconds since 1970)."""
        asked = "SELECT device, profile, data, seen_at FROM devices ORDER BY device"
        return self._read("devices", asked, _parse_seen)

    def verdicts(self, attempt: int) -> dict[str, str | None]:
        """The last verdict on each device's updates in an attempt: None for accepted, else why not."""
        rows = self._query_rows(
            "SELECT device, reason FROM updates WHERE attempt = ? ORDER BY rowid", (attempt,)
        )
        return dict(rows)

    def verdicts_of(self, device: str) -> list[tuple[int, str | None]]:
        """The verdicts on a device's updates as (round, None for accepted, else why not), in order."""
        return self._query_rows(
            "SELECT round, reason FROM updates WHERE device = ? ORDER BY rowid", (device,)
        )

    def choices_of(self, device: str) -> list[tuple[int, DeviceChoice]]:
        """Why each planning chose one device or not, as (round, choice), in order."""
        return self._read(
            "choices",
            "SELECT round, value FROM choices, json_each(said, '$.devices')"
            " WHERE json_extract(value, '$.device') = ? ORDER BY attempt",
            lambda number, said: (number, DeviceChoice.model_validate_json(said)),
            (device,),
        )

    def updates(self, *, since: int = 0) -> list[tuple[Update, str | None, float | None]]:
        """Every examined update with the reason of its refusal and its task's ratio, in order.

        `since` leaves out those of earlier attempts.
        """
        columns = "attempt, device, message, reason, ratio"
        asked = f"SELECT {columns} FROM updates WHERE attempt >= ? ORDER BY rowid"
        return self._read("updates", asked, _update, (since,), keys=2)

    def work_by_device(self) -> dict[str, int]:
        """The sum of examples times epochs over each device's examined updates."""
        rows = self._query_rows(
            "SELECT device, sum(json_extract(message, '$.metrics.examples')"
            " * json_extract(message, '$.metrics.epochs')) FROM updates GROUP BY device"
        )
        return {device: int(work or 0) for device, work in rows}

    def last_accepted(self) -> dict[str, Update]:
        known = self._read(
            "updates",
            "SELECT device, message, max(attempt) FROM updates WHERE reason IS NULL GROUP BY device",
            lambda device, message, _: (device, Update.model_validate_json(message)),
        )
        return dict(known)

    def examined_updates(self) -> list[ExaminedUpdate]:
        """Every examined update as the firewall remembers it, in order."""
        asked = "SELECT round, device, digest, reason, norms FROM updates ORDER BY rowid"
        return self._read("updates", asked, _parse_examined, keys=3)

    def strikes(self) -> list[Strike]:
        asked = "SELECT device, round, reason FROM strikes ORDER BY rowid"
        return self._read("strikes", asked, lambda of, number, why: Strike(of, int(number), why), keys=2)

    def refusals(self) -> dict[str, dict[str, int]]:
        """In how many rounds each device was refused or struck, by reason."""
        rows = self._query_rows(
            "SELECT device, reason, count(*) FROM (SELECT device, round, reason FROM updates"
            " WHERE reason IS NOT NULL UNION SELECT device, round, reason FROM strikes"
            f" WHERE reason NOT IN ('{reputation.ROLLED_BACK}', '{reputation.FORGIVEN}'))"
            " GROUP BY device, reason ORDER BY device, reason"
        )
        counts: dict[str, dict[str, int]] = {}
        for device, reason, count in rows:
            counts.setdefault(device, {})[reason] = count
        return counts

    def rounds(self) -> list[ClosedRound]:
        rows = self._query_rows(
            "SELECT round, state_sha256, updates, record, traffic FROM rounds ORDER BY round"
        )
        untested = {number for (number,) in self._query_rows("SELECT round FROM untested")}
        return [
            ClosedRound(
                number,
                sha256,
                self._parse_aggregated(number, updates),
                record,
                self._traffic(number, traffic),
                tested=number not in untested,
            )
            for number, sha256, updates, record, traffic in rows
        ]

    def _parse_aggregated(self, number: int, updates: str) -> tuple[AggregatedUpdate, ...]:
        """The updates that a round aggregated; empty if they cannot be read."""
        made = self._make_objects(
            "rounds",
            [(number, updates)],
            lambda _, said: [AggregatedUpdate(*update) for update in json.loads(said)],
        )
        return tuple(made[0]) if made else ()

    def _traffic(self, number: int, traffic: str) -> Mapping[str, Any]:
        made = self._make_objects("rounds", [(number, traffic)], lambda _, said: dict(json.loads(said)))
        return made[0] if made else {}

    def undone(self) -> list[UndoneRound]:
        """Every closed round that was given up, in order."""
        asked = "SELECT round, attempt, state_sha256, left_out, why FROM undone ORDER BY round"
        return self._read("undone", asked, _given_up)

    def end_of_run(self) -> events.EndRun | None:
        """The end of a run that is over; None for any other."""
        return next(iter(self._read("ends", "SELECT outcome, detail FROM ends LIMIT 1", events.EndRun)), None)

    def begun_with(self) -> dict[int, str]:
        """The digest of the model that each round after a closed one begins with, by the closed one."""
        ended = {closed.round: closed.state_sha256 for closed in self.rounds()}
        return {**ended, **{undone.round: undone.state_sha256 for undone in self.undone()}}

    def traffic(self) -> Mapping[str, Any]:
        """The counts of the run up to its last closed round (`Tally.traffic`)."""
        rows = self._query_rows("SELECT round, traffic FROM rounds ORDER BY round DESC LIMIT 1")
        return self._traffic(*rows[0]) if rows else {}

    def deliveries(self) -> list[Delivery]:
        asked = "SELECT attempt, device, message FROM deliveries ORDER BY rowid"
        return self._read("deliveries", asked, lambda *row: Delivery.model_validate_json(row[2]), keys=2)

    def choices(self, *, since: int = 0) -> list[RoundChoices]:
        """The reasons of each planning's choice, in order; `since` leaves out earlier attempts."""
        return self._said("choices", "attempt", since, RoundChoices)

    def observations(self, *, since: int = 0) -> list[Observation]:
        """The observations of closed rounds, in order; `since` leaves out earlier rounds."""
        return self._said("observations", "round", since, Observation)

    def _said(self, table: str, key: str, since: int, kind: type[M]) -> list[M]:
        asked = f"SELECT {key}, said FROM {table} WHERE {key} >= ? ORDER BY {key}"
        return self._read(table, asked, lambda _, said: kind.model_validate_json(said), (since,))


def read_examined(path: Path) -> list[ExaminedUpdate]:
    with closing(JournalReader(path)) as reader:
        return reader.examined_updates()


def _parse_planning(
    attempt: int,
    number: int,
    deliver: int,
    needed: int | None,
    selected: str,
    clients: str,
    rng: str,
    at: float,
) -> RecordedPlanning:
    return RecordedPlanning(
        attempt,
        int(number),
        bool(deliver),
        None if needed is None else int(needed),
        tuple(json.loads(selected)),
        {name: (int(tier), int(examples)) for name, (tier, examples) in json.loads(clients).items()},
        tuple(json.loads(rng)),
        float(at),
    )


def _open_task(device: str, attempt: int, task: str, max_bytes: int) -> OpenTask:
    decode_task(task)
    return device, int(attempt), task, int(max_bytes)


def _device(device: str, session: int, profile: str, data: str) -> tuple[str, int, str, str]:
    CapabilityProfile.model_validate_json(profile)
    DataCard.model_validate_json(data)
    return device, int(session), profile, data


def _parse_seen(device: str, profile: str, data: str, at: float) -> tuple[str, str, str, float]:
    _device(device, 0, profile, data)
    return device, profile, data, float(at)


def _update(
    _attempt: int, _device: str, message: str, reason: str | None, ratio: float | None
) -> tuple[Update, str | None, float | None]:
    why = None if reason is None else Reason(reason)
    return Update.model_validate_json(message), why, None if ratio is None else float(ratio)


def _parse_examined(number: int, device: str, digest: str, reason: str | None, norms: str) -> ExaminedUpdate:
    # Nothing was found in an update that only came too late for its round.
    found = None if reason == Reason.STALE_ROUND else reason
    return ExaminedUpdate(int(number), device, digest, found, dict(json.loads(norms)))


def _given_up(number: int, attempt: int, sha256: str, out: str, why: str) -> UndoneRound:
    return UndoneRound(number, int(attempt), sha256, tuple(json.loads(out)), why)
