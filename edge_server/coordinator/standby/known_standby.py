"""A standby as the server knows it: pure functions of its reports and the time."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from edge_server.coordinator.standby.standby_status import StandbyStatus
from schemas.messages import StandbyReport

SILENT_S = 4.0  # Seconds without a message after which the server goes on without the standby
STUCK_S = 20.0
"""Seconds without progress after which the server goes on without a standby that is not up to date."""
NEARLY = 16  # Number of missing entries up to which the server waits for its standby


@dataclass(frozen=True)
class KnownStandby:
    """A standby that follows a series of entries.

    `heard_at` and `moved_at` are the times of its last message and of its last progress. It has heard of the
    entries up to `known`, and has stored those up to `confirmed`. `named`: it may take over. `leaving`: the
    server goes on without it as soon as the lease no longer names it.
    """

    standby: str
    origin: str
    series: str
    heard_at: float
    moved_at: float
    known: int = 0
    confirmed: int = 0
    named: bool = False
    leaving: bool = False

    def with_report(self, report: StandbyReport, now: float) -> "KnownStandby":
        """The standby after a report on its series."""
        return replace(
            self,
            heard_at=now,
            moved_at=now if report.confirmed > self.confirmed else self.moved_at,
            known=min(report.known, self.known),
            confirmed=max(report.confirmed, self.confirmed),
        )

    def begun_again(self, now: float) -> "KnownStandby":
        """The standby after a report on another series: every entry is to be announced again."""
        return replace(self, heard_at=now, known=0)

    def fetching(self, now: float) -> "KnownStandby":
        """The standby after a request for chunks."""
        return replace(self, heard_at=now, moved_at=now)

    def is_lost(self, newest: int, now: float) -> bool:
        """Whether it is silent, or stuck before the `newest` entry."""
        stuck = newest > self.confirmed and now >= self.moved_at + STUCK_S
        return stuck or now >= self.heard_at + SILENT_S

    def is_replaceable(self, now: float) -> bool:
        """Whether it has been silent for so long that another process may follow in its place."""
        return now >= self.heard_at + SILENT_S / 2

    def catches_up(self, newest: int) -> bool:
        """Whether it is nearly up to date, but cannot take over yet."""
        return not self.named and self.confirmed > 0 and newest - self.confirmed <= NEARLY

    def status(self, *, follows: bool) -> StandbyStatus:
        return StandbyStatus(standby=self.standby, origin=self.origin, follows=follows)


Action = Callable[[], None]


class OutputGate:
    """Holds back actions until the entry that was the newest when they were asked for is confirmed, in order.

    `newest` returns that entry's number. An open gate holds nothing back.
    """

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self._waiting: deque[tuple[int, Action]] = deque()
        self._confirmed = 0
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def __call__(self, action: Action) -> None:
        """Do it now or later."""
        if not self.closed:
            action()
            return
        self._waiting.append((self._newest(), action))
        self.confirm(self._confirmed)

    def confirm(self, number: int) -> None:
        """Entries up to this number are in the copy."""
        self._confirmed = number
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1]()

    def open(self) -> None:
        """Hold nothing back from now on."""
        self.closed = False
        while self._waiting:
            self._waiting.popleft()[1]()
        self._confirmed = 0
