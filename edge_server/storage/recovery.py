"""Recovering a run whose server was killed: its state as the journal has it.

The journal does not hold everything: a device that has not answered is asked again, an update that was being
uploaded is claimed again, and every device counts as lost until it sends a birth message.
"""

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from edge_server.rounds import events, reputation
from edge_server.rounds.fleet import Device, Fleet
from edge_server.rounds.participant import Participant, Status
from edge_server.rounds.participants import Participants
from edge_server.rounds.state import Federation, Phase, RoundRules, Undone
from edge_server.security.secure_aggregation.protocol import COHORT
from edge_server.storage import journal, journal_reader
from edge_server.storage.records import RoundRecord
from schemas import errors, messages, values

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resumption:
    """What the coordinator resumes from: the checkpoint of `round`, and what was learned since.

    `state_sha256` is the digest of the model after that round, where it is known, or, where the round was
    given up (`undone`), of the model before it. `clients` came after that round, as {name: (tier, examples)};
    `ratios` are those of accepted updates that wait to be aggregated, by device and attempt; `examined` is
    what the firewall remembers; `short_of_memory` counts refusals for lack of memory by device; `undecided`
    are the devices that state no tier. `untested` is the record of that round if its test has not ended.
    """

    round: int
    state_sha256: str | None = None
    clients: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ratios: Mapping[tuple[str, int], float] = field(default_factory=dict)
    examined: tuple[journal_reader.ExaminedUpdate, ...] = ()
    short_of_memory: Mapping[str, int] = field(default_factory=dict)
    undecided: frozenset[str] = frozenset()
    undone: journal.UndoneRound | None = None
    classes: tuple[str, ...] = ()
    columns: tuple[values.Feature, ...] = ()
    untested: RoundRecord | None = None


@dataclass(frozen=True)
class Recovered:
    """A run as its journal has it: the round machine, the start of its coordinator, the counts.

    `restored` is the number that later plannings exceed if the run was restored from a backup, else 0.
    """

    federation: Federation
    resumption: Resumption
    history: tuple[RoundRecord, ...]
    traffic: Mapping[str, Any]
    deliveries: tuple[messages.Delivery, ...]
    restored: int = 0


@dataclass(frozen=True)
class _Seen:
    """The journal rows that show where the run stands; `verdicts` are those on answers to open tasks."""

    plannings: list[journal_reader.RecordedPlanning]
    closed: int
    verdicts: Mapping[tuple[str, int], tuple[messages.Update, str | None, float | None]]
    counted: Mapping[str, messages.Update]
    undone: journal.UndoneRound | None = None
    attempt: int = 0

    @property
    def last(self) -> journal_reader.RecordedPlanning | None:
        return self.plannings[-1] if self.plannings else None

    @property
    def base(self) -> int:
        """The index of the planning that began the open round; later plannings added devices to it."""
        return max((n for n, planning in enumerate(self.plannings) if not planning.joins), default=0)


def recover(
    reader: journal_reader.JournalReader,
    rules: RoundRules,
    federation: str,
    *,
    now: float,
    lines: Mapping[int, RoundRecord] | None = None,
    model_of: str | None = None,
) -> Recovered | None:
    """The run as its journal has it at `now` (seconds of the server's clock); None where no run has begun.

    Records that cannot be read in the journal are taken from the `lines` of the history, by round; `model_of`
    is the run that the last model names. Raises `ConfigError` where neither file has a record.
    """
    run = _name(reader, model_of)
    if run is None:
        return None
    rounds, tasks, given_up = reader.rounds(), reader.tasks(), reader.undone()
    seen = _read_seen(reader, rules, rounds[-1].round if rounds else 0, tasks, given_up)
    records = {closed.round: _record(closed, lines or {}) for closed in rounds}
    history = tuple(records[closed.round] for closed in rounds if closed.tested)
    untested = next((records[closed.round] for closed in rounds[-1:] if not closed.tested), None)
    deliveries = reader.deliveries()
    participants = _participants(tasks, seen, rules, {(d.device, d.attempt) for d in deliveries}, now)
    strikes = [(strike.device, strike.round, strike.reason) for strike in reader.strikes()]
    fleet, over = _fleet(reader, now), reader.end_of_run()
    return Recovered(
        replace(
            _federation(federation, run, rules, seen, participants, fleet, now),
            reputations=reputation.replay_strikes(strikes, rules.reputation),
            undone=tuple(Undone(undone.round, undone.attempt, undone.left_out) for undone in given_up),
            diverged=any(records[closed.round].diverged for closed in rounds[-1:]) and seen.undone is None,
            announced_end=over,
        ),
        replace(_resumption(reader, seen, strikes, fleet), untested=untested),
        history,
        rounds[-1].traffic if rounds else {},
        tuple(deliveries),
        restored=reader.restored_attempt(),
    )


def _read_seen(
    reader: journal_reader.JournalReader,
    rules: RoundRules,
    closed: int,
    tasks: list[journal_reader.OpenTask],
    given_up: list[journal.UndoneRound],
) -> _Seen:
    plannings = reader.plannings()
    examined = reader.updates(since=_since_attempt(tasks, plannings, rules))
    return _Seen(
        plannings,
        closed=closed,
        verdicts={(u.device, u.attempt): (u, reason, ratio) for u, reason, ratio in examined},
        counted=reader.last_accepted(),
        undone=next((undone for undone in given_up if undone.round == closed), None),
        # At least that of any task or update: the row of its planning may be unreadable.
        attempt=max(
            [reader.restored_attempt()]
            + [planned.attempt for planned in plannings]
            + [attempt for _, attempt, _, _ in tasks]
            + [update.attempt for update, _, _ in examined],
            default=0,
        ),
    )


def _resumption(
    reader: journal_reader.JournalReader, seen: _Seen, strikes: list[tuple[str, int, str]], fleet: Fleet
) -> Resumption:
    return Resumption(
        seen.closed,
        reader.begun_with().get(seen.closed),
        clients=_since(seen),
        ratios={key: ratio for key, (_, reason, ratio) in seen.verdicts.items() if not reason and ratio},
        examined=tuple(reader.examined_updates()),
        short_of_memory=Counter(device for device, _, why in strikes if why == errors.Reason.NO_MEMORY),
        undecided=frozenset(name for name, device in fleet.devices.items() if device.profile.tier is None),
        undone=seen.undone,
        classes=reader.classes(),
        columns=reader.columns(),
    )


def _name(reader: journal_reader.JournalReader, model_of: str | None) -> str | None:
    """The run's name: that of its tasks and its model where the journal has another name, or none."""
    named, tasks = reader.run(), reader.tasks()
    if named is None and not tasks:
        return model_of if reader.plannings() else None
    others = {messages.decode_task(task).run for _, _, task, _ in tasks} | ({model_of} - {None})
    if len(others) != 1 or named in others:
        return named
    (other,) = others
    log.warning("the journal calls this run '%s', its tasks and its model are those of '%s'", named, other)
    return other


def _record(closed: journal_reader.ClosedRound, lines: Mapping[int, RoundRecord]) -> RoundRecord:
    """A round's record; the one in the history file where that in the journal cannot be read."""
    try:
        return RoundRecord.model_validate_json(closed.record)
    except ValueError as error:
        if closed.round not in lines:
            raise errors.ConfigError(
                f"journal.sqlite: table 'rounds', row {closed.round}: the record cannot be read, and "
                "history.jsonl does not have it either",
                remedy=journal_reader.REMEDY,
            ) from error
        log.warning("the journal's record of round %d cannot be read: history.jsonl has it", closed.round)
        return lines[closed.round]


def _since_attempt(
    tasks: list[journal_reader.OpenTask], plannings: list[journal_reader.RecordedPlanning], rules: RoundRules
) -> int:
    """The first attempt whose updates may still wait to be aggregated."""
    if rules.buffering is not None:
        return min((attempt for _, attempt, _, _ in tasks), default=0)
    return max((planning.attempt for planning in plannings if not planning.joins), default=0)


def _federation(
    name: str, run: str, rules: RoundRules, seen: _Seen, participants: Participants, fleet: Fleet, now: float
) -> Federation:
    phase, last = _phase(seen, rules), seen.last
    waits = phase is Phase.TRAINING and rules.buffering is None
    if not participants and (waits or phase is Phase.DELIVERING):
        phase = Phase.STARTING  # a masked round, or one without devices, is planned again
    open_round = phase is Phase.TRAINING
    number = seen.closed + 1 if open_round or last is None else seen.closed
    return Federation(
        name,
        run,
        rules,
        phase=phase,
        round=number,
        attempt=seen.attempt,
        plannings=sum(1 for planning in seen.plannings if planning.round == number) if open_round else 0,
        fleet=fleet,
        participants=participants,
        needed=seen.plannings[seen.base].needed if last and open_round else None,
        gather_until=now + rules.rejoin_s,
        counted=seen.counted,
    )


def _phase(seen: _Seen, rules: RoundRules) -> Phase:
    last = seen.last
    if last is None:
        return Phase.STARTING
    if last.deliver:
        return Phase.DELIVERING
    is_open = last.round > seen.closed or (rules.buffering is not None and seen.closed < rules.rounds)
    return Phase.TRAINING if is_open else Phase.STARTING


def _participants(
    tasks: list[journal_reader.OpenTask],
    seen: _Seen,
    rules: RoundRules,
    delivered: set[tuple[str, int]],
    now: float,
) -> Participants:
    """The devices with an open task, and those whose update waits to be aggregated.

    In synchronous rounds only the tasks of the last planning, and of plannings that added devices to it,
    count. Every device has at least `rejoin_s` left.
    """
    last = seen.last
    if last is None:
        return Participants()
    buffered = rules.buffering is not None and not last.deliver
    planned_at = {planning.attempt: planning.planned_at for planning in seen.plannings}
    made = []
    for device, attempt, task, max_bytes in tasks:
        if attempt not in planned_at or (attempt < seen.plannings[seen.base].attempt and not buffered):
            continue
        # A task ends with the round that is given up; in buffered rounds only those of devices left out.
        undone = seen.undone
        if undone and attempt <= undone.attempt and (not buffered or device in undone.left_out):
            continue
        gone = time.time() - planned_at[attempt]
        left = min(rules.deadline_s, max(rules.rejoin_s, rules.deadline_s - gone))
        assignment = events.Assignment(messages.decode_task(task), max_bytes)
        participant = Participant(device, assignment, deadline=now + left, began=now - max(gone, 0.0))
        made.append(_as_it_stood(participant, seen, delivered))
    masked = any(participant.assignment.task.masking is not None for participant in made)
    return _find_sum(made, seen) if masked else Participants.of(made)


def _find_sum(made: list[Participant], seen: _Seen) -> Participants:
    """The sum of a masked round, if it was opened; else nothing, as the agreed masks are lost."""
    for participant in made:
        update, _, _ = seen.verdicts.get((COHORT, participant.assignment.task.attempt), (None, None, None))
        if update is not None:
            return Participants.of(
                [replace(participant, device=COHORT, status=Status.COUNTED, update=update)]
            )
    return Participants()


def _as_it_stood(participant: Participant, seen: _Seen, delivered: set[tuple[str, int]]) -> Participant:
    key = participant.device, participant.assignment.task.attempt
    update, reason, _ = seen.verdicts.get(key, (None, None, None))
    if key in delivered:
        return replace(participant, status=Status.COUNTED)
    if update is None or reason is None:
        return participant if update is None else replace(participant, status=Status.COUNTED, update=update)
    return replace(participant, status=Status.REFUSED, update=update, reason=errors.Reason(reason))


def _since(seen: _Seen) -> dict[str, tuple[int, int]]:
    """The clients of plannings that no closed round has made part of the checkpoint."""
    later = [planned.clients for planned in seen.plannings if planned.round > seen.closed]
    return {name: about for clients in later for name, about in clients.items()}


def _fleet(reader: journal_reader.JournalReader, now: float) -> Fleet:
    """The known devices, all lost since `now` until they send a birth message."""
    return Fleet(
        {
            name: Device(
                name,
                session,
                values.CapabilityProfile.model_validate_json(profile),
                values.DataCard.model_validate_json(data),
                lost_at=now,
            )
            for name, session, profile, data in reader.devices()
        }
    )
