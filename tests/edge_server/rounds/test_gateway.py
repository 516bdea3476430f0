"""A gateway's machine, event by event."""

from dataclasses import replace

import pytest

from edge_server.rounds.gateway import machine
from edge_server.rounds.gateway.events import (
    AnnounceBelow,
    Announced,
    BlobVerified,
    ChunkFromAbove,
    ChunkFromBelow,
    CutAbove,
    DeviceSpoke,
    ExamineUpdate,
    Forget,
    LinkedAbove,
    MakeSum,
    MessageForDevice,
    MessageForSite,
    PartVerified,
    PassChunkOn,
    RememberTask,
    SendAbove,
    SendChunksAbove,
    SendChunksBelow,
    SendToDevice,
    SendToSite,
    SiteBelowSpoke,
    SumMade,
    Tick,
    UpdateExamined,
    VerifyBlob,
)
from edge_server.rounds.gateway.state import Gateway
from edge_server.rounds.gateway.sums import ASK_AGAIN_S
from schemas.errors import PeerError
from schemas.messages import (
    Acknowledgement,
    BlobRequest,
    BroadcastEnd,
    Death,
    Refusal,
    RoundAnnouncement,
    SiteBirth,
    SiteDeath,
    SiteReceipt,
    SiteSum,
    SiteTerms,
    SumMember,
    SumRequest,
    TaskReply,
    Telemetry,
    Update,
)
from schemas.statistics import StatisticsRequest
from schemas.tensors.blobs import Chunk
from schemas.values import Reason
from tests.edge_server.rounds.by_hand import (
    CHUNK,
    NAME,
    RUN,
    SMALL_MAP,
    STATE,
    answer_of,
    assignment,
    of,
    ref_of,
    reply,
    update,
)
from tests.edge_server.rounds.test_fleet import birth

SITE, A, B, DEEP = "b", "b.1", "b.2", "b.n.1"
STATE_BYTES = b"s" * 2500


class Driven:
    """A gateway and its clock; `tell` returns the commands."""

    def __init__(self, *devices: str, **more) -> None:
        terms = SiteTerms(federation=NAME, site=SITE, run=RUN, sites=(SITE, "b.n"))
        self.gateway, self.now = Gateway(NAME, SITE, **more), 0.0
        self.tell(LinkedAbove(1))
        self.tell(MessageForSite(terms))
        for device in devices:
            self.tell(DeviceSpoke(birth(device)))

    def tell(self, event) -> list:
        self.gateway, commands = machine.step(self.gateway, event, self.now)
        return commands

    def wait(self, seconds: float) -> list:
        self.now += seconds
        return self.tell(Tick())

    def give(self, *devices: str, number: int = 1, **more) -> list:
        """Tasks of a round from above."""
        task = assignment(number, number, **more).task
        return [command for device in devices for command in self.tell(MessageForDevice(device, task))]

    def fetch(self) -> list:
        """The state arrives from above."""
        commands = []
        for index, at in enumerate(range(0, len(STATE_BYTES), CHUNK)):
            chunk = Chunk(STATE.digest[:16], index, STATE_BYTES[at : at + CHUNK])
            commands += self.tell(ChunkFromAbove(chunk))
        assert of(VerifyBlob, commands) == [VerifyBlob(STATE)]
        return self.tell(BlobVerified(STATE.digest, True))

    def upload(self, device: str, **more) -> Update:
        """An update of a device arrives and is examined."""
        claim, data = update(device, **more), answer_of(device)
        self.tell(DeviceSpoke(claim, most_bytes=10**6))
        commands = []
        for index, at in enumerate(range(0, len(data), CHUNK)):
            commands += self.tell(
                ChunkFromBelow(device, Chunk(claim.blob.digest[:16], index, data[at : at + CHUNK]))
            )
        assert [command.update for command in of(ExamineUpdate, commands)] == [claim]
        judged = claim.model_copy(update={"receipt": SiteReceipt(site=SITE, moved=True)})
        assert SendAbove(judged, device) in self.tell(UpdateExamined(judged))
        return judged


def asked(commands: list) -> list[tuple[str, str]]:
    """The requests for blobs above, as (device, digest)."""
    told = [command.message for command in of(SendAbove, commands)]
    return [(message.device, message.digest) for message in told if isinstance(message, BlobRequest)]


def wanted(device: str, first: int = 0, count: int = 3) -> DeviceSpoke:
    request = {"federation": NAME, "device": device, "digest": STATE.digest, "first": first, "count": count}
    return DeviceSpoke(BlobRequest(**request))


def sum_request(*updates: Update, site: str = SITE) -> SumRequest:
    members = {u.device: SumMember(attempt=u.attempt, digest=u.blob.digest, weight=3) for u in updates}
    return SumRequest(federation=NAME, site=site, run=RUN, round=1, members=members)


# --- what is small passes ---
def test_births_replies_and_telemetry_go_up_and_answers_come_down():
    site, telemetry = Driven(), Telemetry(federation=NAME, device=A, session=1, phase="idle")
    for message in (birth(A), telemetry, reply(A)):
        assert site.tell(DeviceSpoke(message)) == [SendAbove(message, A)]
    answer = Acknowledgement(federation=NAME, device=A, run=RUN, attempt=1)
    assert site.tell(MessageForDevice(A, answer)) == [SendToDevice(A, answer)]


def test_a_connection_above_begins_with_who_is_here():
    site = Driven(A)
    site.tell(CutAbove())
    assert site.tell(DeviceSpoke(birth(B))) == []
    told = [command.message for command in of(SendAbove, site.tell(LinkedAbove(2)))]
    assert told == [SiteBirth(federation=NAME, site=SITE, session=2), birth(A), birth(B)]


def test_a_late_repetition_of_a_birth_does_not_look_like_a_second_device():
    site = Driven()
    first, second = (birth(A).model_copy(update={"instance": name, "session": 7}) for name in "ab")
    later = first.model_copy(update={"session": 8})
    for born in (first, first, second):
        assert site.tell(DeviceSpoke(born)) == [SendAbove(born, A)]
    assert site.tell(DeviceSpoke(first)) == []
    assert site.tell(DeviceSpoke(later)) == [SendAbove(later, A)]


def test_a_birth_that_terms_do_not_answer_is_repeated():
    site = Driven(A)
    born = SendAbove(SiteBirth(federation=NAME, site=SITE, session=1))
    assert born not in site.wait(100)
    announced = RoundAnnouncement(
        federation=NAME, run="run-2", round=1, rounds=2, phase="training", selected=1
    )
    site.tell(Announced(announced))
    assert born in site.wait(1)
    assert born not in site.wait(1)
    site.tell(LinkedAbove(2))
    again = replace(born, message=born.message.model_copy(update={"session": 2}))
    assert again not in site.wait(machine.BORN_AGAIN_S - 1)
    assert again in site.wait(1)


def test_devices_that_are_not_back_after_a_restart_are_reported_as_lost():
    site = Driven(A, before={A: 1, B: 4})
    assert not of(SendAbove, site.wait(10))
    assert site.wait(11) == [SendAbove(Death(federation=NAME, device=B, session=4), B)]
    assert site.wait(30) == []


def test_announcements_are_handed_on():
    site = Driven(A)
    message = RoundAnnouncement(federation=NAME, run=RUN, round=1, rounds=2, phase="training", selected=1)
    assert site.tell(Announced(message)) == [AnnounceBelow(message), Forget(RUN, 1)]


def test_what_a_replaced_server_says_is_refused():
    site = Driven(A)
    about = {"federation": NAME, "run": RUN, "rounds": 3, "phase": "waiting", "selected": 0}
    site.tell(Announced(RoundAnnouncement(**about, round=1, epoch=2)))
    for event in (
        Announced(RoundAnnouncement(**about, round=2)),
        MessageForDevice(A, assignment().task),
        MessageForSite(sum_request(update(A)).model_copy(update={"epoch": 1})),
    ):
        with pytest.raises(PeerError, match="by a server that was replaced"):
            site.tell(event)
    assert site.tell(Announced(RoundAnnouncement(**about, round=2, epoch=2)))


def test_a_server_that_has_taken_over_is_asked_for_its_terms():
    site = Driven(A)
    born = SendAbove(SiteBirth(federation=NAME, site=SITE, session=1))
    about = {"federation": NAME, "run": RUN, "rounds": 3, "phase": "waiting", "selected": 0}
    site.tell(Announced(RoundAnnouncement(**about, round=1, epoch=2)))
    assert born not in site.wait(machine.BORN_AGAIN_S - 1)
    assert born in site.wait(1)
    terms = SiteTerms(federation=NAME, site=SITE, run=RUN, sites=(SITE, "b.n"), epoch=2)
    assert [command.message.epoch for command in of(SendToSite, site.tell(MessageForSite(terms)))] == [2]
    site.tell(Announced(RoundAnnouncement(**about, round=2, epoch=2)))
    assert born not in site.wait(100)


# --- blobs ---
def test_a_blob_is_fetched_once_and_handed_to_all():
    site = Driven(A, B)
    commands = site.give(A, B)
    assert sorted(asked(commands)) == sorted([(A, STATE.digest), (A, SMALL_MAP.digest)])
    assert of(RememberTask, commands)
    assert asked(site.tell(wanted(A)) + site.tell(wanted(B, 0, 1))) == []
    assert of(SendChunksBelow, site.fetch()) == [
        *(SendChunksBelow(A, STATE, index) for index in range(3)),
        SendChunksBelow(B, STATE, 0),
    ]
    assert site.tell(wanted(B, 1, 2)) == [SendChunksBelow(B, STATE, 1), SendChunksBelow(B, STATE, 2)]


def test_small_blobs_go_along_with_the_first_offer_of_a_task():
    site = Driven(A)
    site.give(A)
    assert of(SendChunksBelow, site.tell(BlobVerified(SMALL_MAP.digest, True)))[0] == SendChunksBelow(
        A, SMALL_MAP, 0
    )
    assert not of(SendChunksBelow, site.give(A))


def test_a_damaged_blob_is_reported_and_fetched_again():
    site = Driven(A)
    site.give(A)
    commands = site.tell(BlobVerified(STATE.digest, False))
    refusal = of(SendAbove, commands)[0].message
    assert (refusal.reason, refusal.digest, refusal.device) == (Reason.DIGEST_MISMATCH, STATE.digest, A)
    assert asked(commands) == [(A, STATE.digest)]


def test_a_blob_that_one_device_is_refused_is_requested_for_another():
    site = Driven(A, B)
    site.give(A, B)
    unknown = {"federation": NAME, "device": A, "reason": Reason.UNKNOWN_BLOB, "digest": STATE.digest}
    commands = site.tell(MessageForDevice(A, Refusal(**unknown)))
    assert (B, STATE.digest) in asked(commands)
    assert not of(SendToDevice, commands)


def test_nothing_is_requested_without_a_connection_and_all_of_it_on_the_next():
    site = Driven(A)
    site.tell(CutAbove())
    assert asked(site.give(A)) == []
    assert asked(site.wait(60)) == []
    assert (A, STATE.digest) in asked(site.tell(LinkedAbove(2)))


def test_what_is_broadcast_above_is_requested_here():
    site = Driven(A)
    site.give(A, channels={"state": 1})
    above, below = site.tell(DeviceSpoke(reply(A, listens=(1,))))
    assert isinstance(above.message, TaskReply)
    assert above.message.listens == ()
    assert isinstance(below.message, BroadcastEnd)
    assert below.message.digests == (STATE.digest,)


def test_a_request_for_another_blob_goes_up():
    site = Driven(A)
    request = BlobRequest(federation=NAME, device=A, digest="0" * 64, first=0, count=1)
    assert site.tell(DeviceSpoke(request)) == [SendAbove(request, A)]


# --- updates ---
def test_an_update_ends_here_and_leaves_a_receipt():
    site = Driven(A)
    site.give(A)
    judged = site.upload(A)
    assert site.gateway.pending == {A}
    answer = {"federation": NAME, "device": A, "run": RUN, "attempt": 1, "digest": judged.blob.digest}
    site.tell(MessageForDevice(A, Acknowledgement(**answer)))
    assert site.gateway.pending == frozenset()


def test_a_repeated_claim_repeats_the_receipt_and_uploads_nothing():
    site = Driven(A)
    site.give(A)
    judged = site.upload(A)
    assert site.tell(DeviceSpoke(update(A), most_bytes=10**6)) == [SendAbove(judged, A)]
    assert SendAbove(judged, A) in site.tell(LinkedAbove(2))


def test_another_update_of_the_same_task_does_not_replace_one_that_may_count():
    site = Driven(A)
    site.give(A)
    judged, other = site.upload(A), update(A, version=1)
    assert site.tell(DeviceSpoke(other, most_bytes=10**6)) == [SendAbove(judged, A)]
    answer = {"federation": NAME, "device": A, "run": RUN, "attempt": 1, "digest": judged.blob.digest}
    site.tell(MessageForDevice(A, Acknowledgement(**answer)))
    assert site.tell(DeviceSpoke(other, most_bytes=10**6)) == [SendAbove(other, A)]
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
    site.tell(MessageForDevice(A, refusal))
    other = update(A, 1)
    commands = site.tell(DeviceSpoke(other, most_bytes=10**6))
    assert of(SendAbove, commands) == []
    assert [told.message.digest for told in of(SendToDevice, commands)] == [other.blob.digest]


def test_small_groups_are_given_from_here():
    site, groups = Driven(A), ref_of(b"g" * 3000)
    site.give(A)
    judged = site.upload(A)
    with_groups = judged.model_copy(update={"receipt": judged.receipt.model_copy(update={"groups": groups})})
    site.gateway = replace(site.gateway, updates={A: with_groups})
    request = BlobRequest(federation=NAME, device=A, digest=groups.digest, first=0, count=3)
    assert site.tell(MessageForDevice(A, request)) == [SendChunksAbove(groups, 0, 3, A)]


def test_an_oversized_update_is_refused_before_it_is_here():
    site = Driven(A)
    site.give(A)
    commands = site.tell(DeviceSpoke(update(A), most_bytes=10))
    (told,) = of(SendAbove, commands)
    assert told.message.receipt.reason is Reason.OVERSIZED


@pytest.mark.parametrize(
    "task", [{"statistics": StatisticsRequest()}, {"round": 2}], ids=["statistics", "other"]
)
def test_what_cannot_be_summed_passes_whole(task):
    site, claim = Driven(A), update(A)
    site.give(A, **task)
    assert site.tell(DeviceSpoke(claim, most_bytes=10**6)) == [SendAbove(claim, A)]
    if "statistics" in task:
        chunk = Chunk(claim.blob.digest[:16], 0, b"x")
        assert site.tell(ChunkFromBelow(A, chunk)) == [PassChunkOn(A, chunk)]


def test_only_so_many_devices_upload_at_once():
    site = Driven(A, B)
    site.gateway = replace(site.gateway, terms=site.gateway.terms.model_copy(update={"uploads_at_once": 1}))
    site.give(A, B)
    commands = [c for d in (A, B) for c in site.tell(DeviceSpoke(update(d), most_bytes=10**6))]
    assert [c.device for c in of(SendToDevice, commands) if isinstance(c.message, BlobRequest)] == [A]


def test_updates_of_rounds_that_are_over_are_forgotten():
    site = Driven(A)
    site.give(A)
    site.upload(A)
    about = {"federation": NAME, "run": RUN, "rounds": 3, "phase": "waiting", "selected": 0}
    site.tell(Announced(RoundAnnouncement(**about, round=1)))
    assert site.gateway.updates.keys() == {A}
    assert Forget(RUN, 2) in site.tell(Announced(RoundAnnouncement(**about, round=2)))
    assert not site.gateway.updates


# --- sums ---
def test_the_requested_members_are_added_once_and_the_answer_repeated():
    site = Driven(A, B)
    site.give(A, B)
    updates = [site.upload(device) for device in (A, B)]
    request = sum_request(*updates)
    assert site.tell(MessageForSite(request)) == [MakeSum(request, tuple(updates))]
    assert site.tell(MessageForSite(request)) == []
    (told,) = site.tell(SumMade(request, STATE))
    assert told.message.members == {A: 3, B: 3}
    assert site.tell(MessageForSite(request)) == [told]
    ask = BlobRequest(federation=NAME, device=SITE, digest=STATE.digest, first=0, count=2)
    assert site.tell(MessageForSite(ask)) == [SendChunksAbove(STATE, 0, 2)]


def test_members_that_are_not_here_are_named():
    site = Driven(A, B)
    site.give(A, B)
    here, gone = site.upload(A), update(B)
    (told,) = site.tell(MessageForSite(sum_request(here, gone)))
    assert (told.message.lost, told.message.blob) == ((B,), None)


def test_sites_within_add_their_own_part_first():
    site = Driven(A, DEEP)
    site.give(A)
    own, deep = site.upload(A), update(DEEP)
    request = sum_request(own, deep)
    below = sum_request(deep, site="b.n")
    assert site.tell(MessageForSite(request)) == [SendToSite("b.n", below)]
    about = {"federation": NAME, "site": "b.n", "run": RUN, "round": 1, "request": below.digest}
    part = SiteSum(**about, members={DEEP: 3}, blob=ref_of(b"p" * 2000))
    assert site.tell(SiteBelowSpoke("b.n", part.model_copy(update={"request": request.digest}))) == []
    (ask,) = site.tell(SiteBelowSpoke("b.n", part))
    assert (ask.site, ask.message.digest) == ("b.n", part.blob.digest)
    wrong = part.model_copy(update={"members": {DEEP: 4}})
    assert site.tell(SiteBelowSpoke("b.n", wrong)) == []
    assert ask in site.tell(SiteBelowSpoke("b.n", SiteBirth(federation=NAME, site="b.n", session=2)))
    gone = Refusal(federation=NAME, device="b.n", reason=Reason.UNKNOWN_BLOB, digest=part.blob.digest)
    assert [told.site for told in site.tell(SiteBelowSpoke("b.n", gone))] == ["b.n"]
    assert site.tell(SiteBelowSpoke("b.n", part)) == [ask]


def test_sites_within_are_asked_in_the_epoch_of_the_server_that_has_taken_over():
    site, request = Driven(DEEP), sum_request(update(DEEP))
    site.tell(MessageForSite(request))
    site.tell(MessageForSite(request.model_copy(update={"epoch": 2})))
    below = sum_request(update(DEEP), site="b.n").model_copy(update={"epoch": 2})
    assert SendToSite("b.n", below) in site.wait(ASK_AGAIN_S)
    assert SendToSite("b.n", below) in site.tell(
        SiteBelowSpoke("b.n", SiteBirth(federation=NAME, site="b.n", session=2))
    )


def test_a_late_death_of_a_site_within_takes_nobody_away():
    site = Driven(DEEP)
    site.tell(SiteBelowSpoke("b.n", SiteBirth(federation=NAME, site="b.n", session=3)))
    assert site.tell(SiteBelowSpoke("b.n", SiteDeath(federation=NAME, site="b.n", session=2))) == []
    (told,) = site.tell(SiteBelowSpoke("b.n", SiteDeath(federation=NAME, site="b.n", session=3)))
    assert told == SendAbove(Death(federation=NAME, device=DEEP, session=birth(DEEP).session), DEEP)


def test_a_task_that_was_overtaken_is_passed_on_and_not_remembered():
    site = Driven(A)
    site.give(A, number=2)
    late = assignment(1, 1).task
    assert site.give(A, number=1) == [SendToDevice(A, late)]
    assert site.gateway.tasks[A].attempt == 2


def test_a_member_that_has_begun_another_task_is_lost_to_the_sum_of_its_last_one():
    site = Driven(A, DEEP)
    site.give(A)
    own, deep = site.upload(A), update(DEEP)
    request, below = sum_request(own, deep), sum_request(deep, site="b.n")
    site.tell(MessageForSite(request))
    about = {"federation": NAME, "site": "b.n", "run": RUN, "round": 1, "request": below.digest}
    part = SiteSum(**about, members={DEEP: 3}, blob=ref_of(b"p" * 20))
    site.tell(SiteBelowSpoke("b.n", part))
    site.give(A, number=2)
    site.upload(A, number=2)
    (told,) = site.tell(PartVerified("b.n", part.blob.digest, True))
    assert (told.message.lost, told.message.request) == ((A,), request.digest)


def test_a_part_that_two_requests_ask_for_completes_the_open_one():
    site = Driven(A, DEEP)
    site.give(A)
    own, deep = site.upload(A), update(DEEP)
    first, below = sum_request(own, deep), sum_request(deep, site="b.n")
    about = {"federation": NAME, "site": "b.n", "run": RUN, "round": 1, "request": below.digest}
    part = SiteSum(**about, members={DEEP: 3}, blob=ref_of(b"p" * 20))
    site.tell(MessageForSite(first))
    site.tell(SiteBelowSpoke("b.n", part))
    (made,) = site.tell(PartVerified("b.n", part.blob.digest, True))
    site.tell(SumMade(made.request, STATE))
    second = sum_request(deep)
    site.tell(MessageForSite(second))
    site.tell(SiteBelowSpoke("b.n", part))
    (made,) = site.tell(PartVerified("b.n", part.blob.digest, True))
    assert made.request == second
