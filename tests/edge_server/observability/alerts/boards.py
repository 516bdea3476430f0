"""Devices, rules and alerts for the tests."""

from dataclasses import dataclass, field

from edge_server.config.alerts import Rule
from edge_server.observability.alerts.facts import Incident, gather
from edge_server.observability.alerts.machine import Alerts, Plan, Step, step
from edge_server.observability.alerts.rules import evaluate
from schemas.labels import parse_where
from schemas.values import BoardState

FEDERATION = "farm"
HOUR = 3600.0


@dataclass(frozen=True)
class Device:
    """A device as the rules see it."""

    name: str
    federation: str = FEDERATION
    labels: dict[str, str] = field(default_factory=dict)
    site: str = ""
    note: str = ""
    alive: bool = True
    seen_at: float | None = None
    certificate_until: float | None = None
    board: BoardState | None = None
    drift: str = ""


def make_rule(when: str, threshold: float = 0.0, *, where: str = "", **values) -> Rule:
    values = {"name": when, "to": ("hook",), **values}
    return Rule(when=when, threshold=threshold, where=parse_where(where), **values)


def make_plan(*rules: Rule, receivers=None, **values) -> Plan:
    return Plan({rule.name: rule for rule in rules}, receivers or {"hook": None}, **values)


def run(
    alerts: Alerts,
    plan: Plan,
    now: float,
    *devices: Device,
    incidents: tuple[Incident, ...] = (),
    presence: bool = True,
) -> Step:
    """One evaluation of these devices."""
    facts = gather(devices, incidents, presence=presence)
    return step(alerts, evaluate(tuple(plan.rules.values()), facts, now), plan, now)
