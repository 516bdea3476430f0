"""`--metrics`: serves a run's or a rollout's metrics for Prometheus."""

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, OptionalAddress
from edge_server.observability.prometheus.address import DEFAULT, Listen, parse_listen

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from edge_server.observability.snapshot import Watcher
    from edge_server.releases.rollout.service import Show
    from edge_server.releases.rollout.state import Rollout


METRICS = Option(
    "--metrics",
    help=f"serve /metrics for Prometheus (default address: {DEFAULT}; for requests from other machines "
    "e.g. 0.0.0.0:9464)",
    metavar="HOST:PORT",
    action=partial(OptionalAddress, const=DEFAULT),
)


METRICS_DEVICES = Option(
    "--metrics-devices", bool, "let --metrics also serve gauges of each device, with its name as a label"
)


@contextlib.contextmanager
def metrics_watcher(text: str, out: Path, *, devices: bool = False) -> "Iterator[Watcher]":
    """Serve the metrics of the run in `out`, with `devices` each device's too, until the block ends."""
    listen = parse_listen(text)
    from edge_server.observability.prometheus.collector import RunCollector

    collector = RunCollector(out, devices=devices)
    with _serve_metrics(listen, collector):
        yield collector


@contextlib.contextmanager
def rollout_watcher(text: str | None, show: "Show") -> "Iterator[Show]":
    """Yield `show`; with an address, the rollout's metrics are also served there until the block ends."""
    if text is None:
        yield show
        return
    listen = parse_listen(text)
    from edge_server.observability.prometheus.collector import RolloutCollector

    collector = RolloutCollector()

    def both(rollout: "Rollout", no_link: str) -> None:
        collector.show(rollout, no_link)
        show(rollout, no_link)

    with _serve_metrics(listen, collector):
        yield both


@contextlib.contextmanager
def _serve_metrics(listen: Listen, collector: "Collector") -> Iterator[None]:
    from edge_server.observability.prometheus.collector import run_registry
    from edge_server.observability.prometheus.http_endpoint import serve_metrics

    with serve_metrics(listen, run_registry(collector)) as url:
        # Standard output belongs to the display.
        print(f"metrics at {url}", file=sys.stderr, flush=True)
        yield
