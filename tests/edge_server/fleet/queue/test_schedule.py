"""When jobs are due: distances, cron expressions, time zones, the change of the clock."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from edge_server.fleet.queue.job import At, Cron, Every, next_time, parse_at, parse_cron, parse_every
from schemas.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")


def berlin(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def due(expression: str, after: float, count: int) -> list[str]:
    cron, times = parse_cron(expression, "Europe/Berlin", now=after), []
    for _ in range(count):
        after = next_time(cron, after, since=0) or 0
        times.append(f"{datetime.fromtimestamp(after, BERLIN):%a %Y-%m-%d %H:%M %z}")
    return times


def test_each_sunday_at_two_by_the_clock_of_the_zone() -> None:
    assert due("0 2 * * SUN", berlin("2026-11-26T12:00"), 2) == [
        "Sun 2026-11-29 02:00 +0100",
        "Sun 2026-12-06 02:00 +0100",
    ]


def test_the_hour_that_is_skipped_in_spring_does_not_skip_the_job() -> None:
    assert due("30 2 * * *", berlin("2027-03-27T12:00"), 2) == [
        "Sun 2027-03-28 03:00 +0200",
        "Mon 2027-03-29 02:30 +0200",
    ]


def test_the_hour_that_comes_twice_in_autumn_runs_the_job_once() -> None:
    assert due("30 2 * * *", berlin("2026-10-24T12:00"), 2) == [
        "Sun 2026-10-25 02:30 +0200",
        "Mon 2026-10-26 02:30 +0100",
    ]


def test_a_time_in_the_second_of_two_equal_hours_is_followed_by_a_later_one() -> None:
    second = datetime(2026, 10, 25, 2, 15, tzinfo=BERLIN, fold=1).timestamp()
    cron = parse_cron("30 2 * * *", "Europe/Berlin", now=second)
    following = next_time(cron, second, since=0)
    assert following is not None
    assert following > second


def test_every_counts_from_its_beginning() -> None:
    every = Every(seconds=3600)
    assert next_time(every, 1000.0, since=1000.0) == 4600.0
    assert next_time(every, 4599.0, since=1000.0) == 4600.0
    assert next_time(every, 4600.0, since=1000.0) == 8200.0
    assert next_time(every, 0.0, since=1000.0) == 4600.0


def test_at_comes_once() -> None:
    assert next_time(At(at=50.0), 49.0, since=0) == 50.0
    assert next_time(At(at=50.0), 50.0, since=0) is None


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("6h", 21600, "every 6 h"),
        ("90min", 5400, "every 90 min"),
        ("1.5 h", 5400, "every 90 min"),
        ("7d", 604800, "every 1 w"),
    ],
)
def test_distances(text: str, seconds: float, shown: str) -> None:
    assert parse_every(text).seconds == seconds
    assert str(parse_every(text)) == shown


@pytest.mark.parametrize("text", ["", "6", "h", "-1h", "1s", "400d", "6 hours", "1e3h"])
def test_no_distance(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 30min, 6h or 1d"):
        parse_every(text)


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_a_schedule_that_never_comes_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"never comes: .* change the day") as refusal:
        parse_cron(expression, "UTC", now=0)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("expression", ["0 0 29 2 *", "0 0 31 2 SUN", "0 0 L 2 *"])
def test_a_schedule_that_comes_rarely_is_not_refused(expression: str) -> None:
    assert isinstance(parse_cron(expression, "UTC", now=0), Cron)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 0 32 * *", "bad day-of-month"),
        ("61 * * * *", "bad minute"),
        ("* * * *", "five fields"),
        ("0 * * * * *", "five fields"),
        ("0 2 * * SUNDAY", "bad day-of-week"),
        ("", "five fields"),
    ],
)
def test_no_cron_expression(expression: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_cron(expression, "UTC", now=0)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "../etc/passwd", "/etc/passwd"])
def test_no_time_zone(zone: str) -> None:
    with pytest.raises(ConfigError, match="name one such as Europe/Berlin"):
        parse_cron("0 2 * * *", zone, now=0)


def test_a_time_is_one_of_the_zone_unless_it_says_its_own() -> None:
    now = berlin("2026-11-26T12:00")
    assert parse_at("2026-11-26T13:00", "Europe/Berlin", now=now).at == now + 3600
    assert parse_at("2026-11-26T13:00+00:00", "Europe/Berlin", now=now).at == now + 7200
    with pytest.raises(ConfigError, match="has passed"):
        parse_at("2026-11-26T11:00", "Europe/Berlin", now=now)
    with pytest.raises(ConfigError, match="write 2026-12-01T02:00"):
        parse_at("tomorrow", "Europe/Berlin", now=now)
