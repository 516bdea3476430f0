"""`[metrics] listen`: the fleet's metrics for Prometheus, read from the inventory at each scrape."""

import contextlib
import logging
from collections import Counter
from typing import Any

from edge_server.fleet.alerts.alert import Phase
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.part import Part, ServiceContext

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
