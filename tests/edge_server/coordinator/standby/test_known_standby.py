"""What the server concludes from a standby's reports and its silence."""

from dataclasses import replace

from edge_server.coordinator.standby.known_standby import NEARLY, SILENT_S, STUCK_S, KnownStandby
from schemas.messages import StandbyReport

STANDBY = KnownStandby("s", "attic", "series", heard_at=10.0, moved_at=10.0, known=7, confirmed=5)


def _report(*, known: int, confirmed: int) -> StandbyReport:
    return StandbyReport(federation="home", standby="s", series="series", known=known, confirmed=confirmed)


def test_only_confirmed_entries_are_progress() -> None:
    same = STANDBY.with_report(_report(known=7, confirmed=5), 11.0)
    assert (same.heard_at, same.moved_at) == (11.0, 10.0)
    more = STANDBY.with_report(_report(known=7, confirmed=6), 11.0)
    assert (more.moved_at, more.confirmed) == (11.0, 6)


def test_a_report_that_was_overtaken_takes_nothing_back() -> None:
    late = STANDBY.with_report(_report(known=9, confirmed=2), 11.0)
    assert (late.known, late.confirmed) == (7, 5)


def test_entries_that_were_not_heard_of_are_known_from_the_report() -> None:
    assert STANDBY.with_report(_report(known=6, confirmed=5), 11.0).known == 6
    assert STANDBY.begun_again(11.0).known == 0


def test_a_standby_is_lost_if_silent_or_stuck() -> None:
    assert not STANDBY.is_lost(5, 10.0 + SILENT_S - 0.1)
    assert STANDBY.is_lost(5, 10.0 + SILENT_S)
    talking = replace(STANDBY, heard_at=10.0 + STUCK_S)
    assert talking.is_lost(6, 10.0 + STUCK_S)
    assert not talking.is_lost(5, 10.0 + STUCK_S)
    assert not talking.fetching(10.0 + STUCK_S).is_lost(6, 10.0 + STUCK_S)


def test_the_server_waits_only_for_a_standby_that_is_nearly_up_to_date() -> None:
    assert STANDBY.catches_up(5 + NEARLY)
    assert not STANDBY.catches_up(6 + NEARLY)
    assert not replace(STANDBY, confirmed=0).catches_up(1)
    assert not replace(STANDBY, named=True).catches_up(5)
