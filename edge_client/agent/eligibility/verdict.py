"""The verdict on the conditions: train, pause, or serve only.

Short-lived conditions (heat, load, memory pressure) pause the task. Lasting ones (low battery, no mains,
quiet hours, a metered link) restrict the device to inference. A missing reading breaks no rule: most boards
have no battery. A broken rule needs a margin to be kept again: training must not start and stop at a limit.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_client.agent.eligibility.rules import Rules, is_quiet
from edge_client.system.hardware.network import Kind, connection
from edge_client.system.hardware.power import Source, hottest, power, zones
from edge_client.system.hardware.processor import pressure, read_load
from edge_client.system.hardware.sysfs import ROOT
from schemas.values import Eligibility


@dataclass(frozen=True)
class Conditions:
    """The board at one moment: degrees Celsius, percent, load per core, minutes of the local day."""

    celsius: float | None = None
    battery: float | None = None
    source: Source | None = None
    load: float | None = None
    memory_pressure: float | None = None
    link: Kind | None = None
    minute: int = 0


def conditions(*, cores: int, root: Path = ROOT) -> Conditions:
    supply, busy, squeeze, link = power(root), read_load(root), pressure("memory", root), connection(root)
    clock = time.localtime()
    return Conditions(
        celsius=hottest(zones(root)),
        battery=None if supply.battery is None else 100 * supply.battery,
        source=supply.source,
        load=None if busy is None else busy / max(1, cores),
        memory_pressure=None if squeeze is None else 100 * squeeze.some,
        link=None if link is None else link.kind,
        minute=60 * clock.tm_hour + clock.tm_min,
    )


COOLER_C, FULLER_PERCENT, SPARE = 5.0, 5.0, 0.8
"""The margins: degrees Celsius, percent of the battery, factor on a limit of load or pressure."""


@dataclass(frozen=True)
class EligibilityVerdict:
    """Whether to train, and why not: a text for each broken rule."""

    eligibility: Eligibility = Eligibility.TRAIN
    why: Mapping[str, str] | None = None

    @property
    def detail(self) -> str:
        return "; ".join((self.why or {}).values())


MAY_TRAIN = EligibilityVerdict()
Breach = Callable[[Rules, Conditions, bool], str | None]
"""The text if the rule is broken, else None; the flag says that it was broken before, so a margin applies."""


def judge(rules: Rules, now: Conditions, before: EligibilityVerdict = MAY_TRAIN) -> EligibilityVerdict:
    """Apply the rules, given the previous verdict."""
    broken = before.why or {}
    why = {
        name: text
        for name, (_, breach) in BREACHES.items()
        if (text := breach(rules, now, name in broken)) is not None
    }
    if not why:
        return MAY_TRAIN
    lasting = any(BREACHES[name][0] is Eligibility.INFER_ONLY for name in why)
    return EligibilityVerdict(Eligibility.INFER_ONLY if lasting else Eligibility.PAUSE, why)


def unknown(rules: Rules, now: Conditions) -> tuple[str, ...]:
    """The keys of stated rules for which the board has no reading."""
    readings = {
        "max-temperature-c": (rules.max_temperature_c, now.celsius),
        "min-battery-percent": (rules.min_battery_percent, now.battery),
        "mains-only": (rules.mains_only or None, now.source),
        "max-load": (rules.max_load, now.load),
        "max-memory-pressure-percent": (rules.max_memory_pressure_percent, now.memory_pressure),
        "unmetered-only": (rules.unmetered_only or None, now.link),
    }
    return tuple(key for key, (limit, value) in readings.items() if limit is not None and value is None)


def _hot(rules: Rules, now: Conditions, broken: bool) -> str | None:
    limit, value = rules.max_temperature_c, now.celsius
    if limit is None or value is None or value <= limit - COOLER_C * broken:
        return None
    return f"{value:.0f} °C, at most {limit:g} °C"


def _empty(rules: Rules, now: Conditions, broken: bool) -> str | None:
    limit, value = rules.min_battery_percent, now.battery
    if limit is None or value is None or value >= min(100.0, limit + FULLER_PERCENT * broken):
        return None
    return f"battery at {value:.0f}%, at least {limit:g}%"


def _on_battery(rules: Rules, now: Conditions, _: bool) -> str | None:
    return "on battery, mains only" if rules.mains_only and now.source == "battery" else None


def _quiet(rules: Rules, now: Conditions, _: bool) -> str | None:
    return f"quiet hours {', '.join(rules.quiet_hours)}" if is_quiet(rules.quiet_hours, now.minute) else None


def _busy(rules: Rules, now: Conditions, broken: bool) -> str | None:
    return _above("load per core", rules.max_load, now.load, broken)


def _judge_memory_pressure(rules: Rules, now: Conditions, broken: bool) -> str | None:
    return _above(
        "memory pressure in percent", rules.max_memory_pressure_percent, now.memory_pressure, broken
    )


def _above(what: str, limit: float | None, value: float | None, broken: bool) -> str | None:
    if limit is None or value is None or value <= (SPARE * limit if broken else limit):
        return None
    return f"{what} {value:.1f}, at most {limit:g}"


def _judge_link(rules: Rules, now: Conditions, _: bool) -> str | None:
    return f"the link is {now.link}" if rules.unmetered_only and now.link in rules.metered else None


BREACHES: Mapping[str, tuple[Eligibility, Breach]] = {
    "temperature": (Eligibility.PAUSE, _hot),
    "load": (Eligibility.PAUSE, _busy),
    "memory-pressure": (Eligibility.PAUSE, _judge_memory_pressure),
    "battery": (Eligibility.INFER_ONLY, _empty),
    "mains": (Eligibility.INFER_ONLY, _on_battery),
    "quiet-hours": (Eligibility.INFER_ONLY, _quiet),
    "metered": (Eligibility.INFER_ONLY, _judge_link),
}
"""For each rule, what breaking it leads to, and its check."""
