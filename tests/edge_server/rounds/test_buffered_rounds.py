"""Buffered asynchronous rounds: three devices, and two updates close a round unless stated otherwise."""

import pytest

from edge_server.rounds import events
from edge_server.rounds.machine import RETRY_S, Buffering, Phase
from edge_server.rounds.participant import Status
from schemas.errors import Reason
from schemas.messages import BlobRequest, RoundAnnouncement
from tests.edge_server.rounds import by_hand
from tests.edge_server.rounds.test_fleet import birth, death

DEVICES = ("a", "b", "c")


def buffered(size: int = 2, lag: int = 5, at_once: int = 3, **rules) -> by_hand.Run:
    """A run whose devices are connected and not yet planned."""
    buffering = Buffering(size, max_staleness=lag, concurrency=at_once)
    return by_hand.started(
        *DEVICES, start_clients=3, buffering=buffering, rounds=rules.pop("rounds", 9), **rules
    )


def training(*devices: str, **rules) -> by_hand.Run:
    run = buffered(**rules)
    run.plan(*devices or DEVICES)
    return run


def decline(run: by_hand.Run, device: str) -> list:
    task = run.task[device]
    return run.hear(by_hand.reply(device, task.round, task.attempt, accepted=False))


def plans(commands: list) -> list[tuple[int, int, list[str], int | None]]:
    return [
        (plan.round, plan.attempt, [device.name for device in plan.devices], plan.wanted)
        for plan in by_hand.of(events.PlanRound, commands)
    ]


# --- planning ---
def test_the_start_plans_as_many_devices_as_may_train_at_once():
    run = buffered(at_once=2)
    assert plans(run.log) == [(1, 1, ["a", "b", "c"], 2)]


def test_no_more_devices_are_planned_than_may_train_at_once():
    run = training("a", "b", at_once=2)
    assert run.wait(1) == []
    assert plans(run.upload("a")) == [(1, 2, ["c"], 1)]


def test_a_free_place_is_filled_while_the_others_continue():
    run = training("a", at_once=1)
    assert plans(run.upload("a")) == [(1, 2, ["b", "c"], 1)]
    commands = run.plan("c")
    assert (by_hand.offers(commands), run.task["c"].attempt) == (["c"], 2)


def test_a_device_that_joins_late_is_planned_at_once():
    run = training(at_once=4)
    assert plans(run.hear(birth("d"))) == [(1, 2, ["d"], 1)]
    assert run.phase is Phase.PLANNING


def test_only_one_planning_is_in_progress_at_a_time():
    run = training("a", at_once=2)
    assert plans(run.log) == [(1, 1, ["a", "b", "c"], 2), (1, 2, ["b", "c"], 1)]
    assert plans(run.hear(birth("d"))) == []
    run.plan("b")
    assert plans(run.upload("a")) == [(1, 3, ["c", "d"], 1)]


def test_each_planning_of_a_round_has_its_own_attempt():
    run = training("a", at_once=1)
    run.upload("a")
    run.plan("b")
    run.upload("b")
    run.tell(events.RoundClosed(1))
    assert [(plan.round, plan.attempt, plan.retry) for plan in by_hand.of(events.PlanRound, run.log)] == [
        (1, 1, 0),
        (1, 2, 1),
        (2, 3, 0),
    ]


def test_a_plan_without_devices_is_repeated_after_a_pause():
    run = training("a", at_once=2)
    assert run.plan() == []
    assert plans(run.wait(RETRY_S - 0.1)) == []
    assert plans(run.wait(0.1)) == [(1, 3, ["b", "c"], 1)]


def test_a_plan_without_devices_while_nobody_works_abandons_the_round():
    run = buffered(attempts=1)
    assert [note.what for note in by_hand.of(events.Note, run.plan())] == ["round abandoned"]
    assert plans(run.wait(RETRY_S)) == [(1, 2, ["a", "b", "c"], 3)]
    assert [end.outcome for end in by_hand.of(events.EndRun, run.plan())] == ["failed"]


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_plan_of_another_attempt_is_ignored(attempt):
    run = training("a", at_once=2)
    assert run.tell(events.RoundPlanned(attempt, {"b": by_hand.assignment(1, attempt)})) == []
    assert run.phase is Phase.PLANNING


def test_a_planning_keeps_the_blobs_of_open_tasks_and_of_updates_in_transit():
    run = training("a", "b", at_once=3)
    run.plan()
    digests = {device: by_hand.update(device).blob.digest for device in DEVICES}
    # `c` is free, `a` is counted, and the update of `b` is in transit; its task still names its blobs.
    run.hear(run.claim("b"))
    run.upload("a")
    (plan,) = by_hand.of(events.PlanRound, run.wait(RETRY_S))
    assert plan.keep == {by_hand.STATE.digest, by_hand.SMALL_MAP.digest, digests["a"], digests["b"]}


def test_aggregated_updates_are_not_kept():
    run = training("a", "b", at_once=2)
    run.upload("a")
    run.plan("c")
    run.upload("b")
    (plan,) = by_hand.of(events.PlanRound, run.tell(events.RoundClosed(1)))
    # `c` is still training.
    assert plan.keep == {by_hand.STATE.digest, by_hand.SMALL_MAP.digest}


# --- while the server is busy ---
def test_devices_continue_while_others_are_planned():
    run = training("a", "b", at_once=3)
    assert run.phase is Phase.PLANNING
    run.hear(by_hand.reply("b"))
    assert run.status("b") is Status.ACCEPTED
    run.hear(death("a"))
    assert by_hand.offers(run.hear(birth("a", session=2))) == ["a"]
    wanted = BlobRequest(federation=by_hand.NAME, device="b", digest=by_hand.STATE.digest, first=0, count=1)
    assert len(run.hear(wanted)) == 1


def test_an_upload_that_is_claimed_during_a_planning_begins_after_it():
    # The planning deletes all blobs that it does not know to be in use.
    run = training("a", "b", at_once=3)
    assert run.phase is Phase.PLANNING
    assert run.hear(by_hand.update("a")) == []
    assert run.tell(by_hand.chunks("a")[0]) == []
    assert by_hand.request("a") in run.plan("c")


def test_an_upload_in_progress_continues_during_a_planning():
    run = training()
    run.hear(by_hand.update("a"))
    run.hear(birth("d"))
    run.upload("b")
    assert run.phase is Phase.PLANNING
    for event in by_hand.chunks("a"):
        commands = run.tell(event)
    assert events.CheckUpdate("a", by_hand.update("a")) in commands
    assert run.tell(events.UpdateChecked("a", by_hand.update("a").blob.digest)) == [
        by_hand.ack("a", by_hand.update("a").blob.digest)
    ]
    # The buffer is full, and is aggregated as soon as the planning is over.
    (close,) = by_hand.of(events.CloseRound, run.plan("d"))
    assert sorted(close.updates) == ["a", "b"]


def test_updates_that_come_during_an_aggregation_join_the_next():
    run = training()
    run.upload("a")
    run.upload("b")
    assert run.phase is Phase.CLOSING
    assert by_hand.of(events.CloseRound, run.upload("c")) == []
    assert plans(run.tell(events.RoundClosed(1))) == [(2, 2, ["a", "b"], 2)]
    run.plan("a", "b")
    (close,) = by_hand.of(events.CloseRound, run.upload("a"))
    assert (sorted(close.updates), close.staleness) == (["a", "c"], {"a": 0, "c": 1})


def test_nobody_is_planned_during_an_aggregation():
    # The devices must train the model that the aggregation produces.
    run = training()
    run.upload("a")
    run.upload("b")
    assert plans(run.hear(birth("d"))) == []
    assert plans(run.tell(events.RoundClosed(1))) == [(2, 2, ["a", "b", "d"], 2)]


def test_an_update_that_the_server_already_has_is_checked_at_once():
    run = training()
    run.hear(by_hand.update("a"))
    assert run.tell(events.UpdateStored("a")) == [events.CheckUpdate("a", by_hand.update("a"))]


# --- closing ---
def test_a_full_buffer_is_aggregated_and_the_others_continue():
    run = training()
    run.hear(by_hand.reply("c"))
    assert by_hand.of(events.CloseRound, run.upload("a")) == []
    commands = run.upload("b")
    assert commands == [
        by_hand.ack("b", by_hand.update("b").blob.digest),
        events.CloseRound(
            1,
            updates={"a": by_hand.update("a"), "b": by_hand.update("b")},
            selected=("a", "b"),
            dropped=(),
            rejected={},
            staleness={"a": 0, "b": 0},
        ),
    ]
    assert run.status("c") is Status.ACCEPTED


def test_staleness_counts_the_rounds_since_the_task_was_begun():
    run = training()
    for number in (1, 2):
        for device in "ab":
            run.upload(device, number)
        run.tell(events.RoundClosed(number))
        run.plan("a", "b")
    # `c` began in round 1 and counts in round 3.
    run.upload("c")
    (close,) = by_hand.of(events.CloseRound, run.upload("a", 3))
    assert (close.round, close.staleness) == (3, {"a": 0, "c": 2})


def test_a_device_counts_once_per_round():
    run = training("a", size=3, at_once=1)
    run.upload("a")
    run.plan("b")
    assert plans(run.upload("b")) == [(1, 3, ["c"], 1)]
    again = by_hand.ack("a", by_hand.update("a").blob.digest)
    assert run.hear(by_hand.update("a")) == [again]
    assert run.federation.updates.keys() == {"a", "b"}


def test_losses_since_the_last_aggregation_are_reported_with_the_next():
    run = training(size=1)
    run.upload("a", reason=Reason.NOT_FINITE)
    decline(run, "b")
    (close,) = by_hand.of(events.CloseRound, run.upload("c"))
    assert (close.selected, close.dropped) == (("a", "b", "c"), ("b",))
    assert close.rejected["a"][0] is Reason.NOT_FINITE
    assert plans(run.tell(events.RoundClosed(1))) == [(2, 2, ["a", "b", "c"], 3)]


@pytest.mark.parametrize("lose", [decline, lambda run, d: run.upload(d, reason=Reason.NOT_FINITE)])
def test_a_device_whose_task_was_lost_waits_for_the_next_round(lose):
    run = training(size=2)
    assert plans(lose(run, "a")) == []
    assert plans(run.wait(50)) == []
    run.upload("b")
    run.upload("c")
    assert plans(run.tell(events.RoundClosed(1))) == [(2, 2, ["a", "b", "c"], 3)]


# --- too old ---
def test_a_task_that_would_be_too_old_for_the_next_round_is_given_up():
    run = training(lag=1)
    for number in (1, 2):
        for device in "ab":
            run.upload(device, number)
        if number == 1:
            run.tell(events.RoundClosed(1))
            run.plan("a", "b")
    (close,) = by_hand.of(events.CloseRound, run.log[-1:])
    # In round 3, the task of round 1 is 2 rounds behind.
    assert (close.round, close.dropped) == (2, ("c",))
    assert by_hand.refusals(run.hear(by_hand.update("c"))) == [("c", Reason.STALE_ROUND)]
    assert plans(run.tell(events.RoundClosed(2))) == [(3, 3, ["a", "b", "c"], 3)]
    run.plan("a", "b", "c")
    assert by_hand.refusals(run.hear(by_hand.update("c"))) == [("c", Reason.STALE_ROUND)]
    assert run.status("c") is Status.OFFERED


def test_a_verdict_on_an_outdated_update_is_ignored():
    run = training(lag=0)
    run.hear(by_hand.update("c"))
    for event in by_hand.chunks("c"):
        run.tell(event)
    run.upload("a")
    (close,) = by_hand.of(events.CloseRound, run.upload("b"))
    assert close.dropped == ("c",)
    assert run.tell(events.UpdateChecked("c", by_hand.update("c").blob.digest)) == []
    assert run.federation.updates == {}


def test_the_announcement_tells_devices_which_tasks_are_no_longer_wanted():
    run = training(lag=1)
    messages = []
    for number in (1, 2):
        for device in "ab":
            run.upload(device, number)
        commands = run.tell(events.RoundClosed(number))
        messages += [command.message for command in commands if hasattr(command, "message")]
        run.plan("a", "b")
    common = {"federation": by_hand.NAME, "run": "run-1", "rounds": 9, "phase": "training"}
    assert messages == [
        RoundAnnouncement(**common, round=2, oldest=1, selected=1),
        RoundAnnouncement(**common, round=3, oldest=2, selected=0),
    ]


def test_each_device_has_its_own_deadline():
    run = training("a", at_once=1, deadline_s=100.0)
    run.now = 60.0
    run.upload("a")
    run.plan("b")
    assert run.federation.deadline == 160.0
    run.wait(40)
    assert run.status("b") is Status.OFFERED
    assert plans(run.wait(60)) == [(1, 3, ["c"], 1)]
    assert run.status("b") is Status.MISSED


# --- when the buffer cannot be filled ---
def test_a_buffer_that_no_device_can_fill_is_aggregated_as_it_is():
    run = training(size=3, rejoin_s=5)
    run.hear(death("c"))
    run.upload("a")
    assert by_hand.of(events.CloseRound, run.upload("b")) == []
    (close,) = by_hand.of(events.CloseRound, run.wait(5))
    assert (sorted(close.updates), close.dropped) == (["a", "b"], ("c",))


def test_with_too_few_updates_the_lost_devices_are_planned_again_after_a_pause():
    run = training(size=3, min_clients=2)
    run.upload("a")
    decline(run, "b")
    commands = decline(run, "c")
    assert by_hand.of(events.Note, commands)[-1].detail == "round 1: 1 of 3 updates and nobody at work"
    assert by_hand.announced(commands) == ["waiting"]
    assert plans(run.wait(RETRY_S - 0.1)) == []
    assert plans(run.wait(0.1)) == [(1, 2, ["b", "c"], 2)]
    run.plan("b", "c")
    run.upload("b")
    # The update from before the pause still counts.
    (close,) = by_hand.of(events.CloseRound, run.upload("c"))
    assert sorted(close.updates) == ["a", "b", "c"]


def test_a_round_in_which_all_tasks_fail_is_finally_given_up():
    run = training("a", at_once=1, attempts=1, size=1, min_clients=1)
    for _ in range(2):
        decline(run, "a")
        run.plan("b")
        decline(run, "b")
        run.plan("c")
        commands = decline(run, "c")
        if run.phase is Phase.WAITING:
            run.wait(RETRY_S)
            run.plan("a")
    assert [end.outcome for end in by_hand.of(events.EndRun, commands)] == ["failed"]


def test_with_too_few_devices_the_run_waits_for_them():
    run = training("a", size=3, at_once=1, min_clients=2, rejoin_s=5)
    run.hear(death("b"))
    run.hear(death("c"))
    commands = run.upload("a")
    assert (by_hand.announced(commands), by_hand.of(events.Note, commands)) == (["waiting"], [])
    assert plans(run.wait(100)) == []
    assert plans(run.hear(birth("b", session=2))) == [(1, 2, ["b"], 1)]


# --- the end ---
@pytest.mark.parametrize("deliver", [True, False])
def test_the_last_aggregation_ends_all_work(deliver):
    run = training(rounds=1, deliver=deliver)
    run.upload("a")
    (close,) = by_hand.of(events.CloseRound, run.upload("b"))
    assert close.dropped == ("c",)
    assert by_hand.refusals(run.hear(by_hand.update("c"))) == [("c", Reason.STALE_ROUND)]
    commands = run.tell(events.RoundClosed(1))
    if not deliver:
        assert by_hand.of(events.EndRun, commands) == [events.EndRun("finished")]
        return
    (plan,) = by_hand.of(events.PlanRound, commands)
    assert (plan.deliver, plan.attempt, run.phase) == (True, 2, Phase.DELIVERING)
    assert by_hand.offers(run.plan("a", "b", "c", deliver=True)) == ["a", "b", "c"]


@pytest.mark.parametrize("number", [0, 2])
def test_the_end_of_another_rounds_aggregation_is_ignored(number):
    run = training()
    run.upload("a")
    run.upload("b")
    assert run.tell(events.RoundClosed(number)) == []
    assert run.phase is Phase.CLOSING
