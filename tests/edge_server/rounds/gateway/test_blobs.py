"""Blobs on their way down: fetched once, handed to all."""

from edge_server.rounds.events import Send
from edge_server.rounds.gateway import events
from schemas.errors import Reason
from schemas.messages import BlobRequest, BroadcastEnd, Refusal, TaskReply
from schemas.tensors.chunks import MAX_BLOB_BYTES, BlobRef
from tests.edge_server.rounds.by_hand import NAME, SMALL_MAP, STATE, assignment, of, reply
from tests.edge_server.rounds.gateway.driven import A, B, Driven, asked, wanted


def test_a_blob_is_fetched_once_and_handed_to_all():
    site = Driven(A, B)
    commands = site.give(A, B)
    assert sorted(asked(commands)) == sorted([(A, STATE.digest), (A, SMALL_MAP.digest)])
    assert of(events.RememberTask, commands)
    assert asked(site.tell(wanted(A)) + site.tell(wanted(B, 0, 1))) == []
    assert of(events.SendChunksBelow, site.fetch()) == [
        *(events.SendChunksBelow(A, STATE, index) for index in range(3)),
        events.SendChunksBelow(B, STATE, 0),
    ]
    assert site.tell(wanted(B, 1, 2)) == [
        events.SendChunksBelow(B, STATE, 1),
        events.SendChunksBelow(B, STATE, 2),
    ]


def test_small_blobs_go_along_with_the_first_offer_of_a_task():
    site = Driven(A)
    site.give(A)
    assert of(events.SendChunksBelow, site.tell(events.BlobVerified(SMALL_MAP.digest, True)))[
        0
    ] == events.SendChunksBelow(A, SMALL_MAP, 0)
    assert not of(events.SendChunksBelow, site.give(A))


def test_a_damaged_blob_is_reported_and_fetched_again():
    site = Driven(A)
    site.give(A)
    commands = site.tell(events.BlobVerified(STATE.digest, False))
    refusal = of(events.SendAbove, commands)[0].message
    assert (refusal.reason, refusal.digest, refusal.device) == (Reason.DIGEST_MISMATCH, STATE.digest, A)
    assert asked(commands) == [(A, STATE.digest)]


def test_a_blob_that_one_device_is_refused_is_requested_for_another():
    site = Driven(A, B)
    site.give(A, B)
    unknown = {"federation": NAME, "device": A, "reason": Reason.UNKNOWN_BLOB, "digest": STATE.digest}
    commands = site.tell(events.MessageForDevice(A, Refusal(**unknown)))
    assert (B, STATE.digest) in asked(commands)
    assert not of(Send, commands)


def test_nothing_is_requested_without_a_connection_and_all_of_it_on_the_next():
    site = Driven(A)
    site.tell(events.CutAbove())
    assert asked(site.give(A)) == []
    assert asked(site.wait(60)) == []
    assert (A, STATE.digest) in asked(site.tell(events.LinkedAbove(2)))


def test_what_is_broadcast_above_is_requested_here():
    site = Driven(A)
    site.give(A, channels={"state": 1})
    above, below = site.tell(events.DeviceSpoke(reply(A, listens=(1,))))
    assert isinstance(above.message, TaskReply)
    assert above.message.listens == ()
    assert isinstance(below.message, BroadcastEnd)
    assert below.message.digests == (STATE.digest,)


def test_a_request_for_another_blob_goes_up():
    site = Driven(A)
    request = BlobRequest(federation=NAME, device=A, digest="0" * 64, first=0, count=1)
    assert site.tell(events.DeviceSpoke(request)) == [events.SendAbove(request, A)]


def test_nothing_of_a_task_beyond_the_bounds_is_fetched_and_its_device_declines_it():
    site = Driven(A)
    blobs = {str(n): BlobRef(digest=f"{n:064x}", size=MAX_BLOB_BYTES, chunk_bytes=1024) for n in range(1800)}
    task = assignment(1, 1).task.model_copy(update={"blobs": blobs})
    assert site.tell(events.MessageForDevice(A, task)) == [Send(A, task)]
    assert site.gateway.fetches == {}
