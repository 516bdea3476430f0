"""The sums of a round's updates at sites: requested once the round is gathered, before it is closed.

First the updates are compared and weighed; then each site is asked for the sum of exactly those of its
updates that count. A site that is gone too long, or has lost updates, gives up its members: the rest is
weighed again, and closes the round if it still is a quorum.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from edge_server.rounds import events
from edge_server.rounds.sites import asked_sums
from edge_server.rounds.sites.asked_sums import AskedSums
from edge_server.rounds.sites.presence import Sites
from schemas.errors import Reason
from schemas.messages import SiteSum, SumMember, SumRequest
from schemas.tensors.chunks import Chunk


@dataclass(frozen=True)
class Summing:
    """A round that waits for the sums of its sites.

    `close` is the round as it would be closed now, with at least `quorum` updates. While it is `weighing`
    nothing is asked for. `damaged` are the sites of which a sum has come damaged. Sites have time `until`
    (seconds).
    """

    close: events.CloseRound
    quorum: int
    began: float
    until: float
    weighing: bool = True
    asked: AskedSums = field(default_factory=AskedSums)
    most_bytes: int = 0
    damaged: frozenset[str] = frozenset()

    @property
    def is_done(self) -> bool:
        return not self.weighing and not self.asked.missing

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
    asked = summing.asked.renew(_requests(summing.close, event.weights, sites, run, federation))
    return replace(summing, weighing=False, asked=asked, most_bytes=event.most_bytes), []


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


def on_sum(summing: Summing, answer: SiteSum, now: float) -> Step:
    """A site has made its sum, or has lost updates; a sum of other members or weights is refused."""
    request = summing.asked.requests.get(answer.site)
    if request is None or answer.site in summing.asked.here or summing.weighing:
        return summing, []
    if answer.request != request.digest:
        return summing, []
    if answer.blob is None:
        return drop(summing, [device for device in answer.lost if device in request.members], "lost there")
    if wrong := _wrong(answer, request, summing.most_bytes):
        return _refuse(summing, answer.site, wrong)
    return _with(summing, summing.asked.fetch(answer.site, answer, now))


def _with(summing: Summing, step: asked_sums.Step) -> Step:
    return replace(summing, asked=step[0]), [*step[1]]


def _wrong(answer: SiteSum, request: SumRequest, most_bytes: int) -> str:
    """Why this is not the sum that was requested; empty if it is."""
    if answer.members != request.weights:
        odd = sorted({*answer.members.items()} ^ {*request.weights.items()})[0][0]
        return f"it is not of the members and weights that were requested, as of {odd}"
    assert answer.blob is not None
    return f"{answer.blob.size} bytes, at most {most_bytes}" if answer.blob.size > most_bytes else ""


def take_chunk(summing: Summing, site: str, chunk: Chunk, now: float) -> Step:
    """Take a chunk of a site's sum; raises `PeerError` for one that does not fit its blob."""
    return _with(summing, summing.asked.take_chunk(site, chunk, now))


def on_checked(summing: Summing, event: events.SumChecked) -> Step:
    """A sum is complete: it counts, or is refused; a damaged one is requested once more."""
    site, asked = event.site, summing.asked
    if not asked.has_offer(site, event.digest):
        return summing, []
    if not event.detail:
        return replace(summing, asked=asked.complete(site)), []
    if event.damaged and site not in summing.damaged:
        again = replace(summing, asked=asked.forget(site), damaged=summing.damaged | {site})
        return again, [events.Note("sum damaged", site, detail=event.detail)]
    return _refuse(summing, site, event.detail)


def _refuse(summing: Summing, site: str, why: str) -> Step:
    """The site's sum is wrong: go on without its members, who take part again in the next round."""
    members = summing.asked.requests[site].members
    dropped, commands = drop(summing, members, f"the sum of site {site} was refused")
    return dropped, [events.Note("sum refused", site, Reason.WRONG_SUM, why), *commands]


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
    for site in summing.asked.missing:
        lost = sites.lost_since(site, summing.began)
        late = now >= summing.until
        if late or (lost is not None and now >= max(lost, summing.began) + rejoin_s):
            why = f"the sum of site {site} {'did not come in time' if late else 'cannot come: it is gone'}"
            return drop(summing, summing.asked.requests[site].members, why)
    return _with(summing, summing.asked.ask(now, is_gone=sites.is_gone))


def site_back(summing: Summing, site: str, now: float) -> Step:
    """A gateway has connected again: it is asked again at once."""
    return (summing, []) if summing.weighing else _with(summing, summing.asked.site_back(site, now))
