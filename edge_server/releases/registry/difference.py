"""The differences between two versions, tier by tier, and the distance between their weights."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.data.tasks.words import leading
from edge_server.config.units import UNKNOWN, bytes_text, count_text, figure_text, number_text, ratio_text
from edge_server.releases.registry.registry import TierModel, Version
from schemas.errors import PeerError
from schemas.tensors.files import FileGroups


@dataclass(frozen=True)
class Difference:
    """One difference between two versions, formatted for people."""

    what: str
    before: str
    after: str
    change: str = ""


FIELDS: dict[str, tuple[Callable[[TierModel], float | None], Callable[[float], str]]] = {
    "ratio": (lambda tier: tier.ratio, ratio_text),
    "bytes": (lambda tier: tier.bytes, bytes_text),
    "parameters": (lambda tier: tier.parameters, lambda count: count_text(int(count))),
    "ms/image on devices": (lambda tier: tier.device_latency_ms, number_text),
}


def differences(before: Version, after: Version) -> list[Difference]:
    """All differences, the versions' own fields first."""
    found = [
        Difference(what, _text(getattr(before, field)), _text(getattr(after, field)))
        for what, field in _OWN.items()
        if getattr(before, field) != getattr(after, field)
    ]
    numbers = sorted({tier.tier for version in (before, after) for tier in version.tiers})
    return [*found, *(line for number in numbers for line in _tier(number, before, after))]


_OWN = {
    "federation": "federation",
    "run": "run",
    "rounds": "round",
    "recipe": "recipe",
    "network": "model",
    "outcome": "outcome",
    "epsilon": "epsilon",
    "signed by": "key",
    "global model": "state_sha256",
}


def _text(value: object) -> str:
    return UNKNOWN if value is None else str(value)[:40]


def _tier(number: int, before: Version, after: Version) -> Iterator[Difference]:
    one, two = before.tier(number), after.tier(number)
    if one is None or two is None:
        left_text, right_text = ("none" if tier is None else "there" for tier in (one, two))
        yield Difference(f"tier {number}", left_text, right_text)
        return
    for what, (field, text) in FIELDS.items():
        left, right = field(one), field(two)
        if left != right:
            left_text, right_text = (UNKNOWN if value is None else text(value) for value in (left, right))
            change = _change(left, right, share=False)
            yield Difference(f"tier {number}: {what}", left_text, right_text, change)
    yield from _figures(f"tier {number}: test ", "", one.test_metrics, two.test_metrics)
    yield from _figures(f"tier {number}: ", " on devices", one.device_metrics, two.device_metrics)
    if one.sha256 != two.sha256:
        yield Difference(f"tier {number}: sha256", one.sha256[:16], two.sha256[:16])


def _figures(
    before: str, after: str, one: Mapping[str, float], two: Mapping[str, float]
) -> Iterator[Difference]:
    """The leading figure of two versions, if it differs."""
    found = leading(two) or leading(one)
    if found is None:
        return
    metric, _ = found
    left, right, text = one.get(metric.name), two.get(metric.name), figure_text(metric)
    if left != right:
        change = _change(left, right, share=metric.share)
        yield Difference(f"{before}{metric.name}{after}", text(left), text(right), change)


def _change(before: float | None, after: float | None, *, share: bool) -> str:
    """The change, of shares in percentage points, of other numbers in percent."""
    if before is None or after is None:
        return ""
    if share:
        return f"{(after - before) * 100:+.2f} points"
    return f"{(after - before) / before:+.1%}" if before else ""


def weight_distance(before: Path, after: Path) -> float | None:
    """The L2 norm of the difference of two global models over that of the first.

    `before` and `after` are the versions' folders; None if a model is missing or the shapes differ.
    """
    try:
        one = FileGroups(before / "model" / "state.safetensors")["model"]
        two = FileGroups(after / "model" / "state.safetensors")["model"]
        if {name: one.kind(name) for name in one} != {name: two.kind(name) for name in two}:
            return None
        apart = sum(float(np.sum(np.square(two[name] - one[name], dtype=np.float64))) for name in one)
        size = sum(float(np.sum(np.square(one[name], dtype=np.float64))) for name in one)
    except (OSError, PeerError, KeyError):
        return None
    return (apart / size) ** 0.5 if size else None
