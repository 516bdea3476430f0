"""Connects a federation's rounds to its sites: presence, and the sums that close a round."""

from collections.abc import Sequence
from dataclasses import replace

from edge_server.rounds import device_messages, events, quarantine
from edge_server.rounds.closing import abandon
from edge_server.rounds.participants import Participants
from edge_server.rounds.sites import presence, sums
from edge_server.rounds.sites.sums import Summing
from edge_server.rounds.state import Federation, Step
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, SiteBirth, SiteDeath, SiteSum


def ask_sites(federation: Federation, commands: Sequence[events.Command], quorum: int, now: float) -> Step:
    """Let sites add the updates that lie with them, before the round is closed."""
    close = next((command for command in commands if isinstance(command, events.CloseRound)), None)
    if close is None or not any(update.receipt is not None for update in close.updates.values()):
        return federation, list(commands)
    others = [command for command in commands if command is not close]
    summing, more = sums.begin(close, quorum, now, federation.rules.deadline_s)
    return replace(federation, summing=summing), [*others, *more]


def on_event(
    federation: Federation,
    event: events.SiteSpoke | events.SiteChunkReceived | events.UpdatesWeighed | events.SumChecked,
    now: float,
) -> Step:
    """What a gateway has sent, or what was found out about its sum."""
    summing = federation.summing
    match event:
        case events.SiteSpoke(_, SiteBirth() | SiteDeath() as message):
            return _presence(federation, message, now)
        case _ if summing is None:
            return federation, []
        case events.SiteSpoke(_, SiteSum() as answer):
            return _judge_sum(federation, answer.site, sums.on_sum(summing, answer, now), now)
        case events.SiteSpoke(site, Refusal() as refusal):
            return _settle(federation, *_sum_lost(summing, site, refusal), now)
        case events.SiteSpoke(_, BlobRequest()):
            return federation, []
        case events.SiteChunkReceived(site, chunk):
            return _settle(federation, *sums.take_chunk(summing, site, chunk, now), now)
        case events.UpdatesWeighed(number) if number == summing.close.round:
            asked = sums.on_weighed(summing, event, federation.sites, federation.run, federation.name)
            after, commands = _settle(federation, *asked, now)
            after, more = tick(after, now)
            return after, commands + more
        case events.SumChecked(site):
            return _judge_sum(federation, site, sums.on_checked(summing, event), now)
        case _:
            return federation, []


def _judge_sum(federation: Federation, site: str, judged: sums.Step, now: float) -> Step:
    """What follows from a site's sum; a refused one is a strike against the site."""
    summing, commands = judged
    if any(isinstance(command, events.Note) and command.reason is Reason.WRONG_SUM for command in commands):
        federation, more = quarantine.strike_site(federation, site, Reason.WRONG_SUM)
        commands = [*commands, *more]
    return _settle(federation, summing, commands, now)


def _presence(federation: Federation, message: SiteBirth | SiteDeath, now: float) -> Step:
    if isinstance(message, SiteDeath):
        sites, fleet, commands = presence.site_died(federation.sites, federation.fleet, message, now)
    else:
        sites, fleet, commands = presence.site_born(federation.sites, federation.fleet, message)
    heard = replace(federation, sites=sites, fleet=fleet)
    if isinstance(message, SiteDeath) or sites.is_gone(message.site):
        return heard, commands
    left, births = sites.take_waiting(message.site)
    heard = replace(heard, sites=left)
    for birth in births:
        heard, more = device_messages.receive(heard, birth, now)
        commands += more
    if heard.summing is None:
        return heard, commands
    back, more = sums.site_back(heard.summing, message.site, now)
    return replace(heard, summing=back), commands + more


def _sum_lost(summing: Summing, site: str, refusal: Refusal) -> sums.Step:
    """A gateway no longer has the sum that it made: it is asked for it again."""
    lost = summing.asked.has_offer(site, refusal.digest)
    return replace(summing, asked=summing.asked.forget(site)) if lost else summing, []


def tick(federation: Federation, now: float) -> Step:
    if federation.summing is None:
        return federation, []
    ticked = sums.tick(federation.summing, federation.sites, now, federation.rules.rejoin_s)
    return _settle(federation, *ticked, now)


def _settle(federation: Federation, summing: Summing, commands: list[events.Command], now: float) -> Step:
    """Close the round once every sum is here; abandon it if too few updates are left."""
    if summing.short:
        why = f"{len(summing.close.updates)} updates are left without those of lost sites, below the quorum"
        fresh = replace(federation, participants=Participants(), summing=None)
        abandoned, more = abandon(fresh, why, now)
        return abandoned, commands + more
    if summing.is_done:
        closing = replace(summing.close, sums=summing.asked.here)
        return replace(federation, summing=None), [*commands, closing]
    return replace(federation, summing=summing), commands
