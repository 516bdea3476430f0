"""Metrics of a rollout: its phase, its groups, its devices by status and tier."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from edge_server.observability.prometheus.devices import Labelled, gauge, gauges
from edge_server.releases.rollout.state import Rollout, RolloutPhase
from edge_server.releases.rollout.target import TargetStatus


class RolloutCollector(Collector):
    """Keeps a rollout's newest state and collects its metrics."""

    def __init__(self) -> None:
        self._last: tuple[Rollout, str] | None = None

    def show(self, rollout: Rollout, no_link: str) -> None:
        """Keep the newest state; `no_link` says why there is no connection to the broker."""
        self._last = rollout, no_link

    def collect(self) -> Iterator[Metric]:
        if self._last is not None:
            yield from rollout_families(*self._last)


def rollout_families(rollout: Rollout, no_link: str) -> Iterator[Metric]:
    """The rollout's metric families; no label names a device."""
    about: Labelled = {(rollout.federation, rollout.version): 1.0}
    yield from gauges(
        "rollout_info", "The rollout's federation and version.", ("federation", "version"), about
    )
    yield from gauge("broker_connected", "Whether there is a connection to the broker.", not no_link)
    phases: Labelled = {(str(phase),): float(phase is rollout.phase) for phase in RolloutPhase}
    yield from gauges("rollout_phase", "1 for the phase that the rollout is in.", ("phase",), phases)
    yield from gauge("rollout_groups", "Groups of devices, the canary included.", rollout.groups)
    opened = min(rollout.opened + 1, rollout.groups)
    yield from gauge("rollout_open_groups", "Groups that have been opened.", opened)
    counted = Counter((target.status, target.tier) for target in rollout.targets.values())
    tiers = sorted({target.tier for target in rollout.targets.values()})
    devices: Labelled = {
        (str(status), str(tier)): float(counted[status, tier]) for status in TargetStatus for tier in tiers
    }
    yield from gauges("rollout_devices", "Devices by status and tier.", ("status", "tier"), devices)
