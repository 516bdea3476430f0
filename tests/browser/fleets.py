"""Invented runs, served by the real dashboard server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from edge_server.config.load import load_config
from edge_server.observability.dashboard.server_thread import RunningDashboard, serve_dashboard
from edge_server.observability.snapshot import DeviceView, Snapshot
from edge_server.storage.records import Rejected, RoundRecord
from edge_server.storage.run_folder import RunFolder
from schemas.values import BoardState, CapabilityProfile
from tests.edge_server.observability.terminal import shown

RATIOS = (0.7, 0.5, 0.3, 0.1, 0.0)
STATES = ("idle", "training", "done", "offline", "uploading", "missed")
LONG_AGO = 1_700_000_000.0
"""A fixed time, so that displayed ages do not change during a test."""


def device(index: int) -> DeviceView:
    """Device `index` of a fleet; its figures are computed from the index."""
    state = STATES[index % len(STATES)]
    return DeviceView(
        device=f"device-{index:04d}",
        tier=index % 5 + 1,
        ratio=RATIOS[index % 5],
        state=state,
        epoch=index % 5 if state == "training" else None,
        epochs=5 if state == "training" else None,
        # 7 and 1,009 have no common divisor, so every device has a different score.
        attention=(index * 7 % 1009) / 1009,
        rounds=index % 12,
        seen_at=LONG_AGO,
        profile=CapabilityProfile(machine=f"board {index % 3}", processor="Cortex-A72", cores=4),
        board=BoardState(
            celsius=40 + index % 30, memory_bytes=200_000_000 + index, battery=(index % 10) / 10
        ),
    )


def record(number: int, **changes: object) -> RoundRecord:
    """A closed round of three devices."""
    values = {
        "selected": ("device-0000", "device-0001", "device-0002"),
        "completed": ("device-0001", "device-0002"),
        "uplink_bytes": 2_000_000 + number,
        "downlink_bytes": 1_000_000,
        "duration_s": 4.0,
        "train_loss": 2 / number,
        "test_loss": 2.2 / number,
        "test_metrics": {"accuracy": 1 - 0.9 / number},
        "tier_metrics": {tier: {"accuracy": 1 - 0.9 / number - 0.01 * (5 - tier)} for tier in range(1, 6)},
        **changes,
    }
    return shown.record(number, **values)


def snapshot(count: int, rounds: int = 3) -> Snapshot:
    """A run of `count` devices in the round after `rounds`."""
    return Snapshot(
        federation="crowd",
        run="run-1",
        phase="training",
        round=rounds + 1,
        rounds=12,
        elapsed_s=60.0,
        deadline_in_s=50.0,
        devices=tuple(device(index) for index in range(count)),
        history=tuple(record(number) for number in range(1, rounds + 1)),
    )


@dataclass(frozen=True)
class Stage:
    """A served run; `show` replaces its state."""

    host: RunningDashboard
    url: str

    def show(self, shown: Snapshot) -> None:
        """Serve another state of the run."""
        self.host.show(shown)


@contextmanager
def staged(folder: Path, shown: Snapshot, *, port: int = 0) -> Iterator[Stage]:
    """The dashboard of a new run folder and of that snapshot."""
    config = load_config("edge_server/cli/demo.toml", ["federation.name=crowd"])
    if not folder.exists():
        RunFolder.create(folder, config)
    with serve_dashboard(folder, ("127.0.0.1", port), token=None, live=True) as host:
        host.show(shown)
        yield Stage(host, host.url)


def with_markup(shown: Snapshot, markup: str) -> Snapshot:
    """The same run with `markup` in every text that a device can send."""
    first = replace(
        shown.devices[0],
        state="refused",
        reason=markup,
        refused={markup: 2},
        ineligible_because=markup,
        profile=CapabilityProfile(machine=markup, processor=markup),
    )
    rejected = (Rejected(device=first.device, reason=markup),)
    return replace(
        shown,
        devices=(first, *shown.devices[1:]),
        notes=(markup,),
        history=(*shown.history[:-1], shown.history[-1].model_copy(update={"rejected": rejected})),
    )
