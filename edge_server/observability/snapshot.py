"""The state of a run at one moment: a frozen value made by the server for displays and bridges."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from edge_server.observability.counters import DurationHistogram
from edge_server.storage.records import DeviceRecord, RoundRecord, Summary, TrainedShare
from schemas.values import BoardState, CapabilityProfile, DataCard


@dataclass(frozen=True)
class ServerParts:
    """What serves a run besides the server's own process.

    `epoch` of the lease, None where no lease is held; `standby` is where the standby that is up to date
    runs, empty without one; the numbers of running `receivers` and `aggregators`, which are processes;
    of each site, whether its gateway is connected.
    """

    epoch: int | None = None
    standby: str = ""
    receivers: int = 0
    aggregators: int = 0
    gateways: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """Lengths of queues now, counts since the run began, and times since this process began.

    `inbox`: events that the server has not handled; `jobs` of the coordinator; `uploads` that wait;
    `outgoing` messages that the broker has not taken; `unheard`: messages that were dropped, the inbox being
    full. `refusals` are counted by reason, `phases` by name and `work` by kind of job. A round may
    last `deadline_s`, and all of them may spend epsilon up to the `budget`. A simulation has no `parts`.
    """

    inbox: int = 0
    jobs: int = 0
    uploads: int = 0
    outgoing: int = 0
    unheard: int = 0
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, DurationHistogram] = field(default_factory=dict)
    work: Mapping[str, DurationHistogram] = field(default_factory=dict)
    deadline_s: float | None = None
    budget: float | None = None
    parts: ServerParts | None = None


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
    `waits_for` what a waiting run waits for. `trained` is None if devices train all of the network. A run
    without end has 0 `rounds`.
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
    trained: TrainedShare | None = None
    virtual_s: float | None = None
    left_s: float | None = None
    load: Workload = field(default_factory=Workload)

    @property
    def progress(self) -> str:
        """The current round, and the number of rounds if the run has an end."""
        return round_text(self.round, self.rounds)

    @property
    def state(self) -> str:
        return f"{self.phase} for {self.waits_for}" if self.waits_for else self.phase


class Watcher(Protocol):
    """Anything that receives the snapshots of a run."""

    def show(self, snapshot: Snapshot) -> None:
        """Receive the newest snapshot, up to four times a second."""
        ...


class WatcherGroup:
    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def show(self, snapshot: Snapshot) -> None:
        for watcher in self.watchers:
            watcher.show(snapshot)
