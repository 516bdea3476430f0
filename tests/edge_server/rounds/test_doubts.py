"""A device that died together with the broker, whose last will nobody has, costs no later round its time."""

from dataclasses import replace

from edge_server.rounds.events import MessageReceived, Note, PlanRound, Reconnected, RoundClosed, Send
from edge_server.rounds.fleet import PLAN_AFTER_S
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from edge_server.rounds.quarantine import ASK_AT_S, ASKED_AT_ONCE, LOST_AFTER_S
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, Telemetry
from tests.edge_server.rounds.by_hand import NAME, Run, of, started
from tests.edge_server.rounds.test_fleet import birth, death

ANSWER = {"federation": NAME, "reason": Reason.UNKNOWN_BLOB, "digest": "0" * 64}


def a_run(*devices: str, **rules) -> Run:
    """A run in which these devices have connected, and whose broker has been restarted since."""
    run = started(**rules)
    for device in devices:
        run.hear(birth(device))
    run.tell(Reconnected())
    return run


def asked(commands: list) -> list[str]:
    return [command.device for command in of(Send, commands) if isinstance(command.message, BlobRequest)]


def planned(commands: list) -> list[str]:
    (plan,) = of(PlanRound, commands)
    return [device.name for device in plan.devices]


def test_only_devices_that_have_answered_since_the_reconnect_are_planned():
    run = a_run("a", "dead", start_clients=1)
    run.federation = replace(run.federation, phase=Phase.WAITING)
    assert asked(run.wait(0.25)) == ["a", "dead"]
    assert not of(PlanRound, run.hear(Refusal(device="a", **ANSWER)))
    assert planned(run.wait(PLAN_AFTER_S)) == ["a"]


def test_a_planning_does_not_wait_once_all_have_spoken():
    run = a_run("a", "b", start_clients=1)
    run.federation = replace(run.federation, phase=Phase.WAITING)
    run.hear(birth("a", session=2))
    idle = Telemetry(federation=NAME, device="b", session=1, phase="idle")
    assert planned(run.hear(idle)) == ["a", "b"]


def test_a_silent_device_is_asked_again_and_then_lost():
    run = a_run("dead")
    times = 0
    while run.now < LOST_AFTER_S - 0.25:
        times += len(asked(run.wait(0.25)))
    assert times == len(ASK_AT_S)
    assert run.federation.fleet.devices["dead"].alive
    run.wait(0.25)
    assert not run.federation.fleet.devices["dead"].alive
    assert [note.what for note in of(Note, run.log)][-1] == "lost"
    assert not run.federation.fleet.doubts


def test_a_lost_device_that_was_only_slow_is_asked_for_its_birth_and_returns():
    run = a_run("slow")
    run.wait(LOST_AFTER_S)
    (told,) = of(Send, run.hear(Telemetry(federation=NAME, device="slow", session=1, phase="idle")))
    assert told.message.reason is Reason.TOO_MANY_REQUESTS
    run.hear(birth("slow"))
    assert [device.name for device in run.federation.fleet.able()] == ["slow"]


def test_a_retained_birth_is_believed_only_after_an_answer():
    """A restarted server hears of a lost device what the broker has kept of it."""
    run = started()
    run.hear(birth("dead"))
    run.hear(death("dead"))
    run.tell(MessageReceived(birth("dead"), retained=True))
    assert not run.federation.fleet.able()
    run.hear(Refusal(device="dead", **ANSWER))
    assert run.federation.fleet.able()


def test_the_retained_birth_of_a_device_that_has_answered_raises_no_doubt():
    run = a_run("a")
    run.hear(Refusal(device="a", **ANSWER))
    run.tell(MessageReceived(birth("a"), retained=True))
    assert run.federation.fleet.able()


def test_a_whole_fleet_is_asked_in_portions():
    run = a_run(*(f"d{number}" for number in range(ASKED_AT_ONCE + 1)))
    assert len(asked(run.wait(0.25))) == ASKED_AT_ONCE
    assert len(asked(run.wait(0.25))) == 1


def test_a_device_that_answers_no_offer_of_two_rounds_is_lost_and_the_third_does_not_wait():
    run = started(deadline_s=100.0, quorum=0.5, rounds=5, deliver=False)
    for device in ("a", "dead"):
        run.hear(birth(device))
    for number in (1, 2):
        run.plan("a", "dead")
        run.upload("a")
        run.wait(100.0)
        assert run.phase is Phase.CLOSING
        commands = run.tell(RoundClosed(number))
    assert planned(commands) == ["a"]


def test_a_slow_device_that_speaks_stays():
    run = started(deadline_s=100.0, quorum=0.5, rounds=5, deliver=False)
    for device in ("a", "slow"):
        run.hear(birth(device))
    for number in (1, 2, 3):
        run.plan("a", "slow")
        run.upload("a")
        run.hear(Telemetry(federation=NAME, device="slow", session=1, phase="training"))
        run.wait(100.0)
        assert run.federation.fleet.devices["slow"].alive
        assert planned(run.tell(RoundClosed(number))) == ["a", "slow"]


def test_a_task_survives_the_doubt():
    run = started(deadline_s=100.0)
    run.hear(birth("a"))
    run.plan("a")
    run.tell(Reconnected())
    run.wait(60.0)
    run.hear(birth("a", session=2))
    assert run.status("a") is Status.OFFERED
    run.upload("a")
    assert run.phase is Phase.CLOSING
