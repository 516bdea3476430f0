"""Metrics of single devices, which are served on request alone, and of the inventory.

Each device is a series of its own per metric: their number is that of the devices.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from edge_server.observability.counters import BOUNDS_S, DurationHistogram
from edge_server.observability.snapshot import DeviceView
from edge_server.storage.inventory.records import InventoryDevice
from schemas.base import fields_of

PREFIX = "edge_server_"
Labelled = Mapping[tuple[str, ...], float]  # Values by label values


def gauge(name: str, help: str, value: float | None) -> Iterable[Metric]:
    """One gauge; no family where the value is not known."""
    if value is not None:
        yield GaugeMetricFamily(PREFIX + name, help, value=value)


def gauges(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Iterable[Metric]:
    """Gauges by labels; no family without values."""
    if values:
        family = GaugeMetricFamily(PREFIX + name, help, labels=labels)
        for label_values, value in values.items():
            family.add_metric(label_values, value)
        yield family


def counter(name: str, help: str, value: float) -> Iterable[Metric]:
    """One counter; `_total` is appended to its name."""
    yield CounterMetricFamily(PREFIX + name, help, value=value)


def counters(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Iterable[Metric]:
    """Counters by labels; `_total` is appended to their name."""
    family = CounterMetricFamily(PREFIX + name, help, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    yield family


def histogram(
    name: str, help: str, label: str, durations: Mapping[str, DurationHistogram]
) -> Iterable[Metric]:
    """Durations in seconds by one label."""
    family = HistogramMetricFamily(PREFIX + name, help, labels=(label,))
    for label_value, measured in sorted(durations.items()):
        family.add_metric((label_value,), _buckets(measured), measured.seconds)
    yield family


def _buckets(measured: DurationHistogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound in seconds."""
    bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
    return [(bound, sum(measured.counts[: i + 1])) for i, bound in enumerate(bounds)]


STATES = ("connected", "away", "never seen")


@dataclass(frozen=True)
class DeviceReadings:
    """What is known of a device; times are seconds since 1970."""

    federation: str
    device: str
    connected: bool
    seen_at: float | None = None
    certificate_until: float | None = None
    celsius: float | None = None
    disk_free_bytes: float | None = None


READINGS = {
    "connected": ("device_connected", "1 for a device that is connected."),
    "seen_at": ("device_seen_timestamp_seconds", "When the device was last heard."),
    "certificate_until": ("device_certificate_end_timestamp_seconds", "When the device's certificate ends."),
    "celsius": ("device_temperature_celsius", "The device's last temperature."),
    "disk_free_bytes": ("device_disk_free_bytes", "Free space on the disk of the device's state folder."),
}


def device_families(rows: Iterable[DeviceReadings]) -> Iterator[Metric]:
    """One gauge per device and known reading."""
    devices = list(rows)
    for field, (name, help) in READINGS.items():
        found = (((row.federation, row.device), getattr(row, field)) for row in devices)
        values: Labelled = {labels: float(value) for labels, value in found if value is not None}
        yield from gauges(name, help, ("federation", "device"), values)


def readings_of_run(federation: str, views: Iterable[DeviceView]) -> Iterator[DeviceReadings]:
    """The readings of a run's devices; a run does not know when their certificates end."""
    for view in views:
        reported = None if view.board is None else view.board.disk_free_bytes
        first = None if view.profile is None else view.profile.disk_free_bytes
        yield DeviceReadings(
            federation=federation,
            connected=view.state != "offline",
            **fields_of(view, "device", "seen_at", "celsius"),
            disk_free_bytes=first if reported is None else reported,
        )


def readings_of_inventory(devices: Iterable[InventoryDevice]) -> Iterator[DeviceReadings]:
    for device in devices:
        yield DeviceReadings(
            **fields_of(device, "federation", "device", "seen_at", "certificate_until"),
            connected=device.alive,
            celsius=None if device.board is None else device.board.celsius,
            disk_free_bytes=device.free_disk,
        )


def inventory_families(devices: Iterable[InventoryDevice]) -> Iterator[Metric]:
    counted = Counter((device.federation, _state(device)) for device in devices)
    federations = sorted({federation for federation, _ in counted})
    values: Labelled = {
        (federation, state): float(counted[federation, state])
        for federation in federations
        for state in STATES
    }
    yield from gauges(
        "inventory_devices", "Devices of the inventory by state.", ("federation", "state"), values
    )


def alert_families(firing: Counter[tuple[str, str]]) -> Iterator[Metric]:
    values: Labelled = {labels: float(count) for labels, count in firing.items()}
    yield from gauges("alerts_firing", "Alerts that fire now.", ("rule", "severity"), values)


class InventoryCollector(Collector):
    """Collects the inventory's metrics and the alerts at each scrape; with `devices` each device's too."""

    def __init__(
        self,
        read: Callable[[], list[InventoryDevice]],
        firing: Callable[[], Counter[tuple[str, str]]],
        *,
        devices: bool,
    ) -> None:
        self._read, self._firing, self._devices = read, firing, devices

    def collect(self) -> Iterator[Metric]:
        known = self._read()
        yield from inventory_families(known)
        yield from alert_families(self._firing())
        if self._devices:
            yield from device_families(readings_of_inventory(known))


def _state(device: InventoryDevice) -> str:
    if device.alive:
        return "connected"
    return "never seen" if device.seen_at is None else "away"
