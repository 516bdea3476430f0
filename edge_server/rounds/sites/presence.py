"""Which gateways are connected: a site whose gateway is gone takes all of its devices with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.events import Command, Note, SendTerms
from edge_server.rounds.fleet import Fleet
from schemas.base import is_of_site, site_of
from schemas.messages import Birth, Death, SiteBirth, SiteDeath


@dataclass(frozen=True)
class SitePresence:
    """A gateway as its last birth or death described it; `lost_at` is in seconds, None while it is there."""

    session: int
    lost_at: float | None = None


@dataclass(frozen=True)
class Sites:
    """The sites of a federation by `names`, and those whose gateways have been heard.

    `waiting` are births of devices whose gateway is gone: they are believed once it is back.
    """

    names: tuple[str, ...] = ()
    known: Mapping[str, SitePresence] = field(default_factory=dict)
    waiting: Mapping[str, Birth] = field(default_factory=dict)

    def of(self, device: str) -> str:
        """The site through which a device is reached; empty if it is reached directly."""
        return site_of(device, self.names)

    def is_gone(self, site: str) -> bool:
        """Whether the site's gateway is known to be gone."""
        known = self.known.get(site)
        return known is not None and known.lost_at is not None

    def keep_waiting(self, birth: Birth) -> "Sites":
        """The sites with a birth that waits for its gateway; of several the newest."""
        known = self.waiting.get(birth.device)
        if known is not None and birth.session < known.session:
            return self
        return replace(self, waiting={**self.waiting, birth.device: birth})

    def take_waiting(self, site: str) -> tuple["Sites", list[Birth]]:
        """The sites without the births that waited for this gateway, and those births."""
        births = [birth for device, birth in self.waiting.items() if is_of_site(device, site)]
        gone = {birth.device for birth in births}
        left = {device: birth for device, birth in self.waiting.items() if device not in gone}
        return replace(self, waiting=left), births

    def lost_since(self, site: str, before: float) -> float | None:
        """When the gateway was lost; `before` if it has not been heard; None if it is there."""
        known = self.known.get(site)
        return before if known is None else known.lost_at


Heard = tuple[Sites, Fleet, list[Command]]


def site_born(sites: Sites, fleet: Fleet, birth: SiteBirth) -> Heard:
    """A gateway is there: it gets the terms of the run. Births of its devices follow."""
    known = sites.known.get(birth.site)
    if known is not None and birth.session < known.session:
        return sites, fleet, []
    taken = replace(sites, known={**sites.known, birth.site: SitePresence(birth.session)})
    new = known is None or known.lost_at is not None
    joined = Note("gateway is there", birth.site, kind=EventKind.JOIN, routine=True)
    return taken, fleet, [*([joined] if new else []), SendTerms(birth.site)]


def site_died(sites: Sites, fleet: Fleet, death: SiteDeath, now: float) -> Heard:
    """A gateway is gone, and with it its devices, unless the death is of an older session."""
    known = sites.known.get(death.site)
    if known is not None and (death.session < known.session or known.lost_at is not None):
        return sites, fleet, []
    taken = replace(sites, known={**sites.known, death.site: SitePresence(death.session, now)})
    for device in fleet.alive():
        if is_of_site(device.name, death.site):
            death_of = Death(federation=death.federation, device=device.name, session=device.session)
            fleet = fleet.with_death(death_of, now)
    return taken, fleet, [Note("gateway is gone, and its devices", death.site, kind=EventKind.LOSS)]
