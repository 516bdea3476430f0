"""A job: what is run, when, on which devices."""

from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field, StringConstraints, ValidationError

from edge_client.security.identity.validity import format_utc
from edge_server.config.measures import quantity
from schemas.base import Frozen, Name
from schemas.errors import MAX_SECONDS, ConfigError

# When a job is due: at one time, at fixed distances, or by a cron expression in a time zone.

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


RUN = "run"  # The action of a federation file; all others are fleet actions

JobName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
"""1 to 40 letters, digits, dots, dashes, underscores: a run's name has the time behind it."""


REMEDIES = {
    "name": "a job's name is 1 to 40 letters, digits, dots, dashes, underscores",
    "weight": "--weight must be above 0 and at most 1000",
}


class Wanted(StrEnum):
    """What the operator wants of a job."""

    ACTIVE = "active"
    PAUSED = "paused"
    STOPPED = "stopped"


class Job(Frozen):
    """A job as the operator has added it.

    `words` are the arguments of the action: a federation file with its overrides, or those of a fleet action.
    Each growth of `asked` asks for a run without regard to the schedule, which counts from `since`.
    """

    name: JobName
    action: str
    words: tuple[str, ...]
    federation: Name
    folder: str
    """The working directory: relative paths of a federation file count from there."""
    schedule: Schedule | None = None
    where: str = ""
    min_eligible: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0, le=1000)
    shared: bool = False
    """Whether the job may use devices at the same time as other shared jobs."""
    wanted: Wanted = Wanted.ACTIVE
    asked: int = 0
    since: float
    owner: str


def make_job(**fields: Any) -> Job:
    """The job of these fields; raises `ConfigError`."""
    try:
        return Job(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        key = str(problem["loc"][0])
        raise ConfigError(REMEDIES.get(key, f"{key}: {problem['msg']}")) from error


class RunPhase(StrEnum):
    """Where a run of a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    STOPPING = "stopping"
    SUSPENDED = "suspended"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class JobRun(Frozen):
    """One run; `name` is that of its folder.

    `attempt` counts its processes, `crashes` those in a row that broke down. `counted_at` is until when its
    time is counted for its federation's share; `short_since` is since when it lacks devices.
    """

    name: str
    job: str
    due: float
    by: str
    phase: RunPhase = RunPhase.WAITING
    attempt: int = 0
    crashes: int = 0
    not_before: float = 0.0
    began_at: float | None = None
    attempt_at: float = 0.0
    counted_at: float = 0.0
    short_since: float | None = None
    signalled_at: float | None = None
    ended_at: float | None = None
    code: int | None = None
    why: str = ""

    @property
    def on(self) -> bool:
        """Whether the run has a process, or is about to have one."""
        return self.phase in (RunPhase.RUNNING, RunPhase.SUSPENDING, RunPhase.STOPPING)

    @property
    def is_queued(self) -> bool:
        """Whether the run waits for its turn."""
        return self.phase in (RunPhase.WAITING, RunPhase.SUSPENDED)

    @property
    def over(self) -> bool:
        return not self.on and not self.is_queued


def run_name(job: str, due: float) -> str:
    return f"{job}-{datetime.fromtimestamp(due, UTC):%Y%m%d-%H%M%S}"
