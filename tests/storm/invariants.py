"""What must hold after each event of a storm, and at its end."""

import hashlib
import io
import json
import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_client.agent.session.state import SessionPhase
from edge_client.agent.session_runner import SessionRunner
from edge_server.coordinator.standby.replica_copy import RunCopy
from edge_server.rounds.participant import FINAL
from edge_server.storage.journal import Journal
from schemas.errors import PeerError
from schemas.messages import Delivery, Update
from schemas.tensors.files import FileGroups, FlatGroups, write_tensors
from tests.storm.disk import REAL_CONNECT, REAL_OPEN
from tests.storm.faults import RUN, SERVER, Fault
from tests.storm.training import BETA, Trained, fingerprint

if TYPE_CHECKING:
    from tests.storm.world import World

QUORUM = 0.5
Params = dict[str, Any]
State = tuple[Params, Params]
"""A model's parameters, and the velocity of the server's optimizer, by name."""
CRASHES = ("crash", "power-cut")
NEAR_S = 15.0
"""A fault that is over for this long no longer explains that a message was lost."""
GIVING_UP_S = 200.0
"""A run may give up, after its last attempt, at most this long after the last fault."""


class Violation(BaseException):
    """An invariant does not hold; no handler of the product catches this."""


@dataclass(frozen=True)
class Closed:
    """A row of the journal's closed rounds; `updates` are (device, attempt, digest, staleness)."""

    round: int
    sha256: str
    updates: tuple[tuple[str, int, str, int], ...]


class Watch:
    """Watches one world; the functions that it wraps only report."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.closed: list[Closed] = []
        self.confirmed: dict[tuple[str, int], tuple[int, str]] = {}
        self.trained: dict[str, Trained] = {}
        self.home, self._home = SERVER, None
        self.delivered: set[tuple[str, int]] = set()
        self._momentum = world.scenario.momentum
        self._states: dict[int, State] = {}
        self._seen: Any = None
        self._listening: set[str] = set()

    @property
    def _run(self) -> Path:
        """The folder of the server that has started last."""
        return Path(self._world.disks.machines[self.home].root) / RUN

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """See what the journal closes, and what devices are told."""
        closed, settled, written = Journal.write_closed_round, SessionRunner.settle, Journal.writing
        apply = RunCopy.apply

        def note_applied(copy: RunCopy, entry: Any) -> None:
            try:
                apply(copy, entry)
            except PeerError as error:
                raise Violation(f"the standby cannot apply an entry: {error}") from error

        def note_written(journal: Journal) -> Any:
            self._note_writer()
            return written(journal)

        def note_closed(journal: Journal, number: int, sha256: str, **more: Any) -> None:
            more["updates"] = list(more["updates"])
            closed(journal, number, sha256, **more)
            if self._world.ended is not None or self._is_deposed():
                return
            made_of = tuple((u.device, u.attempt, u.digest, u.staleness) for u in more["updates"])
            self._note_closed(Closed(number, sha256, made_of))
            self._world.round_closed()

        def note_settled(runner: SessionRunner, event: Any) -> None:
            settled(runner, event)
            self._note_settled(event)

        places: tuple[Any, Any, Any] = Journal, SessionRunner, RunCopy
        places[0].write_closed_round, places[0].writing, places[1].settle = (
            note_closed,
            note_written,
            note_settled,
        )
        places[2].apply = note_applied
        try:
            yield
        finally:
            places[0].write_closed_round, places[0].writing, places[1].settle = closed, written, settled
            places[2].apply = apply

    # --- what happened ---
    def _note_settled(self, event: Any) -> None:
        result = event.result
        if event.refusal is not None:
            if isinstance(result, Update):
                self._check_refused(result)
            return
        if isinstance(result, Update):
            self.confirmed[result.device, result.attempt] = result.round, result.blob.digest
        elif isinstance(result, Delivery):
            self.delivered.add((result.device, result.attempt))

    def _note_writer(self) -> None:
        """A run folder has one writer at a time."""
        writer = self._world.running
        if writer is None or not writer.alive:
            raise Violation("a process that is gone writes the journal")
        if (
            self._home is not None
            and self._home.alive
            and writer.name == self.home
            and writer is not self._home
        ):
            raise Violation(f"two processes write the run on {self.home}")

    def _is_deposed(self) -> bool:
        """Whether the running process writes a folder that is no longer the run's."""
        writer = self._world.running
        return writer is not None and writer.name != self.home

    def _check_refused(self, update: Update) -> None:
        """What the journal has accepted is not refused to its device while the run lasts."""
        if self._world.ended is not None:
            return
        accepted = "SELECT 1 FROM updates WHERE reason IS NULL AND device = ? AND attempt = ? AND digest = ?"
        if self._ask(accepted, update.device, update.attempt, update.blob.digest):
            raise Violation(
                f"{update.device}'s accepted update of attempt {update.attempt} was refused to it"
            )

    def _note_closed(self, closed: Closed) -> None:
        if closed.round != len(self.closed) + 1:
            raise Violation(f"round {closed.round} was closed after {len(self.closed)} rounds")
        self.closed.append(closed)
        self._check_updates(closed)
        self._world.site_watch.check_counted(closed.round, closed.updates)
        self._check_model(closed)

    def _check_updates(self, closed: Closed) -> None:
        """Each device counts once; in a synchronous round, with an update of one attempt, and in a quorum."""
        devices = [device for device, *_ in closed.updates]
        if len(set(devices)) != len(devices):
            raise Violation(f"round {closed.round} counts a device twice: {closed.updates}")
        earlier = {row[:3] for each in self.closed[:-1] for row in each.updates}
        if twice := earlier & {row[:3] for row in closed.updates}:
            raise Violation(f"updates count in two rounds: {sorted(twice)}")
        if not self._world.scenario.size:
            self._check_attempts(closed)

    def _check_attempts(self, closed: Closed) -> None:
        """A synchronous round counts enough answers, to its last planning and those that replaced devices."""
        tried = self._ask(
            "SELECT attempt, needed, selected FROM plannings WHERE round=? AND NOT deliver ORDER BY attempt",
            closed.round,
        )
        first = max((n for n, (_, needed, _) in enumerate(tried) if needed is not None), default=0)
        valid = {attempt: json.loads(selected) for attempt, _, selected in tried[first:]}
        known = self._world.scenario.masked
        if wrong := [row for row in closed.updates if row[0] not in valid.get(row[1], ()) and not known]:
            raise Violation(f"round {closed.round} counts updates that it has not asked for: {wrong}")
        quorum = math.ceil(QUORUM * tried[first][1]) if tried and tried[first][1] else 1
        if len(closed.updates) < quorum and not known:
            raise Violation(f"round {closed.round} was closed below its quorum: {closed.updates}")

    def _ask(self, sql: str, *values: object) -> list[Any]:
        with closing(REAL_CONNECT(self._run / "journal.sqlite")) as connection:
            return connection.execute(sql, values).fetchall()

    # --- the model ---
    def _check_model(self, closed: Closed) -> None:
        """Journal and model agree, and the model is that of a run without faults."""
        path = self._run / "models" / f"round-{closed.round:04d}" / "state.safetensors"
        with REAL_OPEN(path, "rb") as file:
            on_disk = hashlib.sha256(file.read()).hexdigest()
        if on_disk != closed.sha256:
            raise Violation(f"round {closed.round}: the journal names another model than the one on disk")
        if self._world.scenario.masked or any(lag for *_, lag in closed.updates):
            # A sum of masked updates does not say whose it is; what is late has a smaller weight.
            self._states[closed.round] = _read(path), {}
        else:
            self._states[closed.round] = self._expected(closed)
        if digest_of_model(self._states[closed.round][0]) != closed.sha256:
            devices = [device for device, *_ in closed.updates]
            raise Violation(f"round {closed.round}: the model is not the one of {devices} without faults")

    def _expected(self, closed: Closed) -> State:
        """The model before, plus the exact mean of what the devices' trainings have added to it."""
        before, velocity = self._before(closed.round)
        changes = [self._made(closed, before, *row).change for row in closed.updates]
        after, moved = {}, {}
        for name in before:
            mean = np.mean([made[name].astype(np.float64) for made in changes], axis=0)
            moved[name] = (BETA * velocity.get(name, 0.0) if self._momentum else 0.0) + mean
            after[name] = (before[name] + moved[name]).astype(np.float32)
        return after, moved

    def _made(
        self, closed: Closed, before: Params, device: str, attempt: int, digest: str, lag: int
    ) -> Trained:
        """The training that an update comes from: by its device, of the model that the round began with."""
        made = self.trained.get(digest)
        if made is None or made.device != device:
            raise Violation(f"round {closed.round} counts an update that {device} has not made")
        if made.received != fingerprint(before):
            raise Violation(f"round {closed.round}: {device} has trained another model")
        return made

    def _before(self, number: int) -> State:
        """What a round begins with: the state after the one before, or that before it, if it was undone."""
        if number - 1 in {undone for (undone,) in self._ask("SELECT round FROM undone")}:
            return self._before(number - 1)
        if number == 1 and 0 not in self._states:
            self._states[0] = _read(self._run / "models" / "round-0000" / "state.safetensors"), {}
        return self._states[number - 1]

    # --- after each event ---
    def after_event(self) -> None:
        """Check the state of the server's rounds, where it has changed."""
        process: Any = self._world.processes.get(self.home)
        driver = getattr(process, "driver", None)
        if driver is None or driver.federation is self._seen:
            return
        self._seen = driver.federation
        participants = driver.federation.participants
        statuses = [participant.status for participant in participants.values()]
        if any(participants.counts[status] != statuses.count(status) for status in set(statuses)):
            raise Violation("the counts of the participants do not match their statuses")
        if any(part.final != (part.status in FINAL) for part in participants.values()):
            raise Violation("a participant's status is final and not final")

    def server_started(self, process: Any) -> None:
        """What the server has found on its disk is what was told before.

        A standby may not have rounds that no device knows of: it closes them anew.
        """
        moved, self.home, self._home = process.name != self.home, process.name, process
        rows = self._ask("SELECT round, state_sha256, updates FROM rounds ORDER BY round")
        found = [
            Closed(number, sha256, tuple(tuple(row) for row in json.loads(updates)))
            for number, sha256, updates in rows
        ]
        if moved and len(found) < len(self.closed):
            del self.closed[len(found) :]
        if found[: len(self.closed)] != self.closed:
            raise Violation(f"closed rounds are lost or changed: {found} instead of {self.closed}")
        for closed in found[len(self.closed) :]:
            self._note_closed(closed)
        self._check_confirmed()

    def _check_confirmed(self) -> None:
        """Every update that was confirmed to its device is in the journal, and counts with its round.

        Of masked ones only the sum is kept, and a restarted server begins the round again.
        """
        if self._world.scenario.masked:
            return
        rows = self._ask("SELECT device, attempt, digest FROM updates WHERE reason IS NULL")
        for (device, attempt), (_, digest) in self.confirmed.items():
            if (device, attempt, digest) not in rows and device not in self._dropped(attempt):
                raise Violation(f"{device}'s confirmed update of attempt {attempt} is not in the journal")
        counted = {(device, attempt): digest for c in self.closed for device, attempt, digest, _ in c.updates}
        attempts = {attempt for _, attempt in counted}
        for (device, attempt), (_, digest) in self.confirmed.items():
            if attempt in attempts and counted.get((device, attempt), digest) != digest:
                raise Violation(f"another update of {device} counts than the confirmed one")
            if not self._world.scenario.size and attempt in attempts and (device, attempt) not in counted:
                if device in self._dropped(attempt):
                    self._world.site_watch.check_dropped(device)
                    continue
                raise Violation(f"{device}'s confirmed update of attempt {attempt} does not count")

    def _dropped(self, attempt: int) -> list[str]:
        """The devices without which the round of this attempt was closed."""
        of_attempt = (
            "SELECT record FROM rounds WHERE round IN (SELECT round FROM plannings WHERE attempt = ?)"
        )
        return [
            name for (record,) in self._ask(of_attempt, attempt) for name in json.loads(record)["dropped"]
        ]

    # --- the end ---
    def ended(self, outcome: str, detail: str) -> None:
        """A run has ended: rounds, journal, history and summary say the same."""
        world, now = self._world, self._world.timeline.now
        self._listening = {name for name in world.devices if _is_connected(world.processes.get(name))}
        if outcome == "failed" and "given up after" in detail and now < world.quiet_at + GIVING_UP_S:
            return
        if outcome != "finished":
            raise Violation(f"the run has {outcome}: {detail}")
        if len(self.closed) != world.scenario.rounds:
            raise Violation(f"the run has finished with {len(self.closed)} rounds")
        self._check_confirmed()
        if world.scenario.size:
            self._check_buffered()
        with REAL_OPEN(self._run / "history.jsonl") as file:
            numbers = [json.loads(line)["round"] for line in file]
        if numbers != [closed.round for closed in self.closed]:
            raise Violation(f"the history has the rounds {numbers}")
        kept = set(self._ask("SELECT device, attempt FROM deliveries"))
        if lost := self.delivered - kept:
            raise Violation(f"confirmed deliveries are not in the journal: {sorted(lost)}")

    def _check_buffered(self) -> None:
        """Buffered rounds discard no confirmed update but those that came too late for the last one."""
        counted = {(device, attempt) for c in self.closed for device, attempt, *_ in c.updates}
        planned = self._ask("SELECT attempt, round FROM plannings")
        last = {attempt for attempt, number in planned if number >= self._world.scenario.rounds - 2}
        lost = {key for key in self.confirmed if key not in counted and key[1] not in last}
        if lost:
            raise Violation(f"confirmed updates were never aggregated: {sorted(lost)}")

    def check_told(self) -> None:
        """Devices that were connected at the end know it, if no fault was near that explains otherwise."""
        world = self._world
        near = world.ended_at - NEAR_S
        if any(fault.at <= world.timeline.now and _felt_until(fault) >= near for fault in world.faults):
            return
        for name in sorted(self._listening):
            if not _is_idle(world.processes.get(name)):
                raise Violation(f"{name} was connected at the end of the run, and was not told")

    def devices_are_idle(self) -> bool:
        """Whether every device knows that the run is over."""
        processes: list[Any] = [self._world.processes.get(name) for name in self._world.devices]
        return all(process is not None and _is_idle(process) for process in processes)

    def where(self) -> str:
        """Where every process is, in words."""
        words = []
        for name in self._world.make:
            process: Any = self._world.processes.get(name)
            if process is None:
                words.append(f"{name} is down")
            elif hasattr(process, "driver"):
                federation = process.driver.federation
                parts = {part.device: str(part.status) for part in federation.participants.values()}
                words.append(f"{name} in round {federation.round}, {federation.phase}, {parts}")
            elif getattr(process, "keeper", None) is not None:
                words.append(f"{name} is {type(process.keeper.state.phase).__name__.lower()}")
            elif hasattr(process, "gateway"):
                gateway = process.gateway.gateway
                there = "" if gateway.linked else ", not connected"
                words.append(f"{name} has {sorted(gateway.births)} and {sorted(gateway.updates)}{there}")
            elif hasattr(process, "agent"):
                session = process.runner.session
                there = "" if session.connected else ", not connected"
                words.append(f"{name} is {session.phase}{there}")
        return "; ".join(words)


def _is_connected(process: Any) -> bool:
    return hasattr(process, "agent") and process.runner.session.connected


def _felt_until(fault: Fault) -> float:
    """Until when a fault may have effects, in virtual seconds."""
    later = fault.kind in ("failed-sync", "closing-crash") or (fault.kind in CRASHES and fault.size > 0)
    return math.inf if later else fault.over


def _is_idle(process: Any) -> bool:
    if not hasattr(process, "agent"):
        return False
    session = process.runner.session
    return bool(session.phase is SessionPhase.IDLE and session.connected and not session.runs)


def _read(path: Path) -> Params:
    model = FileGroups(path)["model"]
    return {name: np.array(model[name]) for name in model}


def digest_of_model(params: Params) -> str:
    """The sha256 of a model's file."""
    return write_tensors(io.BytesIO(), FlatGroups({"model": params}))
