"""Events for a page: everything once, then changes; a slow page receives only the newest state."""

from dataclasses import replace
from typing import Any

from edge_server.observability.dashboard.events import QUIET_S, Cursor, PageState, events, next_page_state
from edge_server.observability.dashboard.fleet_view import FleetRow

ALPHA, BETA = FleetRow("alpha", 1, 0.5, "idle", seen_at=100.0), FleetRow("beta", 2, 0.0, "training")


def run(**fields: Any) -> dict[str, Any]:
    values = {"round": 1, "outcome": None, "deadline_at": None, "began_at": 1.0, "now": 100.0}
    return values | fields


def shown(
    before: PageState | None = None, rows: Any = (ALPHA, BETA), rounds: Any = (), **fields: Any
) -> PageState:
    at = fields.pop("at", 100.0)
    return next_page_state(before, run(**fields), rows, rounds, now=at)


def names(reported: Any) -> list[str]:
    return [event.name for event in reported]


def test_a_new_page_receives_everything_once():
    cursor, reported = events(Cursor(), shown(rounds=[{"round": 1}]))
    assert names(reported) == ["run", "fleet", "round"]
    assert reported[1].data["full"] is True
    assert [row["device"] for row in reported[1].data["devices"]] == ["alpha", "beta"]
    assert events(cursor, shown(rounds=[{"round": 1}]))[1] == []


def test_only_changed_rows_and_removed_devices_are_sent():
    first = shown()
    cursor, _ = events(Cursor(), first)
    second = shown(first, rows=(replace(ALPHA, state="training"),))
    _, reported = events(cursor, second)
    assert names(reported) == ["fleet"]
    assert reported[0].data["full"] is False
    assert [(row["device"], row["state"]) for row in reported[0].data["devices"]] == [("alpha", "training")]
    assert reported[0].data["gone"] == ["beta"]


def test_a_device_that_returns_is_no_longer_gone():
    first = shown()
    cursor, _ = events(Cursor(), first)
    third = shown(shown(first, rows=(ALPHA,)), rows=(ALPHA, BETA))
    _, (fleet,) = events(cursor, third)
    assert ([row["device"] for row in fleet.data["devices"]], fleet.data["gone"]) == (["beta"], [])


def test_the_time_a_device_was_seen_is_sent_at_most_every_few_seconds():
    first = shown()
    cursor, _ = events(Cursor(), first)
    soon = shown(first, rows=(replace(ALPHA, seen_at=101.0), BETA), at=101.0)
    cursor, reported = events(cursor, soon)
    assert reported == []
    later = shown(soon, rows=(replace(ALPHA, seen_at=106.0), BETA), at=100.0 + QUIET_S)
    _, (fleet,) = events(cursor, later)
    assert [(row["device"], row["seen_at"]) for row in fleet.data["devices"]] == [("alpha", 106.0)]


def test_any_other_change_is_sent_at_once_with_the_time_the_device_was_seen():
    first = shown()
    cursor, _ = events(Cursor(), first)
    _, (fleet,) = events(
        cursor, shown(first, rows=(replace(ALPHA, seen_at=101.0, reason="x"), BETA), at=101.0)
    )
    assert fleet.data["devices"][0]["seen_at"] == 101.0


def test_a_slow_page_receives_only_the_newest_state_of_each_row():
    newest = shown()
    cursor, _ = events(Cursor(), newest)
    for epoch in range(1, 51):
        newest = shown(newest, rows=(ALPHA, replace(BETA, epoch=epoch)), at=100.0 + epoch)
    _, (fleet,) = events(cursor, newest)
    assert [row["epoch"] for row in fleet.data["devices"]] == [50]


def test_the_run_is_sent_again_when_more_than_the_time_has_changed():
    first = shown()
    cursor, _ = events(Cursor(), first)
    assert events(cursor, shown(first, now=101.0))[1] == []
    assert names(events(cursor, shown(first, round=2))[1]) == ["run"]


def test_a_recomputed_deadline_that_hardly_differs_is_not_sent():
    first = shown(deadline_at=160.0)
    cursor, _ = events(Cursor(), first)
    assert events(cursor, shown(first, deadline_at=160.3))[1] == []
    _, (reported,) = events(cursor, shown(first, deadline_at=190.0))
    assert reported.data["deadline_at"] == 190.0


def test_a_page_that_knows_some_rounds_receives_the_later_ones():
    lines = [{"round": number} for number in (1, 2, 3)]
    _, reported = events(Cursor(round=2), shown(rounds=lines))
    assert [event.data["round"] for event in reported if event.name == "round"] == [3]


def test_the_end_is_sent_once_and_last():
    cursor, reported = events(Cursor(), shown(rounds=[{"round": 1}], outcome="finished"))
    assert names(reported) == ["run", "fleet", "round", "end"]
    assert reported[-1].data == {"outcome": "finished"}
    assert events(cursor, shown(shown(), outcome="finished", round=5))[1][-1].name != "end"
