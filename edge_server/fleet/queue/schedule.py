"""When a job is due: at one time, at fixed distances, or by a cron expression in a time zone.

Times are seconds since the epoch. cronsim treats daylight saving as Debian's cron does: a job of a skipped
hour runs right after it, a job of a repeated hour runs once.
"""

from datetime import UTC, datetime, tzinfo
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field

from edge_client.security.identity.validity import format_utc
from edge_server.config.measures import quantity
from schemas.base import Frozen
from schemas.errors import MAX_SECONDS, ConfigError

SHORTEST_S = 60.0
LONGEST_S = 366 * 86400.0
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
FIELDS = "minute, hour, day of the month, month, day of the week; '0 2 * * SUN' is each Sunday at 2"


class At(Frozen):
    """Due once, at a time."""

    kind: Literal["at"] = "at"
    at: float

    def __str__(self) -> str:
        return f"at {format_utc(self.at)}"


class Every(Frozen):
    """Due again and again, at fixed distances from the time at which the job was added or started."""

    kind: Literal["every"] = "every"
    seconds: float = Field(ge=SHORTEST_S, le=LONGEST_S)

    def __str__(self) -> str:
        unit, size = max(
            ((unit, size) for unit, size in UNITS.items() if self.seconds % size == 0),
            key=lambda found: found[1],
        )
        return f"every {self.seconds / size:g} {unit}"


class Cron(Frozen):
    """Due whenever the clock of a time zone matches an expression."""

    kind: Literal["cron"] = "cron"
    expression: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.expression} ({self.zone})"


Schedule = Annotated[At | Every | Cron, Field(discriminator="kind")]


def next_time(schedule: At | Every | Cron, after: float, *, since: float) -> float | None:
    """The first time later than `after` at which the job is due; None if there is none.

    `since` is when the schedule began.
    """
    match schedule:
        case At(at=at):
            return at if at > after else None
        case Every(seconds=seconds):
            return since + seconds * (max(0, (after - since) // seconds) + 1)
        case Cron(expression=expression, zone=zone):
            moments = CronSim(expression, datetime.fromtimestamp(after, time_zone(zone)))
            return next((at for moment in moments if (at := moment.timestamp()) > after), None)


def clock_text(at: float | None, schedule: At | Every | Cron | None) -> str:
    """A time by the clock of the schedule's zone, UTC if it names none."""
    zone = time_zone(schedule.zone) if isinstance(schedule, Cron) else UTC
    return "-" if at is None else f"{datetime.fromtimestamp(at, zone):%a %Y-%m-%d %H:%M %Z}"


def time_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"there is no time zone '{name}' on this machine",
            remedy="name one such as Europe/Berlin, or install the package tzdata",
        ) from error


# --- what users write ---
def parse_schedule(
    cron: str | None, every: str | None, at: str | None, zone: str, *, now: float
) -> At | Every | Cron | None:
    """The schedule of the one text that is given, None without any; raises `ConfigError`."""
    time_zone(zone)
    if cron is not None:
        return parse_cron(cron, zone, now=now)
    if every is not None:
        return parse_every(every)
    return None if at is None else parse_at(at, zone, now=now)


def parse_every(text: str) -> Every:
    """The schedule `6h`, `30min`, `1d`; raises `ConfigError`."""
    try:
        seconds = quantity(text, {**UNITS, "m": 60}, "a distance")
    except ConfigError:
        seconds = 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ConfigError(
            f"every '{text}'", remedy="write a distance from 1min to 366d, such as 30min, 6h or 1d"
        )
    return Every(seconds=seconds)


def parse_cron(expression: str, zone: str, *, now: float) -> Cron:
    """A checked cron schedule; raises `ConfigError` also if the expression never matches."""
    parsed = Cron(expression=" ".join(expression.split()), zone=zone)
    time_zone(zone)
    if len(expression.split()) != 5:
        raise ConfigError(f"'{expression}' is not a cron expression: it needs five fields: {FIELDS}")
    try:
        comes = next_time(parsed, now, since=now) is not None
    except CronSimError as error:
        if not _is_impossible_day(parsed):
            raise ConfigError(
                f"'{expression}' is not a cron expression: {str(error).lower()}: {FIELDS}"
            ) from error
        comes = False
    if not comes:
        raise ConfigError(
            f"'{expression}' never comes: no month of it has such a day",
            remedy="change the day of the month or the month ('L' is a month's last day)",
        )
    return parsed


def _is_impossible_day(cron: Cron) -> bool:
    """Whether each field of a refused expression is right and only the months lack the day."""
    minute, hour, day, month, weekday = cron.expression.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", datetime(2000, 1, 1, tzinfo=UTC))
        CronSim(f"{minute} {hour} * {month} {weekday}", datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def parse_at(text: str, zone: str, *, now: float) -> At:
    """One time, `2026-12-01T02:00`, by the clock of a zone; raises `ConfigError` if it has passed."""
    try:
        moment = datetime.fromisoformat(text)
        at = (moment if moment.tzinfo else moment.replace(tzinfo=time_zone(zone))).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"'{text}' is not a time", remedy="write 2026-12-01T02:00") from error
    if at <= now:
        raise ConfigError(
            f"the time {text} ({zone}) has passed", remedy="name a later one, or none to start now"
        )
    if at > now + MAX_SECONDS:
        raise ConfigError(
            f"the time {text} ({zone}) is more than 31 years away", remedy="name an earlier one"
        )
    return At(at=at)
