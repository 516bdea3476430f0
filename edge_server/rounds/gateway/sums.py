"""Sums that were requested from above: of updates that lie here, and of the sums of sites within this one.

Sums are exact, so it does not matter who adds which part. A repeated request gets the same answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import FAR_PATIENCE_S
from edge_server.rounds.gateway import events
from edge_server.rounds.gateway.state import Gateway, Step, SumWork
from schemas.base import fields_of
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, SiteSum, SumMember, SumRequest
from schemas.tensors.chunks import Chunk

Value = TypeVar("Value")
MAX_SUMS = 4  # Sums that are kept for repeated requests
ASK_AGAIN_S = 10.0


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
    work = SumWork(request, asked, ask_at=now + ASK_AGAIN_S)
    newest = list({**gateway.sums, key: work}.items())[-MAX_SUMS:]
    begun = replace(gateway, sums=dict(newest))
    return begun, [*(events.SendToSite(site, part) for site, part in asked.items()), *_make(begun, work)]


def _in_epoch_of(request: SumRequest, work: SumWork) -> SumWork:
    """The same sum for a server that has taken over: sites no longer obey the one before."""
    asked = {site: part.model_copy(update={"epoch": request.epoch}) for site, part in work.asked.items()}
    return replace(work, request=request, asked=asked)


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
    if work.asked.keys() != work.parts.keys():
        return []
    updates = (gateway.updates[device] for device in work.request.members if not gateway.below(device))
    return [events.MakeSum(work.request, tuple(updates), tuple(work.parts.values()))]


def on_made(gateway: Gateway, event: events.SumMade) -> Step:
    """A sum is a blob, or cannot be made: answer the request."""
    key = event.request.digest
    work = gateway.sums.get(key)
    if work is None:
        return gateway, []
    if event.ref is None:
        left = _without(gateway.sums, key)
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
        asked = work.asked.get(site)
        if asked is None or work.answer is not None or site in work.parts or answer.request != asked.digest:
            continue
        if answer.blob is None and set(answer.lost) & asked.members.keys():
            return on_made(gateway, events.SumMade(work.request, lost=answer.lost))
        if answer.blob is None or answer.members != asked.weights:
            continue
        if site in work.offers and work.offers[site].blob == answer.blob:
            continue
        receiving, asks = chunk_transfer.start_transfer(answer.blob, now, pushed=False, least=FAR_PATIENCE_S)
        offers, coming = {**work.offers, site: answer}, {**work.receiving, site: receiving}
        begun = replace(work, offers=offers, receiving=coming)
        return _with(gateway, begun), _commands(gateway, site, asks)
    return gateway, []


def take_chunk(gateway: Gateway, site: str, chunk: Chunk, now: float) -> Step:
    """Take a chunk of the sum of a site within this one; raises `PeerError` for one that does not fit."""
    for work in gateway.sums.values():
        receiving = work.receiving.get(site)
        if receiving is not None and receiving.ref.digest.startswith(chunk.prefix):
            taken, commands = chunk_transfer.accept(receiving, chunk, now)
            further = replace(work, receiving={**work.receiving, site: taken})
            return _with(gateway, further), _commands(gateway, site, commands)
    return gateway, []


def part_verified(gateway: Gateway, event: events.PartVerified) -> Step:
    """A part is complete: add, once all are here; a damaged one is requested again."""
    for work in gateway.sums.values():
        offer = work.offers.get(event.site)
        if offer is None or offer.blob is None or offer.blob.digest != event.digest:
            continue
        if event.site in work.parts:
            continue  # another request asks for the same part
        receiving = _without(work.receiving, event.site)
        if not event.sound:
            offers = _without(work.offers, event.site)
            return _with(gateway, replace(work, offers=offers, receiving=receiving, ask_at=0.0)), []
        own, _ = _divide_request(gateway, work.request)
        if lost := _find_lost(gateway, own):
            # Devices have begun another task since the sum was requested.
            return on_made(gateway, events.SumMade(work.request, lost=lost))
        complete = replace(work, receiving=receiving, parts={**work.parts, event.site: offer})
        after = _with(gateway, complete)
        return after, _make(after, complete)
    return gateway, []


def part_lost(gateway: Gateway, site: str, refusal: Refusal) -> Step:
    """A site within this one no longer has the sum that it made: it is asked for it again."""
    for work in gateway.sums.values():
        offer = work.offers.get(site)
        if offer is None or offer.blob is None or offer.blob.digest != refusal.digest or site in work.parts:
            continue
        again = replace(work, offers=_without(work.offers, site), receiving=_without(work.receiving, site))
        return _with(gateway, again), [events.SendToSite(site, work.asked[site])]
    return gateway, []


def site_back(gateway: Gateway, site: str, now: float) -> Step:
    """Ask a site whose gateway has connected again for the sums that are still missing."""
    commands: list[events.Command] = []
    for work in gateway.sums.values():
        if work.answer is not None or site not in work.asked or site in work.parts:
            continue
        transfer = work.receiving.get(site)
        if transfer is None:
            commands.append(events.SendToSite(site, work.asked[site]))
            continue
        resumed, asks = chunk_transfer.resume(transfer, now)
        gateway = _with(gateway, replace(work, receiving={**work.receiving, site: resumed}))
        commands += _commands(gateway, site, asks)
    return gateway, commands


def _without(values: Mapping[str, Value], site: str) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name != site}


def tick(gateway: Gateway, now: float) -> Step:
    commands: list[events.Command] = []
    for work in gateway.sums.values():
        if work.answer is not None or work.asked.keys() == work.parts.keys():
            continue
        receiving = dict(work.receiving)
        for site, transfer in work.receiving.items():
            receiving[site], asks = chunk_transfer.tick(transfer, now)
            commands += _commands(gateway, site, asks)
        silent = [site for site in work.asked if site not in work.parts and site not in receiving]
        ask_at = work.ask_at
        if now >= ask_at:
            commands += [events.SendToSite(site, work.asked[site]) for site in silent]
            ask_at = now + ASK_AGAIN_S
        gateway = _with(gateway, replace(work, receiving=receiving, ask_at=ask_at))
    return gateway, commands


def _commands(
    gateway: Gateway, site: str, asks: list[chunk_transfer.TransferCommand]
) -> list[events.Command]:
    made_of: list[events.Command] = []
    for ask in asks:
        match ask:
            case chunk_transfer.RequestChunks():
                made_of.append(events.SendToSite(site, ask.request(gateway.federation, site)))
            case chunk_transfer.WriteChunk():
                made_of.append(events.Write(ask))
            case chunk_transfer.VerifyBlob(ref):
                made_of.append(events.VerifyPart(site, ref))
    return made_of
