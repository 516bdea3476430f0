"""A device that only sends a birth gets no place in the fleet or in a round, and displaces no other."""

from dataclasses import replace

import pytest

from edge_server.rounds import newcomers as fresh
from edge_server.rounds.events import Note, PlanRound, Send
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.machine import Phase
from edge_server.rounds.newcomers import ASK_AT_S, FORGET_S, NOTE_EVERY_S, SOON_S, Newcomers
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, Telemetry
from tests.edge_server.rounds.by_hand import NAME, Run, of, refusals, started
from tests.edge_server.rounds.test_fleet import birth, death

FLOOD = 5000


def doubting(most: int = 200, devices: int = 50, **rules) -> Run:
    """A run that accepts no device before it answers, with low limits."""
    run = started(**rules)
    fleet = Fleet(most=devices, newcomers=Newcomers("secret", most=most))
    run.federation = replace(run.federation, fleet=fleet)
    return run


def asked(commands: list) -> list[str]:
    """The devices that are asked for a blob that nobody has."""
    return [command.device for command in of(Send, commands) if isinstance(command.message, BlobRequest)]


def answer(run: Run, device: str, digest: str = "") -> list:
    assert run.federation.fleet.newcomers is not None
    digest = digest or run.federation.fleet.newcomers.question(device)
    return run.hear(Refusal(federation=NAME, device=device, reason=Reason.UNKNOWN_BLOB, digest=digest))


def flood(run: Run, count: int = FLOOD) -> None:
    for index in range(count):
        run.hear(birth(f"made-up-{index}"))


def test_a_device_is_planned_once_it_has_answered() -> None:
    run = doubting(start_clients=1)
    assert asked(run.hear(birth("pi"))) == ["pi"]
    assert run.phase is Phase.WAITING
    (plan,) = of(PlanRound, answer(run, "pi"))
    assert [device.name for device in plan.devices] == ["pi"]


def test_a_run_of_five_starts_with_the_five_that_answer_after_a_flood_of_births() -> None:
    run = doubting(start_clients=5)
    flood(run)
    assert run.phase is Phase.WAITING
    assert len(run.federation.fleet.devices) == 0
    run.wait(SOON_S)
    honest = [f"pi-{index}" for index in range(5)]
    for device in honest:
        assert asked(run.hear(birth(device))) == [device]
    for device in honest:
        commands = answer(run, device)
    (plan,) = of(PlanRound, commands)
    assert [device.name for device in plan.devices] == honest


def test_births_are_accepted_at_a_limited_rate_and_the_others_are_refused() -> None:
    run = doubting(most=10)
    turns = [run.hear(birth(f"d{index}")) for index in range(11)]
    assert [asked(commands) for commands in turns[:10]] == [[f"d{index}"] for index in range(10)]
    assert refusals(turns[10]) == [("d10", Reason.TOO_MANY_REQUESTS)]
    run.wait(SOON_S)
    assert asked(run.hear(birth("d10"))) == ["d10"]


def test_a_newcomer_that_never_answers_is_asked_three_times_and_forgotten() -> None:
    run = doubting()
    run.hear(birth("mute"))
    times = [at for at in range(1, int(FORGET_S)) if asked(run.wait(1.0))]
    assert times == [int(at) for at in ASK_AT_S[1:]]
    (note,) = of(Note, run.wait(1.0))
    assert note.detail == "1 sent a birth and did not answer, the last is mute"
    assert run.federation.fleet.newcomers is not None
    assert run.federation.fleet.newcomers.waiting == {}


def test_forgotten_newcomers_are_noted_at_a_limited_rate() -> None:
    run = doubting()
    for index in range(100):
        run.hear(birth(f"made-up-{index}"))
        run.wait(1.0)
    details = [note.detail for note in of(Note, run.log)]
    assert len(details) == 1 + int((100 - FORGET_S) // NOTE_EVERY_S)


@pytest.mark.parametrize("digest", ["0" * 64, fresh.Newcomers("another").question("pi")])
def test_an_answer_to_another_question_is_ignored(digest: str) -> None:
    run = doubting()
    run.hear(birth("pi"))
    assert answer(run, "pi", digest) == []
    assert "pi" not in run.federation.fleet.devices


def test_only_the_latest_birth_or_death_of_a_newcomer_counts() -> None:
    run = doubting()
    run.hear(birth("pi", session=5))
    run.hear(death("pi", session=4))
    assert asked(run.hear(birth("pi", session=6, examples=60))) == []
    answer(run, "pi")
    assert run.federation.fleet.devices["pi"].data.examples == 60
    run.hear(birth("other"))
    run.hear(death("other"))
    assert answer(run, "other") == []


def test_a_known_device_is_accepted_at_once_when_it_returns() -> None:
    run = doubting()
    run.hear(birth("pi"))
    answer(run, "pi")
    run.hear(death("pi"))
    assert asked(run.hear(birth("pi", session=2))) == []
    assert run.federation.fleet.devices["pi"].alive


def test_in_a_full_fleet_a_newcomer_that_answers_replaces_the_device_lost_longest() -> None:
    run = doubting(devices=3)
    for device in "abc":
        run.hear(birth(device))
        answer(run, device)
    for at, device in enumerate("ba"):
        run.now = float(at)
        run.hear(death(device))
    run.hear(birth("d"))
    answer(run, "d")
    assert set(run.federation.fleet.devices) == {"a", "c", "d"}


def test_a_full_fleet_of_connected_devices_refuses_newcomers() -> None:
    run = doubting(devices=2)
    for device in "ab":
        run.hear(birth(device))
        answer(run, device)
    run.hear(birth("c"))
    assert refusals(answer(run, "c")) == [("c", Reason.NOT_SELECTED)]


def test_an_idle_device_that_was_forgotten_is_told_to_repeat_its_birth() -> None:
    run = doubting()
    run.hear(birth("pi"))
    run.wait(FORGET_S)
    told = run.hear(Telemetry(federation=NAME, device="pi", session=1, phase="idle"))
    assert refusals(told) == [("pi", Reason.TOO_MANY_REQUESTS)]
    assert asked(run.hear(birth("pi"))) == ["pi"]
    assert run.hear(Telemetry(federation=NAME, device="pi", session=1, phase="idle")) == []
