"""All participants of a round by name, and how many of them are how far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edge_server.rounds.participant import Participant, Status

QUEUES = (Status.WAITING, Status.UPLOADING)
Queues = Mapping[Status, dict[str, None]]


def _queues(participants: Iterable[Participant] = ()) -> Queues:
    """The names of those who have these statuses."""
    queues: dict[Status, dict[str, None]] = {status: {} for status in QUEUES}
    for one in participants:
        if one.status in queues:
            queues[one.status][one.device] = None
    return queues


@dataclass(frozen=True, eq=False)
class Participants(Mapping[str, Participant]):
    """A frozen mapping. Its counts are kept, so that no event of one device has to look at all the others.

    So are the names of those who wait, and of those who upload, whoever began last at the end.
    """

    by_name: dict[str, Participant] = field(default_factory=dict)
    counts: Counter[Status] = field(default_factory=Counter)
    queues: Queues = field(default_factory=_queues)

    @classmethod
    def of(cls, participants: Iterable[Participant]) -> Participants:
        """These, in this order."""
        by_name = {one.device: one for one in participants}
        counts = Counter(one.status for one in by_name.values())
        return cls(by_name, counts, _queues(by_name.values()))

    def put(self, participant: Participant) -> Participants:
        """With this one's next state, in its old place, or with one more at the end."""
        before = self.by_name.get(participant.device)
        by_name = self.by_name.copy()
        by_name[participant.device] = participant
        if before is not None and before.status is participant.status:
            return Participants(by_name, self.counts, self.queues)
        counts = Counter(self.counts)
        counts[participant.status] += 1
        if before is not None:
            counts[before.status] -= 1
        return Participants(by_name, counts, self._queues_with(participant, before))

    def _queues_with(self, participant: Participant, before: Participant | None) -> Queues:
        queues = dict(self.queues)
        if before is not None and before.status in queues:
            queues[before.status] = left = queues[before.status].copy()
            del left[before.device]
        if participant.status in queues:
            queues[participant.status] = {**queues[participant.status], participant.device: None}
        return queues

    def with_all(self, participants: Sequence[Participant]) -> Participants:
        """With the next state of each of these."""
        if not participants:
            return self
        return Participants.of({**self.by_name, **{one.device: one for one in participants}}.values())

    def count(self, statuses: Iterable[Status]) -> int:
        """How many have one of these statuses."""
        return sum(self.counts[status] for status in statuses)

    def having(self, statuses: Iterable[Status]) -> tuple[Participant, ...]:
        """Those who have one of these statuses, in order; of those in a queue, in its order."""
        wanted = frozenset(statuses)
        if not self.count(wanted):
            return ()
        if len(wanted) == 1:
            (status,) = wanted
            if status in self.queues:
                return tuple(self.by_name[name] for name in self.queues[status])
            return tuple(one for one in self.by_name.values() if one.status is status)
        return tuple(one for one in self.by_name.values() if one.status in wanted)

    def __getitem__(self, name: str) -> Participant:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)
