"""Devices, rules and alerts for the tests."""

from edge_server.fleet.alerts.alert import evaluate, gather
from edge_server.fleet.alerts.machine import Alerts, Plan, Step, step
from edge_server.fleet.settings.alert_kinds import Incident, Rule
from edge_server.storage.inventory.records import InventoryDevice
from schemas.selectors import parse_where

FEDERATION = "orchard"
HOUR = 3600.0


def board(name: str, *, labels: dict[str, str] | None = None, **values) -> InventoryDevice:
    """A device of the inventory."""
    return InventoryDevice(federation=FEDERATION, device=name, own_labels=labels or {}, **values)


def make_rule(when: str, threshold: float = 0.0, *, where: str = "", **values) -> Rule:
    values = {"name": when, "to": ("hook",), **values}
    return Rule(when=when, threshold=threshold, where=parse_where(where), **values)


def make_plan(*rules: Rule, receivers=None, **values) -> Plan:
    return Plan({rule.name: rule for rule in rules}, receivers or {"hook": None}, **values)


def run(
    alerts: Alerts,
    plan: Plan,
    now: float,
    *devices: InventoryDevice,
    incidents: tuple[Incident, ...] = (),
    presence: bool = True,
) -> Step:
    """One evaluation of these devices."""
    facts = gather(devices, incidents, unheard=frozenset() if presence else frozenset({FEDERATION}))
    return step(alerts, evaluate(tuple(plan.rules.values()), facts, now), plan, now)
