"""Gauges of single devices: only on request, one series per device."""

from collections import Counter

import pytest
from prometheus_client import CollectorRegistry

from edge_server.observability.prometheus.collector import RunCollector, exposition
from edge_server.observability.prometheus.devices import InventoryCollector
from edge_server.observability.snapshot import DeviceView, Snapshot
from schemas.values import BoardState, CapabilityProfile
from tests.edge_server.fleet.alerts.boards import board

DEVICES = [
    board("pi-1", alive=True, seen_at=100.0, certificate_until=900.0, board=BoardState(celsius=50)),
    board("pi-2", seen_at=90.0, disk_free_bytes=5000),
    board("pi-3"),
]


def text(collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return exposition(registry)[1].decode()


def inventory(*, devices: bool) -> str:
    return text(InventoryCollector(lambda: DEVICES, lambda: Counter({("hot", "info"): 2}), devices=devices))


def test_the_inventory_is_counted_without_names_of_devices():
    found = inventory(devices=False)
    assert 'edge_server_inventory_devices{federation="orchard",state="away"} 1.0' in found
    assert 'edge_server_inventory_devices{federation="orchard",state="never seen"} 1.0' in found
    assert 'edge_server_alerts_firing{rule="hot",severity="info"} 2.0' in found
    assert "pi-" not in found


def test_on_request_each_device_has_a_gauge_per_known_reading():
    found = inventory(devices=True)
    for line in (
        'edge_server_device_connected{device="pi-1",federation="orchard"} 1.0',
        'edge_server_device_seen_timestamp_seconds{device="pi-2",federation="orchard"} 90.0',
        'edge_server_device_certificate_end_timestamp_seconds{device="pi-1",federation="orchard"} 900.0',
        'edge_server_device_temperature_celsius{device="pi-1",federation="orchard"} 50.0',
        'edge_server_device_disk_free_bytes{device="pi-2",federation="orchard"} 5000.0',
    ):
        assert line in found
    assert 'temperature_celsius{device="pi-3"' not in found


@pytest.mark.parametrize("devices", [False, True])
def test_a_run_names_devices_only_on_request(tmp_path, devices):
    collector = RunCollector(tmp_path, devices=devices)
    view = DeviceView("pi-1", 1, 0.5, "idle", profile=CapabilityProfile(disk_free_bytes=7, celsius=40))
    collector.show(Snapshot("orchard", "night", "training", 1, 3, 0.0, devices=(view,)))
    assert (
        'edge_server_device_disk_free_bytes{device="pi-1",federation="orchard"} 7.0' in text(collector)
    ) is devices
    assert ('"pi-1"' in text(collector)) is devices
