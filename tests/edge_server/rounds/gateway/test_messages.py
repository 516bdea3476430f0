"""What a gateway passes on, and how it is known above."""

from dataclasses import replace

import pytest

from edge_server.rounds.events import Announce, Send, SendToSite, SiteSpoke
from edge_server.rounds.gateway import events, machine
from schemas.errors import PeerError
from schemas.messages import (
    Acknowledgement,
    Death,
    RoundAnnouncement,
    SiteBirth,
    SiteDeath,
    SiteTerms,
    Telemetry,
)
from tests.edge_server.rounds.by_hand import NAME, RUN, assignment, of, reply, update
from tests.edge_server.rounds.gateway.driven import DEEP, SITE, A, B, Driven, sum_request
from tests.edge_server.rounds.test_fleet import birth


def test_births_replies_and_telemetry_go_up_and_answers_come_down():
    site, telemetry = Driven(), Telemetry(federation=NAME, device=A, session=1, phase="idle")
    for message in (birth(A), telemetry, reply(A)):
        assert site.tell(events.DeviceSpoke(message)) == [events.SendAbove(message, A)]
    answer = Acknowledgement(federation=NAME, device=A, run=RUN, attempt=1)
    assert site.tell(events.MessageForDevice(A, answer)) == [Send(A, answer)]


def test_a_connection_above_begins_with_who_is_here():
    site = Driven(A)
    site.tell(events.CutAbove())
    assert site.tell(events.DeviceSpoke(birth(B))) == []
    told = [command.message for command in of(events.SendAbove, site.tell(events.LinkedAbove(2)))]
    assert told == [SiteBirth(federation=NAME, site=SITE, session=2), birth(A), birth(B)]


def test_a_late_repetition_of_a_birth_does_not_look_like_a_second_device():
    site = Driven()
    first, second = (birth(A).model_copy(update={"instance": name, "session": 7}) for name in "ab")
    later = first.model_copy(update={"session": 8})
    for born in (first, first, second):
        assert site.tell(events.DeviceSpoke(born)) == [events.SendAbove(born, A)]
    assert site.tell(events.DeviceSpoke(first)) == []
    assert site.tell(events.DeviceSpoke(later)) == [events.SendAbove(later, A)]


def test_a_birth_that_terms_do_not_answer_is_repeated():
    site = Driven(A)
    born = events.SendAbove(SiteBirth(federation=NAME, site=SITE, session=1))
    assert born not in site.wait(100)
    announced = RoundAnnouncement(
        federation=NAME, run="run-2", round=1, rounds=2, phase="training", selected=1
    )
    site.tell(events.Announced(announced))
    assert born in site.wait(1)
    assert born not in site.wait(1)
    site.tell(events.LinkedAbove(2))
    again = replace(born, message=born.message.model_copy(update={"session": 2}))
    assert again not in site.wait(machine.BORN_AGAIN_S - 1)
    assert again in site.wait(1)


def test_devices_that_are_not_back_after_a_restart_are_reported_as_lost():
    site = Driven(A, before={A: 1, B: 4})
    assert not of(events.SendAbove, site.wait(10))
    assert site.wait(11) == [events.SendAbove(Death(federation=NAME, device=B, session=4), B)]
    assert site.wait(30) == []


def test_announcements_are_handed_on():
    site = Driven(A)
    message = RoundAnnouncement(federation=NAME, run=RUN, round=1, rounds=2, phase="training", selected=1)
    assert site.tell(events.Announced(message)) == [Announce(message), events.Forget(RUN, 1)]


def test_what_a_replaced_server_says_is_refused():
    site = Driven(A)
    about = {"federation": NAME, "run": RUN, "rounds": 3, "phase": "waiting", "selected": 0}
    site.tell(events.Announced(RoundAnnouncement(**about, round=1, epoch=2)))
    for event in (
        events.Announced(RoundAnnouncement(**about, round=2)),
        events.MessageForDevice(A, assignment().task),
        events.MessageForSite(sum_request(update(A)).model_copy(update={"epoch": 1})),
    ):
        with pytest.raises(PeerError, match="by a server that was replaced"):
            site.tell(event)
    assert site.tell(events.Announced(RoundAnnouncement(**about, round=2, epoch=2)))


def test_a_server_that_has_taken_over_is_asked_for_its_terms():
    site = Driven(A)
    born = events.SendAbove(SiteBirth(federation=NAME, site=SITE, session=1))
    about = {"federation": NAME, "run": RUN, "rounds": 3, "phase": "waiting", "selected": 0}
    site.tell(events.Announced(RoundAnnouncement(**about, round=1, epoch=2)))
    assert born not in site.wait(machine.BORN_AGAIN_S - 1)
    assert born in site.wait(1)
    terms = SiteTerms(federation=NAME, site=SITE, run=RUN, sites=(SITE, "b.n"), epoch=2)
    assert [command.message.epoch for command in of(SendToSite, site.tell(events.MessageForSite(terms)))] == [
        2
    ]
    site.tell(events.Announced(RoundAnnouncement(**about, round=2, epoch=2)))
    assert born not in site.wait(100)


def test_a_late_death_of_a_site_within_takes_nobody_away():
    site = Driven(DEEP)
    site.tell(SiteSpoke("b.n", SiteBirth(federation=NAME, site="b.n", session=3)))
    assert site.tell(SiteSpoke("b.n", SiteDeath(federation=NAME, site="b.n", session=2))) == []
    (told,) = site.tell(SiteSpoke("b.n", SiteDeath(federation=NAME, site="b.n", session=3)))
    assert told == events.SendAbove(Death(federation=NAME, device=DEEP, session=birth(DEEP).session), DEEP)


def test_a_task_that_was_overtaken_is_passed_on_and_not_remembered():
    site = Driven(A)
    site.give(A, number=2)
    late = assignment(1, 1).task
    assert site.give(A, number=1) == [Send(A, late)]
    assert site.gateway.tasks[A].attempt == 2
