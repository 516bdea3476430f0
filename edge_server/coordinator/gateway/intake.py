"""Decodes what a gateway hears, and refuses what no gateway or device of its site may say."""

from edge_server.coordinator.publisher import RateLimit
from edge_server.rounds.events import ChunkReceived, SiteChunkReceived, SiteSpoke
from edge_server.rounds.gateway import events
from edge_server.rounds.gateway.state import Gateway
from edge_server.transport.broker_connection import check_sender, read_of_site
from schemas import messages
from schemas.base import is_of_site
from schemas.errors import PeerError, Reason
from schemas.messages.remote import DiagnosticAnswer
from schemas.tensors.chunks import decode_chunk
from schemas.topics import Channel, DeviceTopic, SiteTopic, StateTopic, parse_topic


def read_above(topic: str, payload: bytes, gateway: Gateway) -> events.Event | None:
    """What has come from above; raises `PeerError` for anything that does not belong there."""
    where = parse_topic(topic)
    if isinstance(where, StateTopic):
        message = messages.decode_message(payload, federation=gateway.federation)
        if not isinstance(message, messages.RoundAnnouncement | messages.FederationEnd):
            raise PeerError(f"'{message.kind}' is not an announcement", reason=Reason.UNKNOWN_KIND)
        return events.Announced(message)
    if not isinstance(where, SiteTopic):
        raise PeerError(f"nothing is expected on {topic}")
    if where.channel is Channel.DOWN_BLOB:
        return events.ChunkFromAbove(decode_chunk(payload))
    message = messages.decode_message(payload, federation=gateway.federation)
    if not where.device:
        if not isinstance(message, messages.ToSite):
            raise PeerError(f"a server does not send '{message.kind}' to a site", reason=Reason.UNKNOWN_KIND)
        return events.MessageForSite(message)
    if where.channel is Channel.DOWN_FLEET and isinstance(message, messages.DiagnosticRequest):
        check_sender(where, kind=message.kind, device=message.device)
        return events.MessageForDevice(where.device, message)
    if not isinstance(message, messages.FromServer) or isinstance(
        message, messages.RoundAnnouncement | messages.FederationEnd
    ):
        raise PeerError(f"a server does not send '{message.kind}' to a device", reason=Reason.UNKNOWN_KIND)
    return events.MessageForDevice(where.device, message)


def read_below(topic: DeviceTopic | SiteTopic, payload: bytes, gateway: Gateway) -> events.Event | None:
    """What has come from the site; raises `PeerError` for what speaks for devices of others."""
    _check_way(topic, gateway)
    if isinstance(topic, SiteTopic) and not topic.device:
        return _of_site(topic.site, topic.channel, payload, gateway)
    if topic.channel is Channel.UP_ROLLOUT:
        return None  # a rollout in the site has its own connection
    if topic.channel is Channel.UP_BLOB:
        return ChunkReceived(topic.device, decode_chunk(payload))
    message = messages.decode_message(payload, federation=gateway.federation)
    if topic.channel is Channel.UP_FLEET:
        if not isinstance(message, DiagnosticAnswer):
            return None  # a rollout of the client in the site has its own connection
        check_sender(topic, kind=message.kind, device=message.device)
        return events.DeviceSpoke(message)
    if not isinstance(message, messages.FromDevice):
        raise PeerError(f"a device does not send '{message.kind}'", reason=Reason.UNKNOWN_KIND)
    check_sender(topic, kind=message.kind, device=message.device)
    if (
        isinstance(message, messages.Update)
        and message.receipt is not None
        and isinstance(topic, DeviceTopic)
    ):
        raise PeerError(
            f"{topic.device} is not a gateway: it cannot give receipts", reason=Reason.WRONG_SENDER
        )
    return events.DeviceSpoke(message)


def _check_way(topic: DeviceTopic | SiteTopic, gateway: Gateway) -> None:
    """Raise `PeerError` unless a device is one of the site, and is heard by the way that its name says."""
    if isinstance(topic, SiteTopic) and topic.site not in gateway.sites:
        raise PeerError(f"'{topic.site}' is not a site within '{gateway.site}'", reason=Reason.WRONG_SENDER)
    if not topic.device:
        return
    way = topic.site if isinstance(topic, SiteTopic) else ""
    if not is_of_site(topic.device, gateway.site):
        detail = f"'{topic.device}' is not a device of the site: its name must begin with '{gateway.site}.'"
        raise PeerError(detail, reason=Reason.WRONG_SENDER)
    if gateway.below(topic.device) != way:
        detail = f"{topic.device} speaks on a topic that is not that of its site"
        raise PeerError(detail, reason=Reason.WRONG_SENDER)


def _of_site(site: str, channel: Channel, payload: bytes, gateway: Gateway) -> events.Event:
    if channel is Channel.UP_BLOB:
        return SiteChunkReceived(site, decode_chunk(payload))
    return SiteSpoke(site, read_of_site(site, payload, gateway.federation))


# Births within sites that the gateway's terms do not name yet.
#
# A broker sends retained births once, and the server's terms come later than those of a broker at the site.

MAX_EARLY = 10_000
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
        if topic.channel is Channel.BIRTH and (topic in self._kept or len(self._kept) < MAX_EARLY):
            self._kept.pop(topic, None)
            self._kept[topic] = payload
        return gateway.terms is None

    def take(self, gateway: Gateway) -> list[Heard]:
        """Remove and return those whose sites are known now, in the order in which they came."""
        known = [(topic, payload) for topic, payload in self._kept.items() if topic.site in gateway.sites]
        for topic, _ in known:
            del self._kept[topic]
        return known


MAX_REQUESTS, WINDOW_S = 200, 10.0  # Requests from above that are passed on in this time, repeats included
MAX_KNOWN = 1_000


class PassedRequests:
    """Knows the requests from above, so that only answers to them use the far link."""

    def __init__(self) -> None:
        self._limit = RateLimit(MAX_REQUESTS, WINDOW_S)
        self._known: dict[tuple[str, str], None] = {}

    def admit(self, request: messages.DiagnosticRequest, now: float) -> None:
        """Remember a request; raises `PeerError` if there are too many."""
        if not self._limit.allows(now):
            detail = f"more than {MAX_REQUESTS} requests for diagnostics in {WINDOW_S:.0f} s"
            raise PeerError(detail, reason=Reason.TOO_MANY_REQUESTS)
        key = (request.device, request.request)
        self._known.pop(key, None)
        self._known[key] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def is_answer(self, message: DiagnosticAnswer) -> bool:
        """Whether a device answers a request from above."""
        return (message.device, message.request) in self._known
