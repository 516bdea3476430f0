"""Reading a run's journal, also while the run goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_server.explanation import Choice, Choices, Observation
from edge_server.journal import FORMAT, Aggregated
from schemas.errors import ConfigError
from schemas.messages import Delivery, Update


@dataclass(frozen=True)
class Planned:
    """A planning as it was written; `needed` is None for one that adds to another.

    `clients` are those who were there, {name: (tier, examples)}.
    `rng` is what the choice's random generator was begun with: the generator's whole state at that point.
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
        """Whether its devices join a round that is under way: as many are needed as before."""
        return self.needed is None and not self.deliver


@dataclass(frozen=True)
class Closed:
    """A closed round: its model's digest, the updates that it was made of, its line of history.

    `traffic` are the counts of the run up to there (`Tally.traffic`).
    """

    round: int
    state_sha256: str
    updates: tuple[Aggregated, ...]
    record: str
    traffic: Mapping[str, Any]


@dataclass(frozen=True)
class Examined:
    """An update that was accepted (no reason) or refused, with its norms as far as they were taken."""

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


OpenTask = tuple[str, int, str, int]
"""A device, the attempt, the task as JSON, the most bytes of its answer."""


class JournalReader:
    """What a journal says; raises `ConfigError` where there is none, or one of another format.

    One that is `immutable` has no writer: it is read without anything being made or locked beside it.
    """

    def __init__(self, path: Path, *, immutable: bool = False) -> None:
        if not path.is_file():
            raise ConfigError(f"{path}: there is no journal; is {path.parent} a run folder?")
        how = "mode=ro&immutable=1" if immutable else "mode=ro"
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)
        try:
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise ConfigError(f"{path}: no journal that can be read: {error}") from error
        if found != FORMAT:
            raise ConfigError(f"{path}: a journal of format {found}; this program reads format {FORMAT}")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def run(self) -> str | None:
        """The run's name; None before it has one."""
        row = self._connection.execute("SELECT run FROM run").fetchone()
        return None if row is None else str(row[0])

    def began_at(self) -> float | None:
        """When the run began, or was first planned, in seconds since 1970; None before that."""
        asked = "SELECT coalesce((SELECT began_at FROM run), (SELECT min(planned_at) FROM plannings))"
        (at,) = self._connection.execute(asked).fetchone()
        return None if at is None else float(at)

    def last_planning(self) -> Planned | None:
        """The newest planning."""
        return next(iter(self._plannings("ORDER BY attempt DESC LIMIT 1")), None)

    def plannings(self) -> list[Planned]:
        """Every planning, in order."""
        return self._plannings("ORDER BY attempt")

    def _plannings(self, which: str) -> list[Planned]:
        rows = self._connection.execute(
            "SELECT attempt, round, deliver, needed, selected, clients, rng, planned_at"
            f" FROM plannings {which}"
        )
        return [
            Planned(
                attempt,
                number,
                bool(deliver),
                needed,
                tuple(json.loads(selected)),
                {name: (tier, examples) for name, (tier, examples) in json.loads(clients).items()},
                tuple(json.loads(rng)),
                at,
            )
            for attempt, number, deliver, needed, selected, clients, rng, at in rows
        ]

    def tiers(self) -> dict[str, int]:
        """The tier that each device had at the last planning that it was there for."""
        rows = self._connection.execute("SELECT clients FROM plannings ORDER BY attempt")
        return {name: tier for (clients,) in rows for name, (tier, _) in json.loads(clients).items()}

    def tasks(self) -> list[OpenTask]:
        """Each device's open task, by attempt."""
        return self._connection.execute(
            "SELECT device, attempt, task, max_bytes FROM tasks ORDER BY attempt, device"
        ).fetchall()

    def devices(self) -> list[tuple[str, int, str, str]]:
        """Every device that was there at a planning, as (name, session, profile, data)."""
        return self._connection.execute(
            "SELECT device, session, profile, data FROM devices ORDER BY device"
        ).fetchall()

    def seen(self) -> list[tuple[str, str, str, float]]:
        """Every such device as (name, profile, data, when it was last there)."""
        return self._connection.execute(
            "SELECT device, profile, data, seen_at FROM devices ORDER BY device"
        ).fetchall()

    def verdicts(self, attempt: int) -> dict[str, str | None]:
        """The last verdict on each device's updates in an attempt: None for accepted, else why not."""
        rows = self._connection.execute(
            "SELECT device, reason FROM updates WHERE attempt = ? ORDER BY rowid", (attempt,)
        )
        return dict(rows)

    def verdicts_of(self, device: str) -> list[tuple[int, str | None]]:
        """The verdicts on a device's updates as (round, None for accepted, else why not), in order."""
        return self._connection.execute(
            "SELECT round, reason FROM updates WHERE device = ? ORDER BY rowid", (device,)
        ).fetchall()

    def choices_of(self, device: str) -> list[tuple[int, Choice]]:
        """Why each planning chose one device or not, as (round, choice), in order."""
        if not self._has("choices"):
            return []
        rows = self._connection.execute(
            "SELECT round, value FROM choices, json_each(said, '$.devices')"
            " WHERE json_extract(value, '$.device') = ? ORDER BY attempt",
            (device,),
        )
        return [(number, Choice.model_validate_json(said)) for number, said in rows]

    def updates(self, *, since: int = 0) -> list[tuple[Update, str | None, float | None]]:
        """Every examined update with the reason of its refusal and its task's ratio, in order.

        `since` leaves out those of earlier attempts.
        """
        rows = self._connection.execute(
            "SELECT message, reason, ratio FROM updates WHERE attempt >= ? ORDER BY rowid", (since,)
        )
        return [(Update.model_validate_json(message), reason, ratio) for message, reason, ratio in rows]

    def worked(self) -> dict[str, int]:
        """Examples times epochs of each device's examined updates, added up where they lie."""
        rows = self._connection.execute(
            "SELECT device, sum(json_extract(message, '$.metrics.examples')"
            " * json_extract(message, '$.metrics.epochs')) FROM updates GROUP BY device"
        )
        return {device: int(work or 0) for device, work in rows}

    def last_accepted(self) -> dict[str, Update]:
        """Each device's newest accepted update."""
        rows = self._connection.execute(
            "SELECT device, message, max(attempt) FROM updates WHERE reason IS NULL GROUP BY device"
        )
        return {device: Update.model_validate_json(message) for device, message, _ in rows}

    def examined(self) -> list[Examined]:
        """Every examined update as the firewall remembers it, in order."""
        rows = self._connection.execute(
            "SELECT round, device, digest, reason, norms FROM updates ORDER BY rowid"
        )
        return [
            Examined(number, device, digest, reason, json.loads(norms))
            for number, device, digest, reason, norms in rows
        ]

    def strikes(self) -> list[Strike]:
        """Every strike, in order."""
        rows = self._connection.execute("SELECT device, round, reason FROM strikes ORDER BY rowid")
        return [Strike(*row) for row in rows]

    def refusals(self) -> dict[str, dict[str, int]]:
        """In how many rounds each device was refused or struck, by reason."""
        rows = self._connection.execute(
            "SELECT device, reason, count(*) FROM (SELECT device, round, reason FROM updates"
            " WHERE reason IS NOT NULL UNION SELECT device, round, reason FROM strikes)"
            " GROUP BY device, reason ORDER BY device, reason"
        )
        counts: dict[str, dict[str, int]] = {}
        for device, reason, count in rows:
            counts.setdefault(device, {})[reason] = count
        return counts

    def rounds(self) -> list[Closed]:
        """Every closed round, in order."""
        rows = self._connection.execute(
            "SELECT round, state_sha256, updates, record, traffic FROM rounds ORDER BY round"
        )
        return [
            Closed(number, sha256, _aggregated(updates), record, json.loads(traffic))
            for number, sha256, updates, record, traffic in rows
        ]

    def deliveries(self) -> list[Delivery]:
        """Every delivery that was acknowledged."""
        rows = self._connection.execute("SELECT message FROM deliveries ORDER BY rowid")
        return [Delivery.model_validate_json(message) for (message,) in rows]

    def choices(self, *, since: int = 0) -> list[Choices]:
        """Why each planning chose whom it chose, in order; `since` leaves out earlier attempts."""
        return [Choices.model_validate_json(said) for said in self._said("choices", "attempt", since)]

    def observations(self, *, since: int = 0) -> list[Observation]:
        """What the closed rounds showed, in order; `since` leaves out earlier rounds."""
        return [Observation.model_validate_json(said) for said in self._said("observations", "round", since)]

    def _said(self, table: str, key: str, since: int) -> list[str]:
        if not self._has(table):
            return []
        rows = self._connection.execute(f"SELECT said FROM {table} WHERE {key} >= ? ORDER BY {key}", (since,))
        return [said for (said,) in rows]

    def _has(self, table: str) -> bool:
        # A run of before they were kept has no such table.
        asked = "SELECT 1 FROM sqlite_master WHERE name = ?"
        return self._connection.execute(asked, (table,)).fetchone() is not None


def read_examined(path: Path) -> list[Examined]:
    """Every update that was examined, in the order of that."""
    with closing(JournalReader(path)) as reader:
        return reader.examined()


def read_strikes(path: Path) -> list[Strike]:
    """Every strike, in order."""
    with closing(JournalReader(path)) as reader:
        return reader.strikes()


def _aggregated(updates: str) -> tuple[Aggregated, ...]:
    return tuple(Aggregated(*one) for one in json.loads(updates))
