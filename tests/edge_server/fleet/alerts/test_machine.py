"""The life of alerts in virtual time."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_server.fleet.alerts.alert import Phase, Silence
from edge_server.fleet.settings.alert_kinds import Incident, IncidentKind
from edge_server.storage.inventory.records import InventoryDevice
from schemas.values import BoardState
from tests.edge_server.fleet.alerts.boards import FEDERATION, board, make_plan, make_rule, run

HOT, COLD = BoardState(celsius=90), BoardState(celsius=40)
RULE = make_rule("temperature-above", 80, repeat_s=3600.0)


def hot(*names: str) -> list[InventoryDevice]:
    return [board(name, board=HOT) for name in names]


def notified(step) -> list[tuple[str, list[str], list[str]]]:
    """(receiver, names that fire, names that are resolved) of each notification."""
    return [
        (
            sent.receiver,
            [alert.subject.name for alert in sent.firing],
            [a.subject.name for a in sent.resolved],
        )
        for sent in step.notifications
    ]


def test_alerts_of_one_evaluation_are_one_notification_per_receiver():
    plan = make_plan(RULE, receivers={"hook": None, "unused": None})
    first = run({}, plan, 0.0, *hot("a", "b", "c"))
    assert notified(first) == [("hook", ["a", "b", "c"], [])]
    assert notified(run(first.alerts, plan, 10.0, *hot("a", "b", "c"))) == []


def test_an_alert_is_repeated_after_its_time_and_resolved_once():
    plan = make_plan(RULE)
    first = run({}, plan, 0.0, *hot("a"))
    assert notified(run(first.alerts, plan, 3599.0, *hot("a"))) == []
    again = run(first.alerts, plan, 3600.0, *hot("a"))
    assert notified(again) == [("hook", ["a"], [])]
    assert again.notifications[0].resend
    over = run(again.alerts, plan, 3610.0, board("a", board=COLD))
    assert notified(over) == [("hook", [], ["a"])]
    assert over.alerts == {}


def test_a_state_must_last_before_the_alert_fires_and_be_over_as_long_before_it_is_resolved():
    plan = make_plan(make_rule("temperature-above", 80, for_s=300.0))
    pending = run({}, plan, 0.0, *hot("a"))
    assert notified(pending) == []
    assert [alert.phase for alert in pending.alerts.values()] == [Phase.PENDING]
    assert run(pending.alerts, plan, 10.0, board("a", board=COLD)).alerts == {}
    fires = run(pending.alerts, plan, 300.0, *hot("a"))
    assert notified(fires) == [("hook", ["a"], [])]
    clearing = run(fires.alerts, plan, 310.0, board("a", board=COLD))
    assert notified(clearing) == []
    flaps = run(clearing.alerts, plan, 320.0, *hot("a"))
    assert notified(flaps) == []
    assert [alert.phase for alert in flaps.alerts.values()] == [Phase.FIRING]
    clearing = run(flaps.alerts, plan, 330.0, board("a", board=COLD))
    assert notified(run(clearing.alerts, plan, 629.0, board("a", board=COLD))) == []
    assert notified(run(clearing.alerts, plan, 630.0, board("a", board=COLD))) == [("hook", [], ["a"])]


def test_new_alerts_wait_for_further_ones_of_their_rule():
    plan = make_plan(RULE, gather_s=30.0)
    first = run({}, plan, 0.0, *hot("a"))
    second = run(first.alerts, plan, 20.0, *hot("a", "b"))
    assert (notified(first), notified(second)) == ([], [])
    assert notified(run(second.alerts, plan, 30.0, *hot("a", "b"))) == [("hook", ["a", "b"], [])]


def test_an_alert_that_ends_before_anybody_has_heard_of_it_is_never_sent():
    plan = make_plan(RULE, gather_s=30.0)
    first = run({}, plan, 0.0, *hot("a"))
    over = run(first.alerts, plan, 10.0, board("a", board=COLD))
    over = run(over.alerts, plan, 40.0, board("a", board=COLD))
    assert (notified(over), over.alerts) == ([], {})


def test_a_removed_device_or_rule_resolves_its_alerts():
    plan = make_plan(RULE)
    first = run({}, plan, 0.0, *hot("a"))
    assert notified(run(first.alerts, plan, 10.0)) == [("hook", [], ["a"])]
    assert notified(run(first.alerts, make_plan(), 10.0, *hot("a"))) == [("hook", [], ["a"])]


def test_without_a_connection_silent_devices_stay_as_they_are():
    plan = make_plan(make_rule("silent-for", 60))
    first = run({}, plan, 100.0, board("a", alive=False, seen_at=0.0))
    assert notified(first) == [("hook", ["a"], [])]
    assert run(first.alerts, plan, 200.0, presence=False).alerts == first.alerts


def test_a_silence_holds_back_what_fires_but_not_the_resolution_of_what_was_sent():
    silence = Silence(number=1, where="device=a", reason="repair", who="local:me", began_at=0, until=100)
    plan = make_plan(RULE, silences=(silence,))
    first = run({}, plan, 10.0, *hot("a", "b"))
    assert notified(first) == [("hook", ["b"], [])]
    assert notified(run(first.alerts, plan, 100.0, *hot("a", "b"))) == [("hook", ["a"], [])]
    loud = run({}, make_plan(RULE), 10.0, *hot("a"))
    assert notified(run(loud.alerts, plan, 20.0)) == [("hook", [], ["a"])]


def test_an_acknowledged_alert_is_not_repeated_and_its_resolution_is_told():
    first = run({}, make_plan(RULE), 0.0, *hot("a", "b"))
    (seen, _) = first.alerts
    plan = make_plan(RULE, receivers={"hook": None, "manager": 60.0}, acknowledged=frozenset({seen}))
    again = run(first.alerts, plan, 3600.0, *hot("a", "b"))
    assert notified(again) == [("hook", ["b"], [])]
    # A receiver that forgets what it does not hear of again still hears of all.
    rule = make_rule("temperature-above", 80, to=("manager",))
    plan = make_plan(rule, receivers={"manager": 60.0}, acknowledged=frozenset({seen}))
    first = run({}, plan, 0.0, *hot("a"))
    assert notified(run(first.alerts, plan, 60.0, *hot("a"))) == [("manager", ["a"], [])]
    over = run(again.alerts, make_plan(RULE, acknowledged=frozenset({seen})), 3610.0, board("a"), *hot("b"))
    assert notified(over) == [("hook", [], ["a"])]


def test_alerts_of_one_job_are_silenced_by_its_name():
    failed = Incident(at=1.0, kind=IncidentKind.JOB, federation=FEDERATION, subject="nightly", text="failed")
    other = replace(failed, subject="often")
    rule = make_rule("job-failed", within_s=3600.0)
    silence = Silence(number=1, where="job=nightly", reason="", who="ada", began_at=0.0, until=9.0)
    told = run({}, make_plan(rule, silences=(silence,)), 2.0, incidents=(failed, other))
    assert notified(told) == [("hook", ["often"], [])]


def test_a_receiver_that_wants_alerts_again_hears_them_without_the_others():
    plan = make_plan(
        make_rule("temperature-above", 80, to=("hook", "manager")), receivers={"hook": None, "manager": 60.0}
    )
    first = run({}, plan, 0.0, *hot("a"))
    assert [name for name, *_ in notified(first)] == ["hook", "manager"]
    assert notified(run(first.alerts, plan, 60.0, *hot("a"))) == [("manager", ["a"], [])]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.5, 400.0), st.sets(st.sampled_from("abc")), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([0.0, 60.0, 300.0]),
    st.sampled_from([0.0, 30.0]),
)
def test_under_any_course_an_alert_is_resolved_once_per_firing_and_not_repeated_too_soon(
    moments, for_s, gather_s
):
    rule = make_rule("silent-for", 1, for_s=for_s, repeat_s=1000.0)
    plan, alerts, now = make_plan(rule, gather_s=gather_s), {}, 0.0
    heard: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for pause, silent, presence in moments:
        now += pause
        devices = [board(name, seen_at=0.0 if name in silent else now + 10) for name in "abc"]
        step = run(alerts, plan, now + 10, *devices, presence=presence)
        alerts = step.alerts
        assert len(step.notifications) <= 1
        for sent in step.notifications:
            for alert in sent.alerts:
                heard[alert.subject.name].append((now, alert in sent.firing))
    for course in heard.values():
        assert course[0][1], "a resolution without an alert"
        for (before, fired), (after, fires) in pairwise(course):
            assert fired or fires, "resolved twice"
            assert not (fired and fires) or after - before >= rule.repeat_s, "repeated too soon"
