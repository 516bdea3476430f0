"""Sums that sites were asked for, by the server or by a gateway of sites within its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import FAR_PATIENCE_S, Receiving, WriteChunk
from edge_server.rounds.events import CheckSum, SendToSite
from schemas.messages import SiteSum, SumRequest
from schemas.tensors.chunks import Chunk

Value = TypeVar("Value")
Commands = list[SendToSite | WriteChunk | CheckSum]
Step = tuple["AskedSums", Commands]
ASK_AGAIN_S = 10.0  # Seconds before a site that is silent is asked again


@dataclass(frozen=True)
class AskedSums:
    """`requests` by site, `offers` of the sums that sites have made, their transfers, sums that are `here`.

    Silent sites are asked again at `ask_at` (seconds).
    """

    requests: Mapping[str, SumRequest] = field(default_factory=dict)
    offers: Mapping[str, SiteSum] = field(default_factory=dict)
    receiving: Mapping[str, Receiving] = field(default_factory=dict)
    here: Mapping[str, SiteSum] = field(default_factory=dict)
    ask_at: float = 0.0

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(site for site in self.requests if site not in self.here)

    def renew(self, requests: Mapping[str, SumRequest]) -> "AskedSums":
        """Ask for these sums at once; what came of equal requests is kept."""

        same = {site for site in requests if self.requests.get(site) == requests[site]}

        def kept(values: Mapping[str, Value]) -> dict[str, Value]:
            return {site: value for site, value in values.items() if site in same}

        return AskedSums(requests, kept(self.offers), kept(self.receiving), kept(self.here))

    def has_offer(self, site: str, digest: str | None) -> bool:
        """Whether the site has made a sum of this digest."""
        offer = self.offers.get(site)
        return offer is not None and offer.blob is not None and offer.blob.digest == digest

    def fetch(self, site: str, offer: SiteSum, now: float) -> Step:
        """Begin to fetch a sum that a site has made, unless it is on its way."""
        previous = self.offers.get(site)
        if offer.blob is None or (previous is not None and previous.blob == offer.blob):
            return self, []
        transfer = chunk_transfer.start_transfer(offer.blob, now, pushed=False, least=FAR_PATIENCE_S)
        return replace(self, offers={**self.offers, site: offer})._with(site, *transfer)

    def take_chunk(self, site: str, chunk: Chunk, now: float) -> Step:
        """Take a chunk of a site's sum; raises `PeerError` for one that does not fit its blob."""
        receiving = self.receiving.get(site)
        if receiving is None or not receiving.ref.digest.startswith(chunk.prefix):
            return self, []
        return self._with(site, *chunk_transfer.accept(receiving, chunk, now))

    def complete(self, site: str) -> "AskedSums":
        """The site's sum is here, and sound."""
        here = {**self.here, site: self.offers[site]}
        return replace(self, receiving=_without(self.receiving, site), here=here)

    def forget(self, site: str) -> "AskedSums":
        """The site's sum is gone before it was here: the site is asked again."""
        offers, receiving = _without(self.offers, site), _without(self.receiving, site)
        return replace(self, offers=offers, receiving=receiving, ask_at=0.0)

    def ask(self, now: float, *, is_gone: Callable[[str], bool] = lambda site: False) -> Step:
        """Request chunks that are late, and ask silent sites again, but for those that are gone."""
        asked, commands = self, Commands()
        for site, transfer in self.receiving.items():
            asked, more = asked._with(site, *chunk_transfer.tick(transfer, now))
            commands += more
        if now < self.ask_at:
            return asked, commands
        silent = [site for site in self.missing if site not in self.receiving and not is_gone(site)]
        commands += [SendToSite(site, self.requests[site]) for site in silent]
        return replace(asked, ask_at=now + ASK_AGAIN_S), commands

    def site_back(self, site: str, now: float) -> Step:
        """A site's gateway has connected again: it is asked again at once."""
        if site not in self.missing:
            return self, []
        if site in self.receiving:
            return self._with(site, *chunk_transfer.resume(self.receiving[site], now))
        return self, [SendToSite(site, self.requests[site])]

    def _with(self, site: str, transfer: Receiving, asks: list[chunk_transfer.TransferCommand]) -> Step:
        commands = Commands()
        for ask in asks:
            match ask:
                case chunk_transfer.RequestChunks():
                    commands.append(SendToSite(site, ask.request(self.requests[site].federation, site)))
                case WriteChunk():
                    commands.append(ask)
                case chunk_transfer.VerifyBlob(ref):
                    commands.append(CheckSum(site, ref))
        return replace(self, receiving={**self.receiving, site: transfer}), commands


def _without(values: Mapping[str, Value], site: str) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name != site}
