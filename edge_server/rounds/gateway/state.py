"""The state of a gateway."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_client.transport.chunk_transfer import Receiving
from edge_server.rounds.gateway.events import Command
from edge_server.rounds.participant import Participant
from edge_server.rounds.sites.asked_sums import AskedSums
from schemas.base import is_of_site, site_of
from schemas.messages import Birth, SiteSum, SiteTerms, SumRequest, Task, Update

Chunks = frozenset[int]


@dataclass(frozen=True)
class SumWork:
    """A requested sum, the parts of it that were `asked` of sites within this one, and the `answer`."""

    request: SumRequest
    asked: AskedSums = field(default_factory=AskedSums)
    answer: SiteSum | None = None


@dataclass(frozen=True)
class Gateway:
    """The gateway of a `site`, with all that it knows of its devices by name.

    `births` are those of connected devices, `heard` their newest sessions by process, `tasks` their last
    ones, `uploads` what they send, `updates` those that were examined. `fetches` are the blobs on their way
    from above, `held` those that are here, and `waiting` the chunks that devices have requested of blobs to
    come, by digest and device. `pending` are the updates whose receipts were not answered. Without `terms`
    nothing can be examined; until the `session`-th connection is `answered` with them, the gateway's birth is
    repeated at `born_at` (seconds). `before` are the sessions of devices that were there before a restart;
    those that are not back at `missed_at` (seconds) are reported as lost. `sessions` are those of the
    gateways of sites within this one, `epochs` the newest ones in which runs are served.
    """

    federation: str
    site: str
    linked: bool = False
    session: int = 0
    terms: SiteTerms | None = None
    answered: bool = False
    born_at: float = 0.0
    births: Mapping[str, Birth] = field(default_factory=dict)
    heard: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    missed_at: float | None = None
    tasks: Mapping[str, Task] = field(default_factory=dict)
    fetches: Mapping[str, Receiving] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    waiting: Mapping[str, Mapping[str, Chunks]] = field(default_factory=dict)
    uploads: Mapping[str, Participant] = field(default_factory=dict)
    updates: Mapping[str, Update] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    sums: Mapping[str, SumWork] = field(default_factory=dict)
    sessions: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)

    @property
    def sites(self) -> tuple[str, ...]:
        named = self.terms.sites if self.terms is not None else ()
        return tuple(site for site in named if is_of_site(site, self.site))

    def below(self, device: str) -> str:
        """The site within this one through which a device is reached; empty if it is reached directly."""
        return site_of(device, self.sites)

    def in_use(self) -> frozenset[str]:
        blobs = {ref.digest for task in self.tasks.values() for ref in task.blobs.values()}
        updates = {
            ref.digest for u in self.updates.values() for ref in (u.blob, u.sent_blob) if ref is not None
        }
        claims = {part.update.blob.digest for part in self.uploads.values() if part.update is not None}
        offers = [
            offer for work in self.sums.values() for offer in (work.answer, *work.asked.offers.values())
        ]
        sums = {offer.blob.digest for offer in offers if offer is not None and offer.blob is not None}
        return frozenset(blobs | updates | claims | sums | self.fetches.keys())


Step = tuple[Gateway, list[Command]]


def with_upload(gateway: Gateway, participant: Participant) -> Gateway:
    return replace(gateway, uploads={**gateway.uploads, participant.device: participant})


def without_upload(gateway: Gateway, device: str) -> Gateway:
    return replace(gateway, uploads={name: part for name, part in gateway.uploads.items() if name != device})
