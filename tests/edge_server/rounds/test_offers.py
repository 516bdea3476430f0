"""A task is offered until it is answered, and its blobs are sent on request."""

import pytest

from edge_server.rounds.events import Note, Send, SendChunks
from edge_server.rounds.participant import CHECK_UP_S, OFFER_PATIENCE_S, Status
from schemas.errors import Reason
from schemas.messages import Acknowledgement, BlobRequest, Refusal
from tests.edge_server.rounds import by_hand
from tests.edge_server.rounds.by_hand import training
from tests.edge_server.rounds.test_fleet import death


def test_every_selected_device_is_offered_its_task_with_its_inline_blobs():
    run = by_hand.started("a", "b", start_clients=2)
    commands = run.plan("a", "b")
    assert by_hand.announced(commands) == ["training"]
    assert by_hand.offers(commands) == ["a", "b"]
    assert by_hand.of(Send, commands)[0].message.deadline_s == 100.0
    assert SendChunks("a", by_hand.SMALL_MAP, 0, 1) in commands
    assert by_hand.of(SendChunks, commands) == [SendChunks(d, by_hand.SMALL_MAP, 0, 1) for d in "ab"]


def test_an_offer_is_repeated_until_it_is_answered_with_the_time_that_is_left():
    run = training("a")
    assert run.wait(OFFER_PATIENCE_S - 0.1) == []
    (again,) = run.wait(0.1)
    assert again.message.deadline_s == 100.0 - OFFER_PATIENCE_S
    assert by_hand.offers(run.wait(OFFER_PATIENCE_S)) == ["a"]


def test_an_offer_that_was_answered_is_not_repeated_before_the_check_up():
    run = training("a", "b")
    run.hear(by_hand.reply("a"))
    assert by_hand.offers(run.wait(OFFER_PATIENCE_S)) == ["b"]
    run.hear(by_hand.reply("b"))
    assert by_hand.offers(run.wait(CHECK_UP_S - OFFER_PATIENCE_S - 0.1)) == []
    assert by_hand.offers(run.wait(0.1)) == ["a"]


def test_a_device_that_has_accepted_is_checked_up_on_periodically():
    # It may have lost its task in an unnoticed restart and would stay silent until the deadline.
    run = training("a")
    run.hear(by_hand.reply("a"))
    assert by_hand.offers(run.wait(CHECK_UP_S)) == ["a"]
    for _ in range(2):
        run.hear(by_hand.reply("a"))
        assert run.status("a") is Status.ACCEPTED
        assert run.wait(CHECK_UP_S - 0.1) == []
        assert by_hand.offers(run.wait(0.1)) == ["a"]


@pytest.mark.parametrize("accepted", [False, True])
def test_inline_blobs_are_sent_with_the_first_offer_only(accepted):
    # A device that lacks them requests them.
    run = training("a")
    if accepted:
        run.hear(by_hand.reply("a"))
    later = run.wait(CHECK_UP_S)
    assert (by_hand.offers(later), by_hand.of(SendChunks, later)) == (["a"], [])


@pytest.mark.parametrize("away", [True, False])
def test_a_device_that_uploads_or_is_away_is_not_checked_up_on(away):
    run = training("a", rejoin_s=90)
    run.hear(by_hand.reply("a"))
    run.hear(death("a") if away else by_hand.update("a"))
    assert by_hand.offers(run.wait(CHECK_UP_S + OFFER_PATIENCE_S)) == []


def test_nothing_is_offered_to_a_device_that_is_away():
    run = training("a", "b", rejoin_s=50)
    run.hear(death("a"))
    assert by_hand.offers(run.wait(OFFER_PATIENCE_S)) == ["b"]


def test_a_declined_task_is_acknowledged_and_noted():
    run = training("a", "b")
    commands = run.hear(by_hand.reply("a", accepted=False, reason=Reason.TASK_FAILED, detail="none"))
    assert commands == [by_hand.ack("a", None), Note("declined the task", "a", Reason.TASK_FAILED, "none")]
    assert run.status("a") is Status.DECLINED
    assert run.hear(by_hand.reply("a", accepted=False, reason=Reason.TASK_FAILED)) == [by_hand.ack("a", None)]


@pytest.mark.parametrize("odd", [{"number": 9}, {"attempt": 2}, {"run": "run-0"}])
def test_a_reply_to_another_task_is_acknowledged_but_declines_nothing(odd):
    run = training("a")
    commands = run.hear(by_hand.reply("a", accepted=False, **odd))
    assert [type(command.message) for command in commands] == [Acknowledgement]
    assert commands[0].message.attempt == odd.get("attempt", odd.get("number", 1))
    assert run.status("a") is Status.OFFERED


def test_a_reply_from_a_device_that_was_not_selected_changes_nothing():
    run = training("a")
    before = run.federation
    assert run.hear(by_hand.reply("z")) == []
    assert run.federation == before


# --- blob requests ---
@pytest.mark.parametrize("ref", [by_hand.STATE, by_hand.SMALL_MAP])
def test_a_device_is_sent_the_blobs_of_its_task(ref):
    run = training("a")
    wanted = BlobRequest(federation=by_hand.NAME, device="a", digest=ref.digest, first=1, count=2)
    assert run.hear(wanted) == [SendChunks("a", ref, 1, 2)]


@pytest.mark.parametrize(("device", "digest"), [("a", "0" * 64), ("z", by_hand.STATE.digest)])
def test_requests_for_other_blobs_or_from_other_devices_are_refused(device, digest):
    run = training("a")
    wanted = BlobRequest(federation=by_hand.NAME, device=device, digest=digest, first=0, count=1)
    answer = Refusal(federation=by_hand.NAME, device=device, reason=Reason.UNKNOWN_BLOB, digest=digest)
    assert run.hear(wanted) == [Send(device, answer)]
