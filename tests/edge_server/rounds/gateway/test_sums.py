"""Sums of the updates that lie at a gateway and at sites within its own."""

from edge_server.rounds.events import SendToSite, SiteSpoke, SumChecked
from edge_server.rounds.gateway import events
from edge_server.rounds.gateway.sums import ASK_AGAIN_S
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, SiteBirth, SiteSum
from tests.edge_server.rounds.by_hand import NAME, RUN, STATE, ref_of, update
from tests.edge_server.rounds.gateway.driven import DEEP, SITE, A, B, Driven, sum_request


def test_the_requested_members_are_added_once_and_the_answer_repeated():
    site = Driven(A, B)
    site.give(A, B)
    updates = [site.upload(device) for device in (A, B)]
    request = sum_request(*updates)
    assert site.tell(events.MessageForSite(request)) == [events.MakeSum(request, tuple(updates))]
    assert site.tell(events.MessageForSite(request)) == []
    (told,) = site.tell(events.SumMade(request, STATE))
    assert told.message.members == {A: 3, B: 3}
    assert site.tell(events.MessageForSite(request)) == [told]
    ask = BlobRequest(federation=NAME, device=SITE, digest=STATE.digest, first=0, count=2)
    assert site.tell(events.MessageForSite(ask)) == [events.SendChunksAbove(STATE, 0, 2)]


def test_members_that_are_not_here_are_named():
    site = Driven(A, B)
    site.give(A, B)
    here, gone = site.upload(A), update(B)
    (told,) = site.tell(events.MessageForSite(sum_request(here, gone)))
    assert (told.message.lost, told.message.blob) == ((B,), None)


def test_sites_within_add_their_own_part_first():
    site = Driven(A, DEEP)
    site.give(A)
    own, deep = site.upload(A), update(DEEP)
    request = sum_request(own, deep)
    below = sum_request(deep, site="b.n")
    assert site.tell(events.MessageForSite(request)) == [SendToSite("b.n", below)]
    about = {"federation": NAME, "site": "b.n", "run": RUN, "round": 1, "request": below.digest}
    part = SiteSum(**about, members={DEEP: 3}, blob=ref_of(b"p" * 2000))
    assert site.tell(SiteSpoke("b.n", part.model_copy(update={"request": request.digest}))) == []
    (ask,) = site.tell(SiteSpoke("b.n", part))
    assert (ask.site, ask.message.digest) == ("b.n", part.blob.digest)
    wrong = part.model_copy(update={"members": {DEEP: 4}})
    assert site.tell(SiteSpoke("b.n", wrong)) == []
    assert ask in site.tell(SiteSpoke("b.n", SiteBirth(federation=NAME, site="b.n", session=2)))
    gone = Refusal(federation=NAME, device="b.n", reason=Reason.UNKNOWN_BLOB, digest=part.blob.digest)
    assert [told.site for told in site.tell(SiteSpoke("b.n", gone))] == ["b.n"]
    assert site.tell(SiteSpoke("b.n", part)) == [ask]


def test_sites_within_are_asked_in_the_epoch_of_the_server_that_has_taken_over():
    site, request = Driven(DEEP), sum_request(update(DEEP))
    site.tell(events.MessageForSite(request))
    site.tell(events.MessageForSite(request.model_copy(update={"epoch": 2})))
    below = sum_request(update(DEEP), site="b.n").model_copy(update={"epoch": 2})
    assert SendToSite("b.n", below) in site.wait(ASK_AGAIN_S)
    assert SendToSite("b.n", below) in site.tell(
        SiteSpoke("b.n", SiteBirth(federation=NAME, site="b.n", session=2))
    )


def test_a_member_that_has_begun_another_task_is_lost_to_the_sum_of_its_last_one():
    site = Driven(A, DEEP)
    site.give(A)
    own, deep = site.upload(A), update(DEEP)
    request, below = sum_request(own, deep), sum_request(deep, site="b.n")
    site.tell(events.MessageForSite(request))
    about = {"federation": NAME, "site": "b.n", "run": RUN, "round": 1, "request": below.digest}
    part = SiteSum(**about, members={DEEP: 3}, blob=ref_of(b"p" * 20))
    site.tell(SiteSpoke("b.n", part))
    site.give(A, number=2)
    site.upload(A, number=2)
    (told,) = site.tell(SumChecked("b.n", part.blob.digest))
    assert (told.message.lost, told.message.request) == ((A,), request.digest)


def test_a_part_that_two_requests_ask_for_completes_the_open_one():
    site = Driven(A, DEEP)
    site.give(A)
    own, deep = site.upload(A), update(DEEP)
    first, below = sum_request(own, deep), sum_request(deep, site="b.n")
    about = {"federation": NAME, "site": "b.n", "run": RUN, "round": 1, "request": below.digest}
    part = SiteSum(**about, members={DEEP: 3}, blob=ref_of(b"p" * 20))
    site.tell(events.MessageForSite(first))
    site.tell(SiteSpoke("b.n", part))
    (made,) = site.tell(SumChecked("b.n", part.blob.digest))
    site.tell(events.SumMade(made.request, STATE))
    second = sum_request(deep)
    site.tell(events.MessageForSite(second))
    site.tell(SiteSpoke("b.n", part))
    (made,) = site.tell(SumChecked("b.n", part.blob.digest))
    assert made.request == second
