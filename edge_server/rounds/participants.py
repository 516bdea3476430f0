"""All participants of a round by name, with counts by status."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edge_server.rounds.participant import Participant, Status
from schemas.messages import Birth

# Detect two devices with one name (copies of an SD card), which disconnect each other in turn.

CERTAIN = 2  # Returns needed to be certain: a single one may be a birth that arrived very late
MAX_TOKENS, MAX_DEVICES = 4, 1000


@dataclass(frozen=True)
class Claimants:
    """The processes that used one name: the origin of each token, in order of first appearance.

    `current` is the newest token, `before` the one it replaced.
    """

    origins: Mapping[str, str]
    current: str
    before: str = ""
    returns: int = 0

    @property
    def certain(self) -> bool:
        """Whether two devices use the name."""
        return self.returns >= CERTAIN

    @property
    def later_is_there(self) -> bool:
        """Whether the current process first appeared after the one that it replaced."""
        order = list(self.origins)
        return self.before in order and order.index(self.current) > order.index(self.before)


Sightings = Mapping[str, Claimants]


def record_birth(sightings: Sightings, birth: Birth, known: tuple[str, str]) -> Sightings:
    """Record a birth; `known` is the first (token, origin). Returns the same mapping if nothing is new."""
    claimants = sightings.get(birth.device) or Claimants({known[0]: known[1]}, known[0])
    if not birth.instance or not known[0] or birth.instance == claimants.current:
        return sightings
    origins = {**claimants.origins, birth.instance: birth.origin}
    while len(origins) > MAX_TOKENS:
        del origins[next(iter(origins))]
    returns = claimants.returns + (birth.instance in claimants.origins)
    others = {name: known for name, known in sightings.items() if name != birth.device}
    while len(others) >= MAX_DEVICES:
        del others[next(iter(others))]
    return {**others, birth.device: Claimants(origins, birth.instance, claimants.current, returns)}


QUEUES = (Status.WAITING, Status.UPLOADING)
Queues = Mapping[Status, dict[str, None]]


def _queues(participants: Iterable[Participant] = ()) -> Queues:
    queues: dict[Status, dict[str, None]] = {status: {} for status in QUEUES}
    for part in participants:
        if part.status in queues:
            queues[part.status][part.device] = None
    return queues


@dataclass(frozen=True, eq=False)
class Participants(Mapping[str, Participant]):
    """A frozen mapping with counts by status, so that an event of one device need not visit all others.

    `queues` are the names of the waiting and of the uploading participants, in order of arrival.
    """

    by_name: dict[str, Participant] = field(default_factory=dict)
    counts: Counter[Status] = field(default_factory=Counter)
    queues: Queues = field(default_factory=_queues)

    @classmethod
    def of(cls, participants: Iterable[Participant]) -> "Participants":
        by_name = {part.device: part for part in participants}
        counts = Counter(part.status for part in by_name.values())
        return cls(by_name, counts, _queues(by_name.values()))

    def with_participant(self, participant: Participant) -> "Participants":
        """With a participant's next state in its old place, or a new participant at the end."""
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

    def with_all(self, participants: Sequence[Participant]) -> "Participants":
        if not participants:
            return self
        return Participants.of({**self.by_name, **{part.device: part for part in participants}}.values())

    def count(self, statuses: Iterable[Status]) -> int:
        return sum(self.counts[status] for status in statuses)

    def having(self, statuses: Iterable[Status]) -> tuple[Participant, ...]:
        """The participants with one of these statuses, in order; a queue's, in its order."""
        wanted = frozenset(statuses)
        if not self.count(wanted):
            return ()
        if len(wanted) == 1:
            (status,) = wanted
            if status in self.queues:
                return tuple(self.by_name[name] for name in self.queues[status])
            return tuple(part for part in self.by_name.values() if part.status is status)
        return tuple(part for part in self.by_name.values() if part.status in wanted)

    def __getitem__(self, name: str) -> Participant:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)
