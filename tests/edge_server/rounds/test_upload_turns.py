"""Who may send its update when not all may at once."""

from edge_client.transport.chunk_transfer import PATIENCE_S
from edge_server.rounds.events import CheckUpdate, UpdateChecked
from edge_server.rounds.participant import Status
from schemas.values import Reason
from tests.edge_server.rounds.by_hand import Run, chunks, request, training, update
from tests.edge_server.rounds.test_fleet import birth, death


def test_no_more_uploads_than_allowed_at_once():
    run = training("a", "b", "c", uploads_at_once=2)
    assert [run.hear(update(device)) for device in "abc"] == [[request("a")], [request("b")], []]
    assert run.status("c") is Status.WAITING
    for event in chunks("a"):
        run.tell(event)
    # One that is being checked still counts as sending.
    assert run.status("c") is Status.WAITING
    assert request("c") in run.tell(UpdateChecked("a", update("a").blob.digest))


def test_the_place_of_a_refused_upload_is_given_on():
    run = training("a", "b", uploads_at_once=1)
    run.hear(update("a"))
    run.hear(update("b"))
    for event in chunks("a"):
        run.tell(event)
    commands = run.tell(UpdateChecked("a", update("a").blob.digest, Reason.NOT_FINITE))
    assert request("b") in commands


def quiet(run: Run, seconds: float) -> list:
    """Time passes in steps of a second, as it does."""
    return [command for _ in range(int(seconds)) for command in run.wait(1)]


# After the last chunk a silent uploader is asked again after 2, 4, 8 and 16 s, then after 30 s, its longest
# patience: at 2, 6, 14 and 30 s. At 60 s that too has run out.
SILENT_S = 60


def test_the_place_of_a_device_that_falls_silent_is_given_on_and_what_it_sent_is_kept():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(update("b"))
    before = quiet(run, SILENT_S - 1)
    assert before == [request("a", first=1, count=2)] * 4
    assert request("b") in run.wait(1)
    assert (run.status("a"), run.status("b")) == (Status.WAITING, Status.UPLOADING)
    for event in chunks("b"):
        run.tell(event)
    # Its turn again: only what is missing is asked for.
    assert request("a", first=1, count=2) in run.tell(UpdateChecked("b", update("b").blob.digest))
    for event in chunks("a")[1:]:
        commands = run.tell(event)
    assert CheckUpdate("a", update("a")) in commands


def test_a_device_that_fell_silent_comes_after_the_others():
    run = training("a", "b", "c", uploads_at_once=1, deadline_s=1000.0)
    for device in "abc":
        run.hear(update(device))
    assert request("b") in quiet(run, SILENT_S)
    for event in chunks("b"):
        run.tell(event)
    commands = run.tell(UpdateChecked("b", update("b").blob.digest))
    assert request("c") in commands
    assert [run.status(device) for device in "abc"] == [Status.WAITING, Status.COUNTED, Status.UPLOADING]


def test_a_device_that_falls_silent_is_asked_again_where_nobody_waits():
    run = training("a", uploads_at_once=1, deadline_s=1000.0)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    quiet(run, SILENT_S - 1)
    assert run.wait(1) == [request("a", first=1, count=2)]
    assert run.status("a") is Status.UPLOADING
    # With its first patience.
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


def test_a_device_that_fell_silent_and_returns_is_asked_when_it_is_its_turn():
    run = training("a", "b", uploads_at_once=1, deadline_s=1000.0, rejoin_s=500)
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    run.hear(update("b"))
    quiet(run, SILENT_S)
    assert run.status("a") is Status.WAITING
    assert request("a", first=1, count=2) not in run.hear(birth("a", session=2))
    for event in chunks("b"):
        run.tell(event)
    assert request("a", first=1, count=2) in run.tell(UpdateChecked("b", update("b").blob.digest))


def test_the_place_of_a_lost_device_is_given_on():
    run = training("a", "b", uploads_at_once=1, rejoin_s=10)
    run.hear(update("a"))
    run.hear(update("b"))
    run.hear(death("a"))
    assert request("b") not in run.wait(9)
    assert request("b") in run.wait(1)
