"""The sums of a round's updates at sites: requested once the round is gathered, before it is closed.

First the updates are compared and weighed; then each site is asked for the sum of exactly those of its
updates that count. A site that is gone too long, or has lost updates, gives up its members: the rest is
weighed again, and closes the round if it still is a quorum.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import FAR_PATIENCE_S, Receiving
from edge_server.rounds import events
from edge_server.rounds.sites.presence import Sites
from schemas.errors import Reason
from schemas.messages import SiteSum, SumMember, SumRequest
from schemas.tensors.chunks import Chunk

Value = TypeVar("Value")
ASK_AGAIN_S = 10.0  # Seconds before a site that is silent is asked again


@dataclass(frozen=True)
class Summing:
    """A round that waits for the sums of its sites.

    `close` is the round as it would be closed now, with at least `quorum` updates. While it is `weighing`
    there are no `requests`. `offers` are the sums that sites have made, `receiving` their transfers, `sums`
    those that were checked, `damaged` the sites of which one has come damaged. Sites have time `until`
    (seconds), and are asked again at `ask_at`.
    """

    close: events.CloseRound
    quorum: int
    began: float
    until: float
    weighing: bool = True
    requests: Mapping[str, SumRequest] = field(default_factory=dict)
    offers: Mapping[str, SiteSum] = field(default_factory=dict)
    receiving: Mapping[str, Receiving] = field(default_factory=dict)
    sums: Mapping[str, SiteSum] = field(default_factory=dict)
    most_bytes: int = 0
    ask_at: float = 0.0
    damaged: frozenset[str] = frozenset()

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(site for site in self.requests if site not in self.sums)

    @property
    def is_done(self) -> bool:
        return not self.weighing and not self.missing

    @property
    def short(self) -> bool:
        return len(self.close.updates) < self.quorum


Step = tuple[Summing, list[events.Command]]


def begin(close: events.CloseRound, quorum: int, now: float, deadline_s: float) -> Step:
    return Summing(close, quorum, began=now, until=now + deadline_s), [events.WeighUpdates(close)]


def on_weighed(
    summing: Summing, event: events.UpdatesWeighed, sites: Sites, run: str, federation: str
) -> Step:
    """Ask each site for the sum of its members; sums with the same members and weights are kept."""
    if not summing.weighing:
        return summing, []
    requests = _requests(summing.close, event.weights, sites, run, federation)
    kept = [site for site in requests if summing.requests.get(site) == requests[site]]
    asking = replace(
        summing,
        weighing=False,
        requests=requests,
        offers=_only(summing.offers, kept),
        receiving=_only(summing.receiving, kept),
        sums=_only(summing.sums, kept),
        most_bytes=event.most_bytes,
        ask_at=0.0,
    )
    return asking, []


def _requests(
    close: events.CloseRound, weights: Mapping[str, int], sites: Sites, run: str, federation: str
) -> dict[str, SumRequest]:
    members: dict[str, dict[str, SumMember]] = {}
    for device, weight in sorted(weights.items()):
        update = close.updates[device]
        member = SumMember(
            attempt=update.attempt,
            digest=update.blob.digest,
            weight=weight,
            staleness=close.staleness.get(device, 0),
        )
        members.setdefault(sites.of(device), {})[device] = member
    return {
        site: SumRequest(federation=federation, site=site, run=run, round=close.round, members=of_site)
        for site, of_site in members.items()
    }


def _only(values: Mapping[str, Value], sites: Collection[str]) -> dict[str, Value]:
    return {site: value for site, value in values.items() if site in sites}


def on_sum(summing: Summing, answer: SiteSum, now: float) -> Step:
    """A site has made its sum, or has lost updates; a sum of other members or weights is refused."""
    request = summing.requests.get(answer.site)
    if request is None or answer.site in summing.sums or summing.weighing:
        return summing, []
    if answer.request != request.digest:
        return summing, []
    if answer.blob is None:
        return drop(summing, [device for device in answer.lost if device in request.members], "lost there")
    if wrong := _wrong(answer, request, summing.most_bytes):
        return _refuse(summing, answer.site, wrong)
    previous = summing.offers.get(answer.site)
    if previous is not None and previous.blob == answer.blob:
        return summing, []
    receiving, asks = chunk_transfer.start_transfer(answer.blob, now, pushed=False, least=FAR_PATIENCE_S)
    offers, coming = {**summing.offers, answer.site: answer}, {**summing.receiving, answer.site: receiving}
    begun = replace(summing, offers=offers, receiving=coming)
    return begun, _commands(answer.site, request.federation, asks)


def _wrong(answer: SiteSum, request: SumRequest, most_bytes: int) -> str:
    """Why this is not the sum that was requested; empty if it is."""
    if answer.members != request.weights:
        odd = sorted({*answer.members.items()} ^ {*request.weights.items()})[0][0]
        return f"it is not of the members and weights that were requested, as of {odd}"
    assert answer.blob is not None
    return f"{answer.blob.size} bytes, at most {most_bytes}" if answer.blob.size > most_bytes else ""


def take_chunk(summing: Summing, site: str, chunk: Chunk, now: float) -> Step:
    """Take a chunk of a site's sum; raises `PeerError` for one that does not fit its blob."""
    receiving = summing.receiving.get(site)
    if receiving is None or not receiving.ref.digest.startswith(chunk.prefix):
        return summing, []
    taken, commands = chunk_transfer.accept(receiving, chunk, now)
    further = replace(summing, receiving={**summing.receiving, site: taken})
    return further, _commands(site, summing.requests[site].federation, commands)


def on_checked(summing: Summing, event: events.SumChecked) -> Step:
    """A sum is complete: it counts, or is refused; a damaged one is requested once more."""
    offer = summing.offers.get(event.site)
    if offer is None or offer.blob is None or offer.blob.digest != event.digest:
        return summing, []
    without = replace(summing, receiving=_without(summing.receiving, event.site))
    if not event.detail:
        return replace(without, sums={**summing.sums, event.site: offer}), []
    if event.damaged and event.site not in summing.damaged:
        again = replace(forget(without, event.site), damaged=summing.damaged | {event.site})
        return again, [events.Note("sum damaged", event.site, detail=event.detail)]
    return _refuse(without, event.site, event.detail)


def _refuse(summing: Summing, site: str, why: str) -> Step:
    """The site's sum is wrong: go on without its members, who take part again in the next round."""
    dropped, commands = drop(summing, summing.requests[site].members, f"the sum of site {site} was refused")
    return dropped, [events.Note("sum refused", site, Reason.WRONG_SUM, why), *commands]


def forget(summing: Summing, site: str) -> Summing:
    """The site's sum is gone before it was here: the site is asked again."""
    offers, receiving = _without(summing.offers, site), _without(summing.receiving, site)
    return replace(summing, offers=offers, receiving=receiving, ask_at=0.0)


def _without(values: Mapping[str, Value], site: str) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name != site}


def drop(summing: Summing, devices: Collection[str], why: str) -> Step:
    """Go on without the updates of these devices: weigh the others."""
    gone = sorted(device for device in devices if device in summing.close.updates)
    if not gone:
        return summing, []
    left = {device: update for device, update in summing.close.updates.items() if device not in gone}
    close = replace(summing.close, updates=left, dropped=tuple(sorted({*summing.close.dropped, *gone})))
    notes: list[events.Command] = [events.Note("update dropped", device, detail=why) for device in gone]
    again = replace(summing, close=close, weighing=True)
    return again, notes if again.short else [*notes, events.WeighUpdates(close)]


def tick(summing: Summing, sites: Sites, now: float, rejoin_s: float) -> Step:
    """Ask silent sites again; give up those that are gone for `rejoin_s`, and all when the time is over."""
    if summing.weighing or summing.is_done:
        return summing, []
    for site in summing.missing:
        lost = sites.lost_since(site, summing.began)
        late = now >= summing.until
        if late or (lost is not None and now >= max(lost, summing.began) + rejoin_s):
            why = f"the sum of site {site} {'did not come in time' if late else 'cannot come: it is gone'}"
            return drop(summing, summing.requests[site].members, why)
    return _ask(summing, sites, now)


def _ask(summing: Summing, sites: Sites, now: float) -> Step:
    commands: list[events.Command] = []
    receiving = dict(summing.receiving)
    for site, transfer in summing.receiving.items():
        receiving[site], asks = chunk_transfer.tick(transfer, now)
        commands += _commands(site, summing.requests[site].federation, asks)
    if now < summing.ask_at:
        return replace(summing, receiving=receiving), commands
    silent = [site for site in summing.missing if site not in receiving and not sites.is_gone(site)]
    commands += [events.SendToSite(site, summing.requests[site]) for site in silent]
    return replace(summing, receiving=receiving, ask_at=now + ASK_AGAIN_S), commands


def site_back(summing: Summing, site: str, now: float) -> Step:
    """A gateway has connected again: it is asked again at once."""
    if site not in summing.missing or summing.weighing:
        return summing, []
    if site in summing.receiving:
        transfer, asks = chunk_transfer.resume(summing.receiving[site], now)
        resumed = replace(summing, receiving={**summing.receiving, site: transfer})
        return resumed, _commands(site, summing.requests[site].federation, asks)
    return summing, [events.SendToSite(site, summing.requests[site])]


def _commands(site: str, federation: str, asks: list[chunk_transfer.TransferCommand]) -> list[events.Command]:
    made: list[events.Command] = []
    for ask in asks:
        match ask:
            case chunk_transfer.RequestChunks():
                made.append(events.SendToSite(site, ask.request(federation, site)))
            case chunk_transfer.WriteChunk():
                made.append(events.WriteSumChunk(site, ask))
            case chunk_transfer.VerifyBlob(ref):
                made.append(events.CheckSum(site, ref))
    return made
