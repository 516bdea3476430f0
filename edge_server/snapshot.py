"""The state of a run at one moment, for whoever shows it: a frozen value, made by the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from edge_server.history import DeviceRecord, RoundRecord, Summary
from edge_server.workload import Workload
from schemas.values import BoardState, CapabilityProfile


@dataclass(frozen=True)
class DeviceView:
    """One device now. `state` is a word such as offline, idle, training, uploading, done, refused.

    `epoch` of `epochs` is where its training is; bytes count since the run began. `seen_at` is when the
    server last heard of it (seconds since 1970), `attention` its score (AdaFL), `refused` counts by reason.
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
    seen_at: float | None = None
    profile: CapabilityProfile | None = None
    board: BoardState | None = None
    ineligible_because: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The whole run now; `phase` is that of `edge_server.rounds.Phase`, times are in seconds.

    In a simulation `virtual_s` is its own time and `left_s` how long it will still take in real time.
    `no_link` says why the server has no connection to the broker; empty while it has one.
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
    virtual_s: float | None = None
    left_s: float | None = None
    load: Workload = field(default_factory=Workload)


class Watcher(Protocol):
    """Whoever shows the run."""

    def show(self, snapshot: Snapshot) -> None:
        """Take the state of the run, up to four times a second."""
        ...
