"""Routes messages: sessions, their subscriptions, retained messages and wills."""

import logging
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from edge_server.transport.broker import encoding, packets, wire
from edge_server.transport.broker.session import Delivery, Limits, Message, Session, Subscription, new_message

log = logging.getLogger("edge_server.transport.broker")


class ClientLink(Protocol):
    """A client's connection, as the broker without sockets sees it: seconds of the broker's clock, bytes.

    `accepted`: CONNECT was answered with success; `session` is set while the client is online.
    """

    peer: str
    version: int
    accepted: bool
    session: Session | None
    opened_at: float
    heard_at: float
    patience_s: float
    largest_packet: int
    dropped: int

    @property
    def has_room(self) -> bool:
        """Whether the unsent output is below its bound."""

    def send(self, head: bytes, payload: memoryview | None = None) -> None:
        """Send, or queue until the client reads."""

    def close(self, code: wire.Code) -> None:
        """Send the client the reason, if its version has one, and end the connection once."""


class Exchange:
    """The sessions of one broker and the messages between them; `clock` returns seconds."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._online: dict[str, ClientLink] = {}
        self._sessions: dict[str, Session] = {}
        self._subscriptions: wire.TopicTree[Subscription] = wire.TopicTree()
        self._shares = SharedSubscriptions()
        self._retained = RetainedMessages(limits)

    # --- sessions ---
    def online(self, client_id: str) -> ClientLink | None:
        return self._online.get(client_id)

    def open_session(self, client_id: str, *, clean: bool) -> Session:
        """Return the client's old session, or a new one; MqttError if there are too many."""
        session = self._sessions.get(client_id)
        if session and clean:
            self._end(session)
            session = None
        if session is None:
            if len(self._sessions) >= self._limits.sessions:
                raise wire.MqttError("too many sessions", wire.Code.QUOTA_EXCEEDED)
            session = self._sessions[client_id] = Session(client_id, self._limits)
        return session

    def attach(self, link: ClientLink, session: Session) -> None:
        link.session = session
        self._online[session.client_id] = link

    def detach(self, link: ClientLink) -> None:
        """Take a connection's client offline: its will becomes due, its session starts to expire."""
        session, link.session = link.session, None
        if session is None:
            return
        del self._online[session.client_id]
        session.suspend(self._clock())
        self._settle(session)

    def settle(self) -> None:
        """Publish the wills that are due and end the sessions that expired."""
        for session in [s for s in self._sessions.values() if s.ends_at is not None]:
            self._settle(session)

    def _settle(self, session: Session) -> None:
        now = self._clock()
        if session.will_due_at is not None and session.will_due_at <= now:
            self._publish_will(session)
        if session.ends_at is not None and session.ends_at <= now:
            self._end(session)

    def _end(self, session: Session) -> None:
        del self._sessions[session.client_id]
        for topic_filter in session.subscriptions:
            self._forget(topic_filter, session.client_id)
        self._publish_will(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        if will:
            message = new_message(will.topic, will.payload, will.qos, will.properties, self._clock())
            self.route(will.topic, message, retain=will.retain, sender=session.client_id)

    # --- subscriptions ---
    def subscribe(self, session: Session, topic_filter: str, subscription: Subscription) -> bool:
        """Add or replace a subscription; False if the client has too many."""
        full = len(session.subscriptions) >= self._limits.subscriptions
        if full and topic_filter not in session.subscriptions:
            return False
        session.subscriptions[topic_filter] = subscription
        if share := wire.split_share(topic_filter):
            self._shares.put(share, session.client_id, subscription.qos)
        else:
            self._subscriptions.put(topic_filter, session.client_id, subscription)
        return True

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Remove a subscription; False if there is none."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        self._forget(topic_filter, session.client_id)
        return True

    def _forget(self, topic_filter: str, client_id: str) -> None:
        if share := wire.split_share(topic_filter):
            self._shares.pop(share, client_id)
        else:
            self._subscriptions.pop(topic_filter, client_id)

    def send_retained(self, session: Session, topic_filter: str, qos: int) -> None:
        for message in self._retained.find_covered(topic_filter, self._clock()):
            self._deliver(session.client_id, message, qos=qos, retain=True)

    # --- messages ---
    def route(self, topic: str, message: Message, *, retain: bool, sender: str) -> wire.Code:
        """Deliver a message once to every subscriber, at the highest QoS of its filters."""
        receivers: dict[str, int] = {}
        for client_id, known in self._subscriptions.matching(topic):
            if not (known.no_local and client_id == sender):
                receivers[client_id] = max(known.qos, receivers.get(client_id, 0))
        for client_id, qos in receivers.items():
            self._deliver(client_id, message, qos=qos, retain=False)
        # A shared subscription counts separately: a client may get the same message twice.
        for client_id, qos in self._shares.receivers(topic, self._online):
            self._deliver(client_id, message, qos=qos, retain=False)
        if retain and not self._retained.store(topic, message):
            log.warning("%r: no room to retain a message on %r", sender, topic)
            return wire.Code.QUOTA_EXCEEDED
        return wire.Code.SUCCESS

    def pump(self, link: ClientLink) -> None:
        """Send a client its queued messages, as far as its window and its output have room."""
        session, now = link.session, self._clock()
        while session and link.has_room and (delivery := session.next_delivery(now)):
            if not self._write(link, delivery):
                session.acknowledge(delivery.packet_id)

    def _deliver(self, client_id: str, message: Message, *, qos: int, retain: bool) -> None:
        link = self._online.get(client_id)
        if min(qos, message.qos):
            session = self._sessions[client_id]
            if not session.offer(Delivery(message, retain)) and session.dropped == 1:
                log.warning("%r: its queue is full, messages are dropped", client_id)
            if link:
                self.pump(link)
        elif link and link.has_room:
            self._write(link, Delivery(message, retain))
        elif link:
            link.dropped += 1
            if link.dropped == 1:
                log.warning("%r: reads too slowly, QoS 0 messages are dropped", client_id)

    def _write(self, link: ClientLink, delivery: Delivery) -> bool:
        """Send one message; False if it is larger than the client accepts."""
        message = delivery.message
        head = encoding.publish_head(
            message.topic,
            len(message.payload),
            qos=1 if delivery.packet_id else 0,
            retain=delivery.retain,
            dup=delivery.dup,
            packet_id=delivery.packet_id,
            block=message.properties(self._clock()) if link.version == packets.V5 else b"",
        )
        if len(head) + len(message.payload) > link.largest_packet:
            return False
        link.send(head, message.payload)
        return True


class RetainedMessages:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tree: wire.TopicTree[Message] = wire.TopicTree()
        self._count = 0
        self._bytes = 0

    def store(self, topic: str, message: Message) -> bool:
        """Replace the topic's message, or remove it if the new one is empty; False if there is no room."""
        self._forget(topic)
        if not message.payload:
            return True
        full = self._count >= self._limits.retained_messages
        if full or self._bytes + message.size > self._limits.retained_bytes:
            return False
        self._tree.put(topic, topic, message)
        self._count += 1
        self._bytes += message.size
        return True

    def find_covered(self, topic_filter: str, now: float) -> Iterator[Message]:
        """Yield the messages that a new subscription to `topic_filter` is sent."""
        for topic, message in list(self._tree.find_covered(topic_filter)):
            if message.is_expired(now):
                self._forget(topic)
            else:
                yield message

    def _forget(self, topic: str) -> None:
        if old := self._tree.pop(topic, topic):
            self._count -= 1
            self._bytes -= old.size


# Shared subscriptions: each message goes to one of a group's members, in turn (MQTT 5.0, section 4.8.2).


@dataclass
class _Group:
    """The members' QoS by client identifier; the member of the last turn comes last."""

    members: dict[str, int] = field(default_factory=dict)

    def next(self, online: Container[str]) -> tuple[str, int]:
        """The next member in turn among those online, or else among all."""
        client_id = next((member for member in self.members if member in online), next(iter(self.members)))
        qos = self.members[client_id] = self.members.pop(client_id)
        return client_id, qos


class SharedSubscriptions:
    """All groups of shared subscriptions, by filter."""

    def __init__(self) -> None:
        self._groups: wire.TopicTree[_Group] = wire.TopicTree()

    def put(self, share: tuple[str, str], client_id: str, qos: int) -> None:
        name, inner = share
        group = self._groups.pop(inner, name) or _Group()
        group.members[client_id] = qos
        self._groups.put(inner, name, group)

    def pop(self, share: tuple[str, str], client_id: str) -> None:
        name, inner = share
        group = self._groups.pop(inner, name)
        if group is None:
            return
        group.members.pop(client_id, None)
        if group.members:
            self._groups.put(inner, name, group)

    def receivers(self, topic: str, online: Container[str]) -> Iterator[tuple[str, int]]:
        """One member of every group that wants this topic, with the QoS that it asked for."""
        for _, group in self._groups.matching(topic):
            yield group.next(online)
