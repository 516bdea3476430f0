"""The metrics of a run, computed from its last snapshot at each scrape."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from edge_server.observability.prometheus.devices import device_families, readings_of_run
from edge_server.observability.prometheus.fleet import fleet_families
from edge_server.observability.prometheus.run import run_families
from edge_server.observability.prometheus.work import disk_families, work_families
from edge_server.observability.snapshot import Snapshot


class RunCollector(Collector):
    """Watches a run and collects its metrics; there are none before the first snapshot.

    `clock` returns seconds since 1970, `out` is the run folder. With `devices` each device has gauges of its
    own. `show` and `collect` have their own threads.
    """

    def __init__(self, out: Path, clock: Callable[[], float] = time.time, *, devices: bool = False) -> None:
        self._out, self._clock, self._devices = out, clock, devices
        self._last: Snapshot | None = None
        self._closed, self._closed_at = 0, clock()

    def show(self, snapshot: Snapshot) -> None:
        """Take the state of the run."""
        if len(snapshot.history) != self._closed:
            self._closed, self._closed_at = len(snapshot.history), self._clock()
        self._last = snapshot

    def collect(self) -> Iterator[Metric]:
        """All metric families of the newest snapshot."""
        last = self._last
        if last is None:
            return
        yield from run_families(last, closed_at=self._closed_at)
        yield from fleet_families(last)
        if self._devices:
            yield from device_families(readings_of_run(last.federation, last.devices))
        yield from work_families(last.load)
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(self._out)
            yield from disk_families(disk.free, disk.total)


def run_registry(collector: Collector) -> CollectorRegistry:
    """The collector's metrics, and those of this process: memory, processor time, open files, Python."""
    registry = CollectorRegistry()
    # Registered without `describe`: which metrics there are depends on the state of the run.
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[str, bytes]:
    """Content type and body: text format 0.0.4, or the format that the header `Accept` asks for."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)
