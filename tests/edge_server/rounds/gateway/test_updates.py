"""Updates of a site's devices: they end at the gateway, and receipts go on."""

from dataclasses import replace

import pytest

from edge_server.rounds.events import ChunkReceived, Send
from edge_server.rounds.gateway import events
from schemas.errors import Reason
from schemas.messages import Acknowledgement, BlobRequest, Refusal, RoundAnnouncement
from schemas.statistics import StatisticsRequest
from schemas.tensors.chunks import Chunk
from tests.edge_server.rounds.by_hand import NAME, RUN, of, ref_of, update
from tests.edge_server.rounds.gateway.driven import A, B, Driven


def test_an_update_ends_here_and_leaves_a_receipt():
    site = Driven(A)
    site.give(A)
    judged = site.upload(A)
    assert site.gateway.pending == {A}
    answer = {"federation": NAME, "device": A, "run": RUN, "attempt": 1, "digest": judged.blob.digest}
    site.tell(events.MessageForDevice(A, Acknowledgement(**answer)))
    assert site.gateway.pending == frozenset()


def test_a_repeated_claim_repeats_the_receipt_and_uploads_nothing():
    site = Driven(A)
    site.give(A)
    judged = site.upload(A)
    assert site.tell(events.DeviceSpoke(update(A), most_bytes=10**6)) == [events.SendAbove(judged, A)]
    assert events.SendAbove(judged, A) in site.tell(events.LinkedAbove(2))


def test_another_update_of_the_same_task_does_not_replace_one_that_may_count():
    site = Driven(A)
    site.give(A)
    judged, other = site.upload(A), update(A, version=1)
    assert site.tell(events.DeviceSpoke(other, most_bytes=10**6)) == [events.SendAbove(judged, A)]
    answer = {"federation": NAME, "device": A, "run": RUN, "attempt": 1, "digest": judged.blob.digest}
    site.tell(events.MessageForDevice(A, Acknowledgement(**answer)))
    assert site.tell(events.DeviceSpoke(other, most_bytes=10**6)) == [events.SendAbove(other, A)]
    assert site.gateway.updates == {A: judged}


def test_another_update_of_the_same_task_takes_the_place_of_a_refused_one():
    site = Driven(A)
    site.give(A)
    known = site.upload(A)
    refusal = Refusal(
        federation=NAME,
        device=A,
        attempt=known.attempt,
        digest=known.blob.digest,
        reason=Reason.STALE_ROUND,
        detail="missed",
    )
    site.tell(events.MessageForDevice(A, refusal))
    other = update(A, 1)
    commands = site.tell(events.DeviceSpoke(other, most_bytes=10**6))
    assert of(events.SendAbove, commands) == []
    assert [told.message.digest for told in of(Send, commands)] == [other.blob.digest]


def test_small_groups_are_given_from_here():
    site, groups = Driven(A), ref_of(b"g" * 3000)
    site.give(A)
    judged = site.upload(A)
    with_groups = judged.model_copy(update={"receipt": judged.receipt.model_copy(update={"groups": groups})})
    site.gateway = replace(site.gateway, updates={A: with_groups})
    request = BlobRequest(federation=NAME, device=A, digest=groups.digest, first=0, count=3)
    assert site.tell(events.MessageForDevice(A, request)) == [events.SendChunksAbove(groups, 0, 3, A)]


def test_an_oversized_update_is_refused_before_it_is_here():
    site = Driven(A)
    site.give(A)
    commands = site.tell(events.DeviceSpoke(update(A), most_bytes=10))
    (told,) = of(events.SendAbove, commands)
    assert told.message.receipt.reason is Reason.OVERSIZED


@pytest.mark.parametrize(
    "task", [{"statistics": StatisticsRequest()}, {"round": 2}], ids=["statistics", "other"]
)
def test_what_cannot_be_summed_passes_whole(task):
    site, claim = Driven(A), update(A)
    site.give(A, **task)
    assert site.tell(events.DeviceSpoke(claim, most_bytes=10**6)) == [events.SendAbove(claim, A)]
    if "statistics" in task:
        chunk = Chunk(claim.blob.digest[:16], 0, b"x")
        assert site.tell(ChunkReceived(A, chunk)) == [events.PassChunkOn(A, chunk)]


def test_only_so_many_devices_upload_at_once():
    site = Driven(A, B)
    site.gateway = replace(site.gateway, terms=site.gateway.terms.model_copy(update={"uploads_at_once": 1}))
    site.give(A, B)
    commands = [c for d in (A, B) for c in site.tell(events.DeviceSpoke(update(d), most_bytes=10**6))]
    assert [c.device for c in of(Send, commands) if isinstance(c.message, BlobRequest)] == [A]


def test_updates_of_rounds_that_are_over_are_forgotten():
    site = Driven(A)
    site.give(A)
    site.upload(A)
    about = {"federation": NAME, "run": RUN, "rounds": 3, "phase": "waiting", "selected": 0}
    site.tell(events.Announced(RoundAnnouncement(**about, round=1)))
    assert site.gateway.updates.keys() == {A}
    assert events.Forget(RUN, 2) in site.tell(events.Announced(RoundAnnouncement(**about, round=2)))
    assert not site.gateway.updates
