"""The broker itself, without sockets: it admits clients and acts on each packet that they send."""

import logging
import time
import uuid
from collections.abc import Callable

from edge_server.transport.broker import encoding, packets, properties
from edge_server.transport.broker.exchange import ClientLink, Exchange
from edge_server.transport.broker.properties import Prop, Property
from edge_server.transport.broker.session import NEVER_EXPIRES, Limits, Session, Subscription, new_message
from edge_server.transport.broker.wire import Code, MqttError, check_filter, split_share

log = logging.getLogger("edge_server.transport.broker")


class Broker:
    """One broker; every method is called from one thread and returns at once."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self._links: set[ClientLink] = set()
        self._exchange = Exchange(limits, clock)

    def admit_link(self, link: ClientLink) -> bool:
        """Admit a new connection; False where there are too many."""
        if len(self._links) >= self.limits.connections:
            log.warning("%s: refused, %d connections are open", link.peer, len(self._links))
            return False
        self._links.add(link)
        return True

    def on_closed(self, link: ClientLink) -> None:
        self._links.discard(link)
        self._exchange.detach(link)

    def on_failure(self, link: ClientLink, error: MqttError) -> None:
        """A client broke the protocol: one line in the log, and it is sent away."""
        # Repr, here and below: a client identifier may hold line breaks.
        log.warning("%r (%s): %s", link.session and link.session.client_id, link.peer, error)
        self._exchange.detach(link)
        link.close(error.code)

    def writable(self, link: ClientLink) -> None:
        """A client read what it was sent."""
        self._exchange.pump(link)

    def tick(self) -> None:
        """Once a second: silent clients, connections without CONNECT, due wills, expired sessions."""
        now = self.clock()
        for link in list(self._links):
            if link.session and now - link.heard_at > link.patience_s:
                log.info("%r (%s): silent for too long", link.session.client_id, link.peer)
                self._exchange.detach(link)
                link.close(Code.KEEP_ALIVE_TIMEOUT)
            elif not link.accepted and now - link.opened_at > self.limits.connect_seconds:
                log.info("%s: no CONNECT in time", link.peer)
                link.close(Code.PROTOCOL_ERROR)
        self._exchange.settle()

    def shut_down(self) -> None:
        """Send every client away; sessions and retained messages end with the process."""
        for link in list(self._links):
            link.close(Code.SHUTTING_DOWN)

    def on_packet(self, link: ClientLink, packet: packets.Packet) -> None:
        """Act on one packet; MqttError where the client may not send it now."""
        session = link.session
        match packet:
            case packets.Connect() if session is None:
                self._connect(link, packet)
            case _ if session is None:
                raise MqttError(f"{type(packet).__name__} before CONNECT", Code.PROTOCOL_ERROR)
            case packets.Publish():
                self._publish(link, session, packet)
            case packets.PubAck():
                session.acknowledge(packet.packet_id)
                self._exchange.pump(link)
            case packets.Subscribe():
                self._subscribe(link, session, packet)
            case packets.Unsubscribe():
                self._unsubscribe(link, session, packet)
            case packets.PingReq():
                link.send(encoding.encode(packets.PingResp(), link.version))
            case packets.Disconnect():
                self._disconnect(link, session, packet)
            case _:
                raise MqttError(f"{type(packet).__name__} from a connected client", Code.PROTOCOL_ERROR)

    def _connect(self, link: ClientLink, packet: packets.Connect) -> None:
        link.version = packet.version
        _check_connect(packet)
        assigned = "" if packet.client_id else f"auto-{uuid.uuid4().hex}"
        client_id = packet.client_id or assigned
        if old := self._exchange.online(client_id):
            log.info("%r (%s): taken over by %s", client_id, old.peer, link.peer)
            # Its will precedes the new CONNACK, so that a birth sent after that comes last.
            self._exchange.detach(old)
            old.close(Code.TAKEN_OVER)
        session = self._exchange.open_session(client_id, clean=packet.clean_start)
        present = session.ends_at is not None
        session.expiry_s = self._expiry_s(packet)
        session.will = packet.will
        session.resume(properties.number(packet.properties, Prop.RECEIVE_MAXIMUM, 0xFFFF))
        link.accepted = True
        link.patience_s = 1.5 * packet.keep_alive or float("inf")
        link.largest_packet = properties.number(packet.properties, Prop.MAXIMUM_PACKET_SIZE, 1 << 28)
        self._exchange.attach(link, session)
        answer = packets.ConnAck(present, properties=self._make_properties(assigned, session))
        link.send(encoding.encode(answer, link.version))
        self._exchange.pump(link)

    def _expiry_s(self, packet: packets.Connect) -> float:
        """Seconds that the session outlives its connection."""
        default = 0 if packet.version == packets.V5 or packet.clean_start else NEVER_EXPIRES
        asked = properties.number(packet.properties, Prop.SESSION_EXPIRY, default)
        return min(asked, self.limits.session_seconds)

    def _make_properties(self, assigned: str, session: Session) -> properties.Properties:
        announced = (
            Property(Prop.SESSION_EXPIRY, int(session.expiry_s)),
            Property(Prop.MAXIMUM_QOS, 1),
            Property(Prop.MAXIMUM_PACKET_SIZE, self.limits.packet_bytes),
            Property(Prop.TOPIC_ALIAS_MAXIMUM, 0),
            Property(Prop.SUBSCRIPTION_IDS_AVAILABLE, 0),
            Property(Prop.SHARED_SUBSCRIPTIONS_AVAILABLE, 1),
        )
        return (*announced, Property(Prop.ASSIGNED_CLIENT_ID, assigned)) if assigned else announced

    def _publish(self, link: ClientLink, session: Session, packet: packets.Publish) -> None:
        if _has(packet.properties, Prop.SUBSCRIPTION_ID):
            raise MqttError("a subscription identifier from a client", Code.PROTOCOL_ERROR)
        message = new_message(packet.topic, packet.payload, packet.qos, packet.properties, self.clock())
        code = self._exchange.route(packet.topic, message, retain=packet.retain, sender=session.client_id)
        if packet.qos:
            link.send(encoding.encode(packets.PubAck(packet.packet_id, code), link.version))

    def _subscribe(self, link: ClientLink, session: Session, packet: packets.Subscribe) -> None:
        if _has(packet.properties, Prop.SUBSCRIPTION_ID):
            raise MqttError("subscription identifiers are not supported", Code.NO_SUBSCRIPTION_IDS)
        known = set(session.subscriptions)
        codes = [self._grant(session, wanted, link.version) for wanted in packet.filters]
        answer = codes if link.version == packets.V5 else [min(code, Code.UNSPECIFIED) for code in codes]
        link.send(encoding.encode(packets.SubAck(packet.packet_id, tuple(answer)), link.version))
        for wanted, code in zip(packet.filters, codes, strict=True):
            new, handling = wanted.topic not in known, wanted.retain_handling
            retained = handling == 0 or (handling == 1 and new)
            if retained and code < Code.UNSPECIFIED and not split_share(wanted.topic):
                self._exchange.send_retained(session, wanted.topic, code)

    def _grant(self, session: Session, wanted: packets.Filter, version: int) -> int:
        """Return the granted QoS, or the code that says why there is none."""
        try:
            check_filter(wanted.topic)
        except MqttError as refused:
            return refused.code
        shared = split_share(wanted.topic) is not None
        if shared and version != packets.V5:
            return Code.NO_SHARED_SUBSCRIPTIONS
        if shared and wanted.no_local:
            raise MqttError("a shared subscription with no-local", Code.PROTOCOL_ERROR)
        subscription = Subscription(min(wanted.qos, 1), wanted.no_local)
        granted = self._exchange.subscribe(session, wanted.topic, subscription)
        return subscription.qos if granted else Code.QUOTA_EXCEEDED

    def _unsubscribe(self, link: ClientLink, session: Session, packet: packets.Unsubscribe) -> None:
        known = [self._exchange.unsubscribe(session, topic_filter) for topic_filter in packet.filters]
        codes = tuple(Code.SUCCESS if found else Code.NO_SUBSCRIPTION for found in known)
        link.send(encoding.encode(packets.UnsubAck(packet.packet_id, codes), link.version))

    def _disconnect(self, link: ClientLink, session: Session, packet: packets.Disconnect) -> None:
        expiry = properties.number(packet.properties, Prop.SESSION_EXPIRY, -1)
        if expiry > 0 and not session.expiry_s:
            raise MqttError("a session expiry after none was asked for", Code.PROTOCOL_ERROR)
        if expiry >= 0:
            session.expiry_s = min(expiry, self.limits.session_seconds)
        if packet.code == Code.SUCCESS:
            session.will = None
        self._exchange.detach(link)
        link.close(Code.SUCCESS)


def _check_connect(packet: packets.Connect) -> None:
    """Raise MqttError for what this broker cannot do for a client."""
    if _has(packet.properties, Prop.AUTHENTICATION_METHOD):
        raise MqttError("enhanced authentication is not supported", Code.BAD_AUTHENTICATION)
    if packet.version != packets.V5 and not packet.client_id and not packet.clean_start:
        raise MqttError("an empty client identifier with clean_session 0", Code.BAD_CLIENT_ID)
    if packet.version == packets.V5 and packet.will and packet.will.qos == 2:
        raise MqttError("will QoS 2 is not supported", Code.QOS_NOT_SUPPORTED)


def _has(values: properties.Properties, key: Prop) -> bool:
    return any(item.key is key for item in values)
