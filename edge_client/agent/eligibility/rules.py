"""`[eligibility]` of `client.toml`: when the owner of a device lets it train."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

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
