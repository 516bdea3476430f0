"""Which devices may upload when not all may upload at once."""

import string

from edge_client.transport.chunk_transfer import PATIENCE_S
from edge_server.rounds.events import CheckUpdate, UpdateChecked
from edge_server.rounds.machine import CHECKS_PER_UPLOAD
from edge_server.rounds.participant import Status
from tests.edge_server.rounds.by_hand import Run, chunks, request, training, update
from tests.edge_server.rounds.test_fleet import birth, death


def sent(run: Run, device: str) -> list:
    """The device sends all chunks; returns the commands of the last."""
    return [run.tell(event) for event in chunks(device)][-1]


def test_no_more_uploads_than_allowed_at_once():
    run = training("a", "b", "c", uploads_at_once=2)
    assert [run.hear(update(device)) for device in "abc"] == [[request("a")], [request("b")], []]
    assert run.status("c") is Status.WAITING
    assert request("c") in sent(run, "a")


def test_updates_that_wait_for_their_checks_hold_uploads_up():
    names = string.ascii_lowercase[: CHECKS_PER_UPLOAD + 1]
    run = training(*names, uploads_at_once=1)
    for name in names:
        run.hear(update(name))
    for name in names[:-1]:
        sent(run, name)
    assert run.status(names[-1]) is Status.WAITING
    assert request(names[-1]) in run.tell(UpdateChecked(names[0], update(names[0]).blob.digest))


def quiet(run: Run, seconds: float) -> list:
    """Let time pass in steps of one second, and return all commands."""
    return [command for _ in range(int(seconds)) for command in run.wait(1)]


# After the last chunk, a silent device is asked again after pauses of 2, 4, 8 and 16 s: at 2, 6, 14 and 30 s.
# The last and longest pause of 30 s ends at 60 s.
SILENT_S = 60


def test_a_silent_device_loses_its_place_and_its_chunks_are_kept():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(update("b"))
    before = quiet(run, SILENT_S - 1)
    assert before == [request("a", first=1, count=2)] * 4
    assert request("b") in run.wait(1)
    assert (run.status("a"), run.status("b")) == (Status.WAITING, Status.UPLOADING)
    # On its next turn, only the missing chunks are requested.
    assert request("a", first=1, count=2) in sent(run, "b")
    for event in chunks("a")[1:]:
        commands = run.tell(event)
    assert CheckUpdate("a", update("a")) in commands


def test_a_device_that_fell_silent_comes_after_the_others():
    run = training("a", "b", "c", uploads_at_once=1, deadline_s=1000.0)
    for device in "abc":
        run.hear(update(device))
    assert request("b") in quiet(run, SILENT_S)
    assert request("c") in sent(run, "b")
    assert [run.status(device) for device in "abc"] == [Status.WAITING, Status.CHECKING, Status.UPLOADING]


def test_a_silent_device_is_asked_again_if_no_other_device_waits():
    run = training("a", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    quiet(run, SILENT_S - 1)
    assert run.wait(1) == [request("a", first=1, count=2)]
    assert run.status("a") is Status.UPLOADING
    # The next pause is the shortest one again.
    assert run.wait(PATIENCE_S) == [request("a", first=1, count=2)]


def test_a_device_that_sends_a_chunk_now_and_then_keeps_its_place():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.hear(update("b"))
    for event in chunks("a")[:2]:
        quiet(run, SILENT_S - 1)
        run.tell(event)
    quiet(run, SILENT_S - 1)
    assert run.status("a") is Status.UPLOADING
    assert run.status("b") is Status.WAITING


def test_a_device_that_fell_silent_and_returns_is_asked_on_its_next_turn():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0, rejoin_s=500)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(update("b"))
    quiet(run, SILENT_S)
    assert run.status("a") is Status.WAITING
    assert request("a", first=1, count=2) not in run.hear(birth("a", session=2))
    assert request("a", first=1, count=2) in sent(run, "b")


def test_the_place_of_a_lost_device_goes_to_the_next_device():
    run = training("a", "b", uploads_at_once=1, rejoin_s=10)
    run.hear(update("a"))
    run.hear(update("b"))
    run.hear(death("a"))
    assert request("b") not in run.wait(9)
    assert request("b") in run.wait(1)
