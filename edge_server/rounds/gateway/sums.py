"""Sums that were requested from above: of updates that lie here, and of the sums of sites within this one.

Sums are exact, so it does not matter who adds which part. A repeated request gets the same answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from edge_server.rounds.events import SendToSite, SumChecked
from edge_server.rounds.gateway import events
from edge_server.rounds.gateway.state import Gateway, Step, SumWork
from edge_server.rounds.sites import asked_sums
from edge_server.rounds.sites.asked_sums import ASK_AGAIN_S, AskedSums
from schemas.base import fields_of
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, SiteSum, SumMember, SumRequest
from schemas.tensors.chunks import Chunk

MAX_SUMS = 4  # Sums that are kept for repeated requests


def on_request(gateway: Gateway, request: SumRequest, now: float) -> Step:
    """Begin to make a sum, or repeat the answer to the same request."""
    key = request.digest
    previous = gateway.sums.get(key)
    if previous is not None:
        renewed = _with(gateway, _in_epoch_of(request, previous))
        return renewed, [events.SendAbove(previous.answer)] if previous.answer is not None else []
    own, asked = _divide_request(gateway, request)
    if lost := _find_lost(gateway, own):
        return gateway, [events.SendAbove(_answer(request, lost=lost))]
    work = SumWork(request, AskedSums(asked, ask_at=now + ASK_AGAIN_S))
    newest = list({**gateway.sums, key: work}.items())[-MAX_SUMS:]
    begun = replace(gateway, sums=dict(newest))
    return begun, [*(SendToSite(site, part) for site, part in asked.items()), *_make(begun, work)]


def _in_epoch_of(request: SumRequest, work: SumWork) -> SumWork:
    """The same sum for a server that has taken over: sites no longer obey the one before."""
    requests = work.asked.requests.items()
    renewed = {site: part.model_copy(update={"epoch": request.epoch}) for site, part in requests}
    return replace(work, request=request, asked=replace(work.asked, requests=renewed))


def _divide_request(
    gateway: Gateway, request: SumRequest
) -> tuple[dict[str, SumMember], dict[str, SumRequest]]:
    """The members that lie here, and the requests to sites within this one."""
    own: dict[str, SumMember] = {}
    below: dict[str, dict[str, SumMember]] = {}
    for device, member in request.members.items():
        site = gateway.below(device)
        (below.setdefault(site, {}) if site else own)[device] = member
    parts = {
        site: request.model_copy(update={"site": site, "members": members}) for site, members in below.items()
    }
    return own, parts


def _find_lost(gateway: Gateway, own: Mapping[str, SumMember]) -> tuple[str, ...]:
    return tuple(device for device, member in own.items() if not _lies_here(gateway, device, member))


def _lies_here(gateway: Gateway, device: str, member: SumMember) -> bool:
    update = gateway.updates.get(device)
    if update is None or update.receipt is None or update.receipt.reason is not None:
        return False
    return (update.attempt, update.blob.digest) == (member.attempt, member.digest)


def _make(gateway: Gateway, work: SumWork) -> list[events.Command]:
    if work.asked.missing:
        return []
    updates = (gateway.updates[device] for device in work.request.members if not gateway.below(device))
    return [events.MakeSum(work.request, tuple(updates), tuple(work.asked.here.values()))]


def on_made(gateway: Gateway, event: events.SumMade) -> Step:
    """A sum is a blob, or cannot be made: answer the request."""
    key = event.request.digest
    work = gateway.sums.get(key)
    if work is None:
        return gateway, []
    if event.ref is None:
        left = {other: kept for other, kept in gateway.sums.items() if other != key}
        return replace(gateway, sums=left), [events.SendAbove(_answer(event.request, lost=event.lost))]
    answer = _answer(event.request, members=event.request.weights, blob=event.ref)
    return _with(gateway, replace(work, answer=answer)), [events.SendAbove(answer)]


def _with(gateway: Gateway, work: SumWork) -> Gateway:
    return replace(gateway, sums={**gateway.sums, work.request.digest: work})


def _answer(request: SumRequest, **more: Any) -> SiteSum:
    about = fields_of(request, "federation", "site", "run", "round")
    return SiteSum(**about, request=request.digest, **more)


def give_chunks(gateway: Gateway, request: BlobRequest) -> events.Command:
    """Send chunks of a sum, or say that there is none."""
    for work in gateway.sums.values():
        blob = work.answer.blob if work.answer is not None else None
        if blob is not None and blob.digest == request.digest:
            return events.SendChunksAbove(blob, request.first, request.count)
    unknown, digest = Reason.UNKNOWN_BLOB, request.digest
    return events.SendAbove(
        Refusal(federation=gateway.federation, device=gateway.site, reason=unknown, digest=digest)
    )


# --- sites within this one ---
def take_part(gateway: Gateway, site: str, answer: SiteSum, now: float) -> Step:
    """A site within this one has made its sum, or has lost updates."""
    for work in gateway.sums.values():
        asked = work.asked.requests.get(site)
        if site not in work.asked.missing or work.answer is not None or asked is None:
            continue
        if answer.request != asked.digest:
            continue
        if answer.blob is None and set(answer.lost) & asked.members.keys():
            return on_made(gateway, events.SumMade(work.request, lost=answer.lost))
        if answer.members == asked.weights:
            fetching, commands = work.asked.fetch(site, answer, now)
            if fetching is not work.asked:
                return _with(gateway, replace(work, asked=fetching)), [*commands]
    return gateway, []


def take_chunk(gateway: Gateway, site: str, chunk: Chunk, now: float) -> Step:
    """Take a chunk of the sum of a site within this one; raises `PeerError` for one that does not fit."""
    for work in gateway.sums.values():
        taken, commands = work.asked.take_chunk(site, chunk, now)
        if taken is not work.asked:
            return _with(gateway, replace(work, asked=taken)), [*commands]
    return gateway, []


def part_checked(gateway: Gateway, event: SumChecked) -> Step:
    """A part is complete: add, once all are here; a damaged one is requested again."""
    site = event.site
    for work in gateway.sums.values():
        # Another request may have asked for the same part, which is here.
        if site not in work.asked.missing or not work.asked.has_offer(site, event.digest):
            continue
        if event.damaged:
            return _with(gateway, replace(work, asked=work.asked.forget(site))), []
        own, _ = _divide_request(gateway, work.request)
        if lost := _find_lost(gateway, own):
            # Devices have begun another task since the sum was requested.
            return on_made(gateway, events.SumMade(work.request, lost=lost))
        complete = replace(work, asked=work.asked.complete(site))
        after = _with(gateway, complete)
        return after, _make(after, complete)
    return gateway, []


def part_lost(gateway: Gateway, site: str, refusal: Refusal) -> Step:
    """A site within this one no longer has the sum that it made: it is asked for it again."""
    for work in gateway.sums.values():
        if site in work.asked.missing and work.asked.has_offer(site, refusal.digest):
            again = replace(work.asked.forget(site), ask_at=work.asked.ask_at)
            asked = SendToSite(site, work.asked.requests[site])
            return _with(gateway, replace(work, asked=again)), [asked]
    return gateway, []


def site_back(gateway: Gateway, site: str, now: float) -> Step:
    """Ask a site whose gateway has connected again for the sums that are still missing."""
    return _each_open(gateway, lambda asked: asked.site_back(site, now))


def tick(gateway: Gateway, now: float) -> Step:
    return _each_open(gateway, lambda asked: asked.ask(now))


def _each_open(gateway: Gateway, ask: Callable[[AskedSums], asked_sums.Step]) -> Step:
    """Ask for the parts of each sum that waits for some."""
    commands: list[events.Command] = []
    for work in gateway.sums.values():
        if work.answer is None and work.asked.missing:
            asked, more = ask(work.asked)
            gateway = _with(gateway, replace(work, asked=asked))
            commands += more
    return gateway, commands
