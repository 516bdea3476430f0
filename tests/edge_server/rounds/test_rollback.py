"""The round machine replaces a model that no device can train by the previous model."""

import pytest

from edge_server.rounds.events import EndRun, Note, PlanRound, RollBack, RolledBack, RoundClosed
from edge_server.rounds.machine import Buffering, Phase
from edge_server.rounds.reputation import ReputationRules
from edge_server.rounds.rollback import TRIES
from schemas.errors import Reason
from tests.edge_server.rounds.by_hand import Run, announced, delivery, of, refusals, reply, started

NAN = Reason.NOT_FINITE


def second_round(*devices: str, **rules) -> Run:
    """A run whose round one is closed and whose round two is planned with all devices."""
    run = started(*devices, **{"rounds": 9, "start_clients": len(devices), **rules})
    run.plan(*devices)
    for device in devices:
        run.upload(device)
    run.tell(RoundClosed(1))
    run.plan(*devices)
    return run


def fail(run: Run, *devices: str) -> list:
    """These devices' updates are refused as not finite; then the pause before the next attempt passes."""
    commands = []
    for device in devices:
        commands += run.upload(device, reason=NAN)
    return commands + run.wait(60)


def failed_twice(*devices: str, **rules) -> tuple[Run, RollBack]:
    run = second_round(*devices, **rules)
    assert of(RollBack, fail(run, *devices)) == []
    run.plan(*devices)
    (command,) = of(RollBack, fail(run, *devices))
    return run, command


def asked(commands: list) -> list[str]:
    return [device.name for plan in of(PlanRound, commands) for device in plan.devices]


def test_the_previous_round_is_undone_once_training_has_failed_twice():
    run, command = failed_twice("a", "b", "c")
    assert (command.undone, command.able, command.fewest) == (1, ("a", "b", "c"), 1)
    assert "round 2: 0 of 3 updates" in command.why
    assert run.phase is Phase.CLOSING
    assert TRIES == 2


def test_nothing_is_planned_until_the_earlier_model_is_restored():
    run, command = failed_twice("a", "b", "c")
    assert of(PlanRound, run.wait(100)) == []
    commands = run.tell(RolledBack(command, ("c",))) + run.wait(1)
    (plan,) = of(PlanRound, commands)
    assert plan.round == 2
    assert asked(commands) == ["a", "b"]


def test_an_excluded_device_is_notified_and_returns_after_the_quarantine():
    run, command = failed_twice("a", "b", "c", reputation=ReputationRules(after=0, rounds=2))
    commands = run.tell(RolledBack(command, ("c",))) + run.wait(1)
    assert refusals(commands) == [("c", Reason.QUARANTINED)]
    notes = of(Note, commands)
    assert "round 1 is undone" in notes[0].what
    assert "c" in notes[0].detail
    for number in (2, 3, 4):
        run.plan("a", "b")
        for device in ("a", "b"):
            run.upload(device)
        commands = run.tell(RoundClosed(number))
        assert asked(commands) == (["a", "b"] if number < 4 else ["a", "b", "c"])


def test_refusals_caused_by_the_bad_model_count_against_nobody():
    run = second_round("a", "b", reputation=ReputationRules(after=1, rounds=5))
    # One refusal leads to quarantine here, so no device is left for a second attempt.
    (command,) = of(RollBack, fail(run, "a", "b"))
    assert command.forgiven == (("a", 2), ("b", 2))
    assert command.able == ("a", "b")
    assert asked(run.tell(RolledBack(command, ("b",)))) == ["a"]


def test_the_run_fails_if_a_rollback_does_not_help():
    run, command = failed_twice("a", "b", "c", attempts=1)
    run.tell(RolledBack(command, ("c",)))
    for _ in range(2):
        run.wait(60)
        run.plan("a", "b")
        commands = fail(run, "a", "b")
    assert of(RollBack, commands) == []
    (ended,) = of(EndRun, commands)
    assert ended.outcome == "failed"
    assert "going back to the model before round 1 did not help" in ended.detail


def test_a_second_rollback_in_a_row_excludes_other_devices_and_there_is_no_third():
    run, command = failed_twice("a", "b", "c", attempts=3)
    run.tell(RolledBack(command, ("c",)))
    run.wait(60)
    run.plan("a", "b")
    for device in ("a", "b"):
        run.upload(device)
    run.tell(RoundClosed(2))
    commands = []
    for _ in range(2):
        run.plan("a", "b")
        commands = fail(run, "a", "b")
    (second,) = of(RollBack, commands)
    # A device whose exclusion did not help may take part again.
    assert (second.undone, second.able) == (2, ("a", "b", "c"))
    assert ("c", 2) in second.forgiven
    assert asked(run.tell(RolledBack(second, ("a", "b")))) == ["c"]
    run.plan("c")
    run.upload("c")
    run.tell(RoundClosed(3))
    commands = []
    for _ in range(4):
        run.plan("c")
        commands += fail(run, "c")
    assert of(RollBack, commands) == []
    assert [end.outcome for end in of(EndRun, commands)] == ["failed"]


def test_absent_devices_cause_no_rollback():
    run = second_round("a", "b", "c", attempts=2, deadline_s=50.0)
    commands = []
    for _ in range(3):
        run.upload("a", reason=NAN)
        commands += run.wait(51) + run.wait(60)
        if run.phase is Phase.PLANNING:
            run.plan("a", "b", "c")
    assert of(RollBack, commands) == []
    assert [end.outcome for end in of(EndRun, commands)] == ["failed"]


@pytest.mark.parametrize("reason", [Reason.UNTRUSTED, Reason.INCOMPATIBLE, Reason.NO_SPACE])
def test_devices_that_decline_the_task_cause_no_rollback(reason: Reason):
    run = second_round("a", "b", attempts=1)
    commands = []
    for _ in range(2):
        attempt = run.federation.attempt
        for device in ("a", "b"):
            commands += run.hear(reply(device, 2, attempt, accepted=False, reason=reason))
        commands += run.wait(60)
        if run.phase is Phase.PLANNING:
            run.plan("a", "b")
    assert of(RollBack, commands) == []


def test_a_failed_first_round_causes_no_rollback():
    run = started("a", "b", rounds=3, start_clients=2, attempts=2)
    commands = []
    for _ in range(3):
        run.plan("a", "b")
        commands += fail(run, "a", "b")
    assert of(RollBack, commands) == []
    assert [end.outcome for end in of(EndRun, commands)] == ["failed"]


def test_without_roll_back_the_run_fails_at_once():
    run = second_round("a", "b", attempts=1, roll_back=False)
    commands = []
    for _ in range(2):
        commands += fail(run, "a", "b")
        if run.phase is Phase.PLANNING:
            run.plan("a", "b")
    assert of(RollBack, commands) == []
    assert [end.outcome for end in of(EndRun, commands)] == ["failed"]


def test_a_diverged_model_is_undone_before_any_device_trains_it():
    run = started("a", "b", rounds=9, start_clients=2)
    run.plan("a", "b")
    for device in ("a", "b"):
        run.upload(device)
    commands = run.tell(RoundClosed(1, diverged=True))
    (command,) = of(RollBack, commands)
    assert of(PlanRound, commands) == []
    (plan,) = of(PlanRound, run.tell(RolledBack(command, ("b",))))
    assert (plan.round, [device.name for device in plan.devices]) == (2, ["a"])


def test_if_the_last_round_diverged_the_previous_model_is_delivered():
    run = started("a", "b", rounds=1, start_clients=2)
    run.plan("a", "b")
    for device in ("a", "b"):
        run.upload(device)
    (command,) = of(RollBack, run.tell(RoundClosed(1, diverged=True)))
    (plan,) = of(PlanRound, run.tell(RolledBack(command, ("b",))))
    assert plan.deliver
    run.plan("a", "b", deliver=True)
    for device in ("a", "b"):
        commands = run.hear(delivery(device))
    assert [end.outcome for end in of(EndRun, commands)] == ["finished"]


def test_without_the_earlier_model_the_run_fails_with_the_reason():
    run, command = failed_twice("a", "b")
    (ended,) = of(EndRun, run.tell(RolledBack(command, failed="it is not there")))
    assert ended.outcome == "failed"
    assert "it is not there" in ended.detail


def test_buffered_rounds_are_rolled_back_too():
    run = started("a", "b", buffering=Buffering(2, concurrency=2), rounds=9, attempts=5)
    run.plan("a", "b")
    for device in ("a", "b"):
        run.upload(device)
    run.tell(RoundClosed(1))
    commands = []
    for _ in range(TRIES):
        run.plan("a", "b")
        commands = fail(run, "a", "b")
    (command,) = of(RollBack, commands)
    commands = run.tell(RolledBack(command, ("b",)))
    assert announced(commands)
    assert asked(commands + run.wait(60)) == ["a"]
