"""Births within sites that the gateway's terms do not name yet.

A broker sends retained births once, and the server's terms come later than those of a broker at the site.
"""

from edge_server.rounds.gateway.state import Gateway
from schemas.names import is_of_site
from schemas.topics import Channel, DeviceTopic, SiteTopic

MOST_EARLY = 10_000
Heard = tuple[SiteTopic, bytes]


class EarlyBirths:
    """Keeps the last birth or death of each topic until its site is known."""

    def __init__(self) -> None:
        self._kept: dict[SiteTopic, bytes] = {}

    def keep(self, topic: DeviceTopic | SiteTopic, payload: bytes, gateway: Gateway) -> bool:
        """Keep a birth of a site that is not known; returns whether to wait for terms before judging it.

        Anything else from there is repeated by who has sent it.
        """
        if not isinstance(topic, SiteTopic) or topic.site in gateway.sites:
            return False
        if not is_of_site(topic.site, gateway.site):
            return False
        if topic.channel is Channel.BIRTH and (topic in self._kept or len(self._kept) < MOST_EARLY):
            self._kept.pop(topic, None)
            self._kept[topic] = payload
        return gateway.terms is None

    def take(self, gateway: Gateway) -> list[Heard]:
        """Remove and return those whose sites are known now, in the order in which they came."""
        known = [(topic, payload) for topic, payload in self._kept.items() if topic.site in gateway.sites]
        for topic, _ in known:
            del self._kept[topic]
        return known
