"""Devices die, return and join late."""

import pytest

from edge_client.transport.chunk_transfer import PATIENCE_S
from edge_server.rounds.events import CloseRound, Note, PlanRound, RoundClosed, Send
from edge_server.rounds.participant import Status
from schemas.errors import Reason
from schemas.messages import Telemetry
from schemas.values import SkippedFiles
from tests.edge_server.rounds.by_hand import chunks, of, offers, refusals, reply, request, training, update
from tests.edge_server.rounds.test_fleet import birth, death


def test_a_dead_device_delays_a_round_by_no_more_than_rejoin_s():
    run = training("a", "b", rejoin_s=15)
    run.hear(reply("a"))
    run.now = 10.0
    run.hear(death("a"))
    run.upload("b")
    assert of(CloseRound, run.wait(14.9)) == []
    (close,) = of(CloseRound, run.wait(0.1))
    assert close.dropped == ("a",)


def test_a_late_last_will_of_an_older_session_changes_nothing():
    run = training("a", "b")
    run.hear(birth("a", session=5))
    before = run.federation
    assert run.hear(death("a", session=4)) == []
    run.wait(50)
    assert run.federation.fleet == before.fleet
    assert run.status("a") is Status.OFFERED


def test_a_device_that_joins_late_waits_for_the_next_round():
    run = training("a")
    assert run.hear(birth("b")) == []
    assert "b" not in run.federation.participants
    run.upload("a")
    (plan,) = of(PlanRound, run.tell(RoundClosed(1)))
    assert [device.name for device in plan.devices] == ["a", "b"]


@pytest.mark.parametrize("accepted", [False, True])
def test_a_device_that_returns_is_offered_its_task_again_at_once(accepted):
    run = training("a", rejoin_s=50)
    if accepted:
        run.hear(reply("a"))
    run.now = 20.0
    run.hear(death("a"))
    commands = run.hear(birth("a", session=2))
    assert offers(commands) == ["a"]
    assert of(Send, commands)[0].message.deadline_s == 80.0
    assert run.status("a") is Status.OFFERED


def test_a_device_that_returns_before_its_last_will_is_offered_its_task_again():
    run = training("a")
    run.hear(reply("a"))
    assert offers(run.hear(birth("a", session=2))) == ["a"]


def test_a_repeated_birth_offers_nothing():
    run = training("a")
    run.hear(reply("a"))
    assert run.hear(birth("a")) == []
    assert run.hear(birth("a", session=0)) == []


def test_the_upload_of_a_device_that_returns_resumes_where_it_stopped():
    run = training("a", rejoin_s=50)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(death("a"))
    assert run.wait(PATIENCE_S) == []
    commands = run.hear(birth("a", session=2))
    assert request("a", first=1, count=2) in commands
    assert run.status("a") is Status.UPLOADING


def test_a_device_that_is_done_is_offered_nothing_when_it_returns():
    run = training("a", "b")
    run.upload("a")
    run.hear(death("a"))
    assert run.hear(birth("a", session=2)) == []


def test_a_device_that_was_given_up_waits_for_the_next_round():
    run = training("a", "b", rejoin_s=5)
    run.hear(death("a"))
    run.wait(5)
    assert run.status("a") is Status.MISSED
    assert run.hear(birth("a", session=2)) == []


def test_a_device_whose_birth_was_lost_after_its_last_will_is_told_to_repeat_it():
    run = training("a", "b")
    run.hear(death("b"))
    told = run.hear(Telemetry(federation="home", device="b", session=2, phase="idle"))
    assert refusals(told) == [("b", Reason.TOO_MANY_REQUESTS)]
    assert offers(run.hear(birth("b", session=2))) == ["b"]
    assert run.hear(Telemetry(federation="home", device="b", session=2, phase="idle")) == []


def test_broken_files_of_a_device_are_noted_once_until_they_change():
    def with_broken(count, session=1):
        born = birth("b", session=session)
        skipped = SkippedFiles(files=count, of=20, first="a.jpg: empty") if count else None
        return born.model_copy(update={"data": born.data.model_copy(update={"skipped": skipped})})

    run = training("a")
    births = [(1, 1), (1, 1), (1, 2), (3, 2), (1, 1), (0, 2)]
    notes = [of(Note, run.hear(with_broken(count, session))) for count, session in births]
    detail = "of 20 files are broken and left out; the first: a.jpg: empty"
    first, again = (Note("has broken files:", "b", detail=f"{count} {detail}") for count in (1, 3))
    assert notes == [[first], [], [], [again], [], []]
