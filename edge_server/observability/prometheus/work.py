"""Metrics of the server's work: bytes, queues, durations, disk space."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from edge_server.observability.prometheus.metric_names import Labelled, counter, gauge, gauges, histogram
from edge_server.observability.workload import ServerParts, Workload


def work_families(load: Workload) -> Iterator[Metric]:
    """The metric families of the server's work."""
    yield from counter("received_bytes", "MQTT payloads that the server received.", load.uplink_bytes)
    yield from counter(
        "sent_bytes", "MQTT payloads that the server sent; a broadcast counts once.", load.downlink_bytes
    )
    yield from counter("dropped_messages", "Messages dropped because the inbox was full.", load.unheard)
    queues: Labelled = {
        ("inbox",): float(load.inbox),
        ("jobs",): float(load.jobs),
        ("uploads",): float(load.uploads),
        ("outgoing",): float(load.outgoing),
    }
    yield from gauges(
        "queue_length",
        "Events for the server, jobs to run, uploads waiting for their turn, messages for the broker.",
        ("queue",),
        queues,
    )
    yield from _part_families(load.parts)
    yield from histogram(
        "phase_duration_seconds",
        "How long phases of rounds lasted; virtual in a simulation.",
        "phase",
        load.phases,
    )
    yield from histogram(
        "work_duration_seconds",
        "How long jobs took; closing a round includes aggregating and testing it.",
        "work",
        load.work,
    )


def _part_families(parts: ServerParts | None) -> Iterator[Metric]:
    """What serves the run besides the server's own process; nothing in a simulation."""
    if parts is None:
        return
    yield from gauge("lease_epoch", "Epoch of the lease; a takeover raises it.", parts.epoch)
    yield from gauge("standby_ready", "Whether a standby is up to date.", bool(parts.standby))
    processes: Labelled = {
        ("receiver",): float(parts.receivers),
        ("aggregator",): float(parts.aggregators),
    }
    gateways: Labelled = {(site,): float(there) for site, there in parts.gateways.items()}
    yield from gauges("gateway_connected", "1 for a site whose gateway is connected.", ("site",), gateways)
    yield from gauges("processes", "Processes besides the server's own that run now.", ("kind",), processes)


def disk_families(free: int, size: int) -> Iterator[Metric]:
    """Free and total bytes of the disk that holds the run folder."""
    yield from gauge("disk_free_bytes", "Free bytes on the disk that holds the run folder.", free)
    yield from gauge("disk_size_bytes", "Size of the disk that holds the run folder.", size)
