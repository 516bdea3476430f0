"""Which state of a device, run or job each kind of rule finds."""

import pytest

from edge_server.fleet.alerts.alert import evaluate, gather
from edge_server.fleet.settings.alert_kinds import Incident, IncidentKind
from schemas.values import BoardState, DriftFinding
from tests.edge_server.fleet.alerts.boards import FEDERATION, HOUR, board, make_rule

NOW = 1_800_000_000.0


def found(rule, *devices, incidents=(), presence=True):
    """{subject: text} of a rule's findings."""
    evaluation = evaluate(
        (rule,), gather(devices, incidents, unheard=frozenset() if presence else frozenset({FEDERATION})), NOW
    )
    return {key[3]: finding.text for key, (finding, _) in evaluation.findings.items()}


def incident(kind, subject="pi", *, ago=60.0, **values):
    return Incident(NOW - ago, kind, FEDERATION, subject, **values)


BOARDS = {
    "silent-for": (
        2 * HOUR,
        board("pi", alive=False, seen_at=NOW - 2.1 * HOUR),
        board("pi", seen_at=NOW - HOUR),
    ),
    "certificate-ends-within": (
        HOUR,
        board("pi", certificate_until=NOW + 3599),
        board("pi", certificate_until=NOW + 3601),
    ),
    "drift": (
        0.0,
        board("pi", drift=DriftFinding(statistic="mean", p_value=0.001, examples=50)),
        board("pi"),
    ),
    "disk-free-below": (
        1e9,
        board("pi", board=BoardState(disk_free_bytes=999_999_999)),
        board("pi", board=BoardState(disk_free_bytes=1_000_000_000), disk_free_bytes=5),
    ),
    "temperature-above": (
        80.0,
        board("pi", board=BoardState(celsius=80.1)),
        board("pi", board=BoardState(celsius=80)),
    ),
}


@pytest.mark.parametrize("kind", BOARDS)
def test_a_rule_finds_the_state_beyond_its_value_and_not_the_one_at_it(kind):
    value, bad, good = BOARDS[kind]
    assert found(make_rule(kind, value), bad).keys() == {"pi"}
    assert found(make_rule(kind, value), good) == {}
    assert found(make_rule(kind, value), board("pi")) == {}


def test_a_connected_device_that_sends_nothing_is_silent_too():
    text = found(make_rule("silent-for", HOUR), board("pi", alive=True, seen_at=NOW - 2 * HOUR))["pi"]
    assert text.startswith("is connected, but has sent nothing since 20")


def test_nobody_is_silent_while_the_service_has_no_connection():
    rule, device = make_rule("silent-for", HOUR), board("pi", alive=False, seen_at=1.0)
    assert found(rule, device, presence=False) == {}
    assert evaluate((rule,), gather([device], [], unheard=frozenset({FEDERATION})), NOW).unknown == {
        ("silent-for", FEDERATION)
    }


def test_a_selector_chooses_by_labels_site_and_name():
    warm = BoardState(celsius=90)
    boards = [
        board("pi-1", labels={"role": "camera"}, site="barn", board=warm),
        board("pi-2", labels={"site": "field"}, site="barn", board=warm),
    ]
    assert found(make_rule("temperature-above", 80, where="site=barn"), *boards).keys() == {"pi-1"}
    assert found(make_rule("temperature-above", 80, where="site=field"), *boards).keys() == {"pi-2"}
    assert found(make_rule("temperature-above", 80, where="device!=pi-1"), *boards).keys() == {"pi-2"}


def test_refusals_count_within_the_window():
    rule = make_rule("refused-times", 3, within_s=HOUR)
    old = incident(IncidentKind.REFUSAL, ago=2 * HOUR, count=9)
    two = incident(IncidentKind.REFUSAL, count=2, text="norm: too large", run="night")
    one = incident(IncidentKind.REFUSAL, ago=30, text="norm: too large", run="night")
    assert found(rule, board("pi"), incidents=(old, two)) == {}
    assert (
        found(rule, board("pi"), incidents=(two, one))["pi"]
        == "was refused 3 times in 1 h 00 min: norm: too large"
    )


def test_the_last_rollout_of_a_device_decides_on_its_accuracy():
    rule = make_rule("accuracy-fell", 0.05)
    worse = incident(IncidentKind.TRIAL, ago=500, lost=0.2, text="has 70.0% with v2, and had 90.0% before")
    fine = incident(IncidentKind.TRIAL, ago=100, lost=-0.01)
    assert found(rule, board("pi"), incidents=(worse,))["pi"].startswith("has 70.0% with v2")
    assert found(rule, board("pi"), incidents=(worse, fine)) == {}


def test_runs_and_jobs_are_subjects_of_their_own():
    abandoned = incident(IncidentKind.ROUND, "night", run="night", text="round abandoned: round 3: too few")
    failed = incident(IncidentKind.JOB, "night", run="night", text="run failed: disk")
    assert found(make_rule("round-failed", 1), incidents=(abandoned, failed)).keys() == {"night"}
    assert found(make_rule("job-failed"), incidents=(failed,)) == {"night": "failed: run failed: disk"}


def test_incidents_of_unknown_devices_are_left_out():
    assert found(make_rule("refused-times", 1), incidents=(incident(IncidentKind.REFUSAL, "stranger"),)) == {}


def test_a_connected_device_may_be_quiet_between_two_reports():
    rule = make_rule("silent-for", 10)
    assert found(rule, board("pi", alive=True, seen_at=NOW - 179)) == {}
    assert found(rule, board("pi", alive=False, seen_at=NOW - 11)).keys() == {"pi"}
