"""An update is fetched, checked and acknowledged."""

import pytest

from edge_client.transport.chunk_transfer import PATIENCE_S
from edge_server.rounds import events
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from schemas.errors import PeerError, Reason
from schemas.messages import BlobRequest, Refusal
from schemas.tensors.chunks import Chunk, digest_of
from tests.edge_server.rounds.by_hand import (
    NAME,
    ack,
    announced,
    answer_of,
    chunks,
    of,
    offers,
    ref_of,
    reply,
    request,
    training,
    update,
)


def test_an_update_is_fetched_checked_and_acknowledged_and_the_round_closes():
    run = training("a")
    run.hear(reply("a"))
    assert run.hear(update("a")) == [request("a")]
    first, second, third = chunks("a")
    assert [type(command) for command in run.tell(second)] == [events.WriteUpdateChunk]
    assert [type(command) for command in run.tell(first)] == [events.WriteUpdateChunk]
    assert [type(command) for command in run.tell(third)] == [events.WriteUpdateChunk, events.CheckUpdate]
    commands = run.tell(events.UpdateChecked("a", update("a").blob.digest))
    assert announced(commands) == ["aggregating"]
    assert [command for command in commands if not isinstance(command, events.Announce)] == [
        ack("a", update("a").blob.digest),
        events.CloseRound(
            1, updates={"a": update("a")}, selected=("a",), dropped=(), rejected={}, staleness={"a": 0}
        ),
    ]
    assert run.phase is Phase.CLOSING


def test_an_update_counts_although_the_offer_was_never_answered():
    run = training("a")
    assert of(events.CloseRound, run.upload("a"))


def test_missing_chunks_of_an_update_are_requested_again():
    run = training("a")
    run.hear(update("a"))
    run.tell(chunks("a")[1])
    assert run.wait(PATIENCE_S) == [request("a", first=0, count=1), request("a", first=2, count=1)]


def test_an_inline_update_is_accepted_without_a_request():
    run = training("a")
    small = update("a", blob=ref_of(b"tiny"))
    assert run.hear(small) == []
    commands = run.tell(events.ChunkReceived("a", Chunk(small.blob.digest[:16], 0, b"tiny")))
    assert [type(command) for command in commands] == [events.WriteUpdateChunk, events.CheckUpdate]


def test_an_inline_update_whose_chunk_came_first_is_requested():
    run = training("a")
    small = update("a", blob=ref_of(b"tiny"))
    assert run.tell(events.ChunkReceived("a", Chunk(small.blob.digest[:16], 0, b"tiny"))) == []
    run.hear(small)
    wanted = BlobRequest(federation=NAME, device="a", digest=small.blob.digest, first=0, count=1)
    assert run.wait(PATIENCE_S) == [events.Send("a", wanted)]


def test_a_chunk_that_does_not_fit_is_refused_and_changes_nothing():
    run = training("a")
    run.hear(update("a"))
    before = run.federation
    with pytest.raises(PeerError):
        run.tell(events.ChunkReceived("a", Chunk(update("a").blob.digest[:16], 0, b"short")))
    assert run.federation == before


def test_a_late_chunk_of_an_earlier_update_is_ignored():
    run = training("a")
    run.hear(update("a"))
    run.hear(update("a", 1))
    assert run.tell(chunks("a")[0]) == []


@pytest.mark.parametrize("device", ["a", "z"])
def test_an_unrequested_chunk_is_ignored(device):
    run = training("a")
    before = run.federation
    assert run.tell(events.ChunkReceived(device, chunks("a")[0].chunk)) == []
    assert run.federation == before


def test_an_update_announced_again_is_not_fetched_twice():
    run = training("a")
    run.hear(update("a"))
    run.tell(chunks("a")[0])
    assert run.hear(update("a")) == []
    run.tell(chunks("a")[1])
    assert [type(command) for command in run.tell(chunks("a")[2])] == [
        events.WriteUpdateChunk,
        events.CheckUpdate,
    ]
    assert run.hear(update("a")) == []


def test_another_update_replaces_one_that_does_not_count_yet():
    run = training("a")
    run.hear(update("a"))
    for event in chunks("a"):
        run.tell(event)
    assert run.hear(update("a", 1)) == [request("a", 1)]
    assert run.tell(events.UpdateChecked("a", update("a").blob.digest)) == []
    for event in chunks("a", 1):
        run.tell(event)
    (close,) = of(events.CloseRound, run.tell(events.UpdateChecked("a", update("a", 1).blob.digest)))
    assert close.updates == {"a": update("a", 1)}


def test_a_device_that_lost_its_update_is_offered_the_task_again():
    run = training("a")
    run.hear(update("a"))
    lost = Refusal(federation=NAME, device="a", reason=Reason.UNKNOWN_BLOB, digest=update("a").blob.digest)
    assert offers(run.hear(lost)) == ["a"]
    assert run.status("a") is Status.OFFERED
    assert run.hear(update("a", 1)) == [request("a", 1)]


@pytest.mark.parametrize(
    "odd",
    [
        {"reason": Reason.MALFORMED, "detail": "what is that"},
        {"reason": Reason.UNKNOWN_BLOB, "digest": digest_of(answer_of("a", 1))},
        {"reason": Reason.UNKNOWN_BLOB, "detail": digest_of(answer_of("a"))},
    ],
)
def test_a_refusal_of_something_else_changes_nothing(odd):
    run = training("a")
    run.hear(update("a"))
    before = run.federation
    assert run.hear(Refusal(federation=NAME, device="a", **odd)) == []
    assert run.federation == before


@pytest.mark.parametrize("at_once", [0, 1], ids=["waiting for its turn", "being fetched"])
def test_an_update_that_the_server_already_has_is_checked_at_once(at_once):
    run = training("a", uploads_at_once=at_once)
    run.hear(update("a"))
    assert run.tell(events.UpdateStored("a")) == [events.CheckUpdate("a", update("a"))]
    assert run.status("a") is Status.CHECKING
    # It is checked once, and nothing more is requested.
    assert run.tell(events.UpdateStored("a")) == []
    assert run.wait(PATIENCE_S) == []
    assert of(events.CloseRound, run.tell(events.UpdateChecked("a", update("a").blob.digest)))


@pytest.mark.parametrize("device", ["a", "z"])
def test_a_stored_update_that_was_not_claimed_changes_nothing(device):
    run = training("a")
    before = run.federation
    assert run.tell(events.UpdateStored(device)) == []
    assert run.federation == before
