"""What the owner of a device states in `client.toml`: when it may train, and what he forbids."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from schemas import messages, strategy
from schemas.base import Settings

LinkKind = Literal["wired", "wifi", "cellular"]
MINUTES = 24 * 60
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


def _hours(text: str) -> str:
    if not _HOURS.fullmatch(text):
        raise ValueError("expected HH:MM-HH:MM, for instance 22:00-07:00")
    return text


class Rules(Settings):
    """What must hold for training; nothing is required unless it is stated."""

    max_temperature_c: float | None = Field(default=None, gt=0, le=150)
    """Degrees Celsius of the hottest thermal zone."""
    min_battery_percent: float | None = Field(default=None, ge=0, le=100)
    """Charge of the battery in percent."""
    mains_only: bool = False
    """Train on mains power only."""
    quiet_hours: tuple[Annotated[str, AfterValidator(_hours)], ...] = ()
    """Hours of local time without training, `HH:MM-HH:MM`."""
    max_load: float | None = Field(default=None, gt=0)
    """Load of the last minute, per core."""
    max_memory_pressure_percent: float | None = Field(default=None, gt=0, le=100)
    """Share of the last ten seconds in which something waited for memory (PSI), in percent."""
    unmetered_only: bool = False
    """Train on unmetered links only."""
    metered: tuple[LinkKind, ...] = ("cellular",)
    """Which links are metered."""
    check_every_s: float = Field(default=5.0, gt=0)
    """Seconds between two looks at the board."""
    give_back_after_s: float = Field(default=300.0, ge=0)
    """Seconds after which a waiting task is given back."""

    @property
    def asks_nothing(self) -> bool:
        return self == Rules(
            metered=self.metered, check_every_s=self.check_every_s, give_back_after_s=self.give_back_after_s
        )


def is_quiet(hours: tuple[str, ...], minute: int) -> bool:
    """Whether a minute of the day, from 0, lies in a span; spans may pass midnight."""
    spans = ([int(clock[:2]) * 60 + int(clock[3:]) for clock in span.split("-")] for span in hours)
    return any((minute - begin) % MINUTES < (end - begin) % MINUTES for begin, end in spans)


TaskKind = Literal["train", "measure", "statistics", "deliver"]
EXACT = "float32"  # What an update without a number codec is sent as


def _codec(name: str) -> str:
    from edge_client.compression.chain import CODECS
    from schemas.errors import nearest

    known = (EXACT, *CODECS)
    if name not in known:
        raise ValueError(f"no codec is called '{name}'{nearest(name, known)}: one of {', '.join(known)}")
    return name


class Veto(Settings):
    """What the owner of the device's data forbids; tasks against it are declined, and nothing is forbidden
    unless it is stated.
    """

    tasks: tuple[TaskKind, ...] = ()
    """Kinds of tasks that are declined."""
    codecs: tuple[Annotated[str, AfterValidator(_codec)], ...] = ()
    """Codecs of updates that are declined; `float32` are updates of exact numbers."""
    min_examples: int = Field(default=0, ge=0)
    """Fewest examples to train with, or to measure a model on."""
    max_rounds: int | None = Field(default=None, ge=0)
    """Rounds of a run after which the device trains and measures no more."""


def objection(veto: Veto, task: messages.Task, *, trained_on: int, held_out: int) -> str:
    """Why the owner forbids a task to a device with so many examples; empty if nothing is against it."""
    kind = task_kind(task)
    if kind in veto.tasks:
        return f"the owner of this device forbids tasks of the kind {kind}"
    examples = held_out if kind == "measure" else trained_on
    # A delivery that leaves it to the device is made without training.
    optional = isinstance(task, messages.DeliverTask) and task.where_classes_differ
    if task.plan is not None and not optional and examples < veto.min_examples:
        return f"{examples} examples, the owner of this device asks for at least {veto.min_examples}"
    if isinstance(task, messages.DeliverTask):
        return ""
    if veto.max_rounds is not None and task.round > veto.max_rounds:
        return f"round {task.round}, the owner of this device allows {veto.max_rounds} in a run"
    forbidden = [name for name in _codecs(task.uplink) if name in veto.codecs]
    if forbidden and kind == "train" and task.masking is None:
        return f"the owner of this device forbids the codec {forbidden[0]}"
    return ""


def task_kind(task: messages.Task) -> TaskKind:
    """What a task asks for."""
    if isinstance(task, messages.DeliverTask):
        return "deliver"
    if task.statistics is not None:
        return "statistics"
    return "measure" if task.training.local_epochs == 0 and task.returned == () else "train"


def _codecs(uplink: tuple[strategy.Component, ...]) -> tuple[str, ...]:
    names = tuple(component.name for component in uplink)
    return names if {"fp16", "int8"} & {*names} else (*names, EXACT)
