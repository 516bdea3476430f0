"""The state of a run at one moment, for whoever shows it: a frozen value, made by the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from edge_server.observability.workload import Workload
from edge_server.storage.records import DeviceRecord, RoundRecord, Summary
from schemas.values import BoardState, CapabilityProfile


@dataclass(frozen=True)
class DeviceView:
    """One device now. `state` is a word such as offline, idle, training, uploading, done, refused.

    `epoch` of `epochs` is where its training is; bytes are those of its link since the run began. `seen_at`
    is when the server last heard of it (seconds since 1970), `attention` its score (AdaFL), `refused` counts
    by reason, `accuracy` (0 to 1) is what its last counted update came to on its own data.
    """

    device: str
    tier: int
    ratio: float
    state: str
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    downlink_bytes: int = 0
    uplink_bytes: int = 0
    reason: str = ""
    rounds: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    attention: float | None = None
    accuracy: float | None = None
    seen_at: float | None = None
    profile: CapabilityProfile | None = None
    board: BoardState | None = None
    ineligible_because: str = ""

    @property
    def celsius(self) -> float | None:
        """As the board says now, or else as it said when it came."""
        return self._newest("celsius")

    @property
    def battery(self) -> float | None:
        """What is left of it, 0 to 1; as the board says now, or else as it said when it came."""
        return self._newest("battery")

    def _newest(self, what: Literal["celsius", "battery"]) -> float | None:
        sources = (getattr(source, what) for source in (self.board, self.profile) if source is not None)
        return next((value for value in sources if value is not None), None)


@dataclass(frozen=True)
class Snapshot:
    """The whole run now; `phase` is that of `edge_server.rounds.machine.Phase`, times are in seconds.

    In a simulation `virtual_s` is its own time and `left_s` how long it will still take in real time.
    `no_link` says why the server has no connection to the broker; empty while it has one. `tested_on`
    says what the server tests its model on.
    """

    federation: str
    run: str
    phase: str
    round: int
    rounds: int
    elapsed_s: float
    deadline_in_s: float | None = None
    devices: tuple[DeviceView, ...] = ()
    history: tuple[RoundRecord, ...] = ()
    delivered: Mapping[str, DeviceRecord] = field(default_factory=dict)
    summary: Summary | None = None
    notes: tuple[str, ...] = ()
    no_link: str = ""
    tested_on: str = ""
    virtual_s: float | None = None
    left_s: float | None = None
    load: Workload = field(default_factory=Workload)


class Watcher(Protocol):
    """Whoever shows the run."""

    def show(self, snapshot: Snapshot) -> None:
        """Take the state of the run, up to four times a second."""
        ...


class WatcherGroup:
    """Several who watch as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def show(self, snapshot: Snapshot) -> None:
        """Tell each of them, in order."""
        for watcher in self._watchers:
            watcher.show(snapshot)
