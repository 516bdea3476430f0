"""Births within sites that the terms of a gateway do not name yet."""

from edge_server.coordinator.gateway.intake import EarlyBirths
from edge_server.rounds.gateway.state import Gateway
from schemas.messages import SiteTerms
from schemas.topics import Channel, DeviceTopic, SiteTopic

NEW = Gateway("test", "barn")
BIRTH = SiteTopic("test", "barn.loft", Channel.BIRTH, "barn.loft.d0")
OF_SITE = SiteTopic("test", "barn.loft", Channel.BIRTH)


def knowing(*sites: str) -> Gateway:
    terms = SiteTerms.model_construct(federation="test", run="run-1", site="barn", sites=sites)
    return Gateway("test", "barn", terms=terms)


def test_births_wait_for_terms_in_their_order():
    early = EarlyBirths()
    assert early.keep(OF_SITE, b"birth", NEW)
    assert early.keep(BIRTH, b"birth", NEW)
    assert early.keep(OF_SITE, b"death", NEW)
    assert early.take(NEW) == []
    assert early.take(knowing("barn", "barn.loft")) == [(BIRTH, b"birth"), (OF_SITE, b"death")]
    assert early.take(knowing("barn", "barn.loft")) == []


def test_births_of_a_site_that_later_terms_name_are_kept_and_refused_until_then():
    early = EarlyBirths()
    assert not early.keep(BIRTH, b"birth", knowing("barn"))
    assert early.take(knowing("barn", "barn.loft")) == [(BIRTH, b"birth")]


def test_other_messages_are_not_kept():
    early = EarlyBirths()
    assert early.keep(SiteTopic("test", "barn.loft", Channel.UP, "barn.loft.d0"), b"update", NEW)
    assert not early.keep(SiteTopic("test", "stable", Channel.BIRTH), b"birth", NEW)
    assert not early.keep(DeviceTopic("test", "barn.d0", Channel.BIRTH), b"birth", NEW)
    assert early.take(knowing("barn", "barn.loft", "stable")) == []
