"""Metrics of the fleet. No label names a device, as each name would be a series of its own."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from edge_server.observability.prometheus.metric_names import Labelled, counters, gauges
from edge_server.observability.snapshot import Snapshot
from edge_server.rounds.participant import Status
from schemas.values import Reason

STATES = ("offline", "idle", "quarantined", "incompatible", "fetching", "exporting", *map(str, Status))
OTHER = "other"
"""Label for unknown words: texts that devices send must not become labels."""


def fleet_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Devices by state and tier, outcomes of updates, refusals by reason."""
    counted = Counter((known(view.state, STATES), view.tier) for view in snapshot.devices)
    tiers = sorted({view.tier for view in snapshot.devices})
    states = (*STATES, *([OTHER] if any(state == OTHER for state, _ in counted) else []))
    # Zeros are sent too: a missing series would look as if its last value still held.
    devices: Labelled = {
        (state, str(tier)): float(counted[state, tier]) for state in states for tier in tiers
    }
    yield from gauges("devices", "Devices by state and tier.", ("state", "tier"), devices)
    over_links: Counter[tuple[str, ...]] = Counter()
    for view in snapshot.devices:
        over_links["received", str(view.tier)] += view.downlink_bytes
        over_links["sent", str(view.tier)] += view.uplink_bytes
    yield from gauges(
        "device_link_bytes",
        "Bytes over the devices' own links, by tier; a broadcast counts for each device that received it.",
        ("direction", "tier"),
        {labels: float(size) for labels, size in over_links.items()},
    )
    yield from counters("updates", "Updates of closed rounds by outcome.", ("outcome",), _updates(snapshot))
    refusals: dict[tuple[str, ...], float] = {(str(reason),): 0.0 for reason in Reason}
    for reason, count in snapshot.load.refusals.items():
        labels = (known(reason, tuple(Reason)),)
        refusals[labels] = refusals.get(labels, 0.0) + count
    yield from counters("refusals", "Refused messages of devices, by reason.", ("reason",), refusals)


def known(word: str, words: tuple[str, ...]) -> str:
    """The word if it is in `words`, else `OTHER`."""
    return word if word in words else OTHER


def _updates(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    history = snapshot.history
    return {
        ("counted",): sum(len(record.completed) for record in history),
        ("missed",): sum(len(record.dropped) for record in history),
        ("refused",): sum(len(record.rejected) for record in history),
    }
