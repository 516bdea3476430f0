"""The devices, counted: no label ever names one, for each name would be a series of its own for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from edge_server.observability.prometheus.metric_names import Labelled, counters, gauges
from edge_server.observability.snapshot import Snapshot
from edge_server.rounds.participant import Status
from schemas.values import Reason

STATES = ("offline", "idle", "quarantined", "incompatible", "fetching", "exporting", *map(str, Status))
OTHER = "other"
"""Whatever has no name of ours: what devices say must not make labels."""


def fleet_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Devices by state and tier, what became of updates, refusals by reason."""
    counted = Counter((known(view.state, STATES), view.tier) for view in snapshot.devices)
    tiers = sorted({view.tier for view in snapshot.devices})
    states = (*STATES, *([OTHER] if any(state == OTHER for state, _ in counted) else []))
    # Zeros too: a series that is gone looks as if its last value still held.
    devices: Labelled = {
        (state, str(tier)): float(counted[state, tier]) for state in states for tier in tiers
    }
    yield from gauges("devices", "Devices by what they do and by tier.", ("state", "tier"), devices)
    over_links: Counter[tuple[str, ...]] = Counter()
    for view in snapshot.devices:
        over_links["received", str(view.tier)] += view.downlink_bytes
        over_links["sent", str(view.tier)] += view.uplink_bytes
    yield from gauges(
        "device_link_bytes",
        "What went over the devices' own links, by tier; each that hears a broadcast counts it.",
        ("direction", "tier"),
        {said: float(size) for said, size in over_links.items()},
    )
    yield from counters("updates", "Parts of devices in closed rounds.", ("outcome",), _updates(snapshot))
    refusals: dict[tuple[str, ...], float] = {(str(reason),): 0.0 for reason in Reason}
    for reason, count in snapshot.load.refusals.items():
        said = (known(reason, tuple(Reason)),)
        refusals[said] = refusals.get(said, 0.0) + count
    yield from counters("refusals", "What was refused of devices, by reason.", ("reason",), refusals)


def known(word: str, words: tuple[str, ...]) -> str:
    """The word if it is one of these."""
    return word if word in words else OTHER


def _updates(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    history = snapshot.history
    return {
        ("counted",): sum(len(record.completed) for record in history),
        ("missed",): sum(len(record.dropped) for record in history),
        ("refused",): sum(len(record.rejected) for record in history),
    }
