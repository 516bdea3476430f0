"""What waits for a server, and what it has done so far: the figures of a run that are no device's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_server.observability.durations import DurationHistogram


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
