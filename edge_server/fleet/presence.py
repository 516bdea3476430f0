"""Writes to the inventory which devices are there, and what their births and telemetry say."""

import contextlib
import logging
from collections import Counter, defaultdict
from typing import Any

from edge_server.fleet.alerts.alert import Phase
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.part import Heard, Part, ServiceContext
from edge_server.storage.inventory.inventory import Inventory
from schemas.messages import Birth, Death, Telemetry

log = logging.getLogger(__name__)


class FleetMetrics(Part):
    """Serves metrics until the service ends; raises `ConfigError` where it cannot listen."""

    def __init__(self, context: ServiceContext) -> None:
        self._open = contextlib.ExitStack()
        settings = context.settings.metrics
        if settings.listen is None:
            return
        # Only here: prometheus_client is not imported where no metrics are served.
        from edge_server.observability.prometheus.address import parse_listen
        from edge_server.observability.prometheus.collector import run_registry
        from edge_server.observability.prometheus.devices import InventoryCollector
        from edge_server.observability.prometheus.http_endpoint import serve_metrics

        listen = parse_listen(settings.listen, option="[metrics] listen")
        store = AlertStore(context.folder.alerts)
        self._open.callback(store.close)
        collector: Any = InventoryCollector(
            context.inventory.devices, lambda: firing(store), devices=settings.devices
        )
        served = serve_metrics(listen, run_registry(collector), option="[metrics] listen")
        log.info("metrics at %s", self._open.enter_context(served))

    def stop(self) -> None:
        self._open.close()


def firing(store: AlertStore) -> Counter[tuple[str, str]]:
    alerts = store.alerts().values()
    return Counter((alert.rule, alert.severity) for alert in alerts if alert.phase is not Phase.PENDING)


TELEMETRY_EVERY_S = 20.0
"""Least seconds between two writes of one device's telemetry: each waits for the disk."""
RETAINED_S = 60.0  # Seconds after a connection in which the broker delivers all retained births


class PresenceKeeper(Part):
    """Keeps the inventory up to date.

    A broker that was restarted without its retained messages says nothing of the devices that are gone: those
    that have not been heard `RETAINED_S` after a connection count as not connected.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._written: dict[tuple[str, str], float] = {}
        self._connected_at: dict[str, float] = {}
        self._present: defaultdict[str, set[str]] = defaultdict(set)

    def on_connected(self, federation: str, now: float) -> None:
        self._connected_at[federation] = now
        self._present[federation].clear()

    def on_disconnected(self, federation: str, why: str) -> None:
        self._connected_at.pop(federation, None)

    def on_message(self, heard: Heard, now: float) -> None:
        self._present[heard.federation].add(heard.device)
        match heard.message:
            case Birth() as birth:
                self._inventory.record_birth(birth, now, site=heard.site)
            case Death() as death:
                self._inventory.record_death(death, now)
            case Telemetry() as telemetry if self._is_due(heard, now):
                self._inventory.record_telemetry(telemetry, now)

    def tick(self, now: float) -> None:
        for federation, connected_at in list(self._connected_at.items()):
            if now - connected_at >= RETAINED_S:
                del self._connected_at[federation]
                self._inventory.record_absent(federation, self._present.pop(federation, set()))

    def _is_due(self, heard: Heard, now: float) -> bool:
        key = (heard.federation, heard.device)
        last = self._written.get(key)
        if last is not None and 0 <= now - last < TELEMETRY_EVERY_S:
            return False
        self._written[key] = now
        return True
