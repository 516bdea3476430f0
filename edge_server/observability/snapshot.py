"""The state of a run at one moment: a frozen value made by the server for displays and bridges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from edge_server.observability.workload import Workload
from edge_server.storage.records import DeviceRecord, RoundRecord, Summary
from schemas.values import BoardState, CapabilityProfile, DataCard


@dataclass(frozen=True)
class DeviceView:
    """One device now; `state` is for instance offline, idle, training, uploading, done or refused.

    `epoch` of `epochs` is its training progress; bytes are those over its link since the run began. `seen_at`
    is the time of its last message (seconds since 1970), `attention` its score (AdaFL), `refused` counts by
    reason, `accuracy` (0 to 1) is that of its last counted update on its own data.
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
    data: DataCard | None = None
    board: BoardState | None = None
    ineligible_because: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def celsius(self) -> float | None:
        """The board's newest temperature reading, else the one that it connected with."""
        return self._newest("celsius")

    @property
    def battery(self) -> float | None:
        """The newest battery charge (0 to 1), else the one that the board connected with."""
        return self._newest("battery")

    def _newest(self, what: Literal["celsius", "battery"]) -> float | None:
        sources = (getattr(source, what) for source in (self.board, self.profile) if source is not None)
        return next((value for value in sources if value is not None), None)


def round_text(number: int, rounds: int) -> str:
    """`round 3 of 10`; of a run without end, which has 0 rounds, `round 3`."""
    return f"round {number} of {rounds}" if rounds else f"round {number}"


@dataclass(frozen=True)
class Snapshot:
    """The whole run now; `phase` is one of `edge_server.rounds.state.Phase`, times are in seconds.

    In a simulation `virtual_s` is the virtual time and `left_s` the estimated remaining real time. `no_link`
    is the reason for a missing connection to the broker, else empty. `tested_on` describes the test data,
    `waits_for` what a waiting run waits for. A run without end has 0 `rounds`.
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
    waits_for: str = ""
    virtual_s: float | None = None
    left_s: float | None = None
    load: Workload = field(default_factory=Workload)

    @property
    def progress(self) -> str:
        """The current round, and the number of rounds if the run has an end."""
        return round_text(self.round, self.rounds)

    @property
    def state(self) -> str:
        """The phase, and what a waiting run waits for."""
        return f"{self.phase} for {self.waits_for}" if self.waits_for else self.phase


class Watcher(Protocol):
    """Anything that receives the snapshots of a run."""

    def show(self, snapshot: Snapshot) -> None:
        """Receive the newest snapshot, up to four times a second."""
        ...


class WatcherGroup:
    """Several watchers as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def show(self, snapshot: Snapshot) -> None:
        """Pass the snapshot to each watcher, in order."""
        for watcher in self._watchers:
            watcher.show(snapshot)
