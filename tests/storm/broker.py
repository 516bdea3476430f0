"""A broker and its clients in memory: sessions, retained messages, last wills; loss, repeats, partitions.

The client stands in for paho's, so that the product's own `Link`, `Outbox` and `Parts` run. Messages of one
connection arrive in order unless a fault says otherwise. A broker acknowledges what it then loses: neither
side can trust an acknowledgement. Sessions end with their connections, as both sides ask for clean ones.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import paho.mqtt.client as paho

from tests.storm.faults import Fault
from tests.storm.timeline import Timeline

LATENCY_S = (0.002, 0.05)
KEEPALIVE_S = 12.0
"""Seconds of silence after which broker and client give a connection up; scaled down, as all times here."""
WITH_WILL = 0x04
ECHO = "/echo"
"""Topics on which nothing is lost: a lost echo means, by design, a broker that drops large packets."""
LEASE = "/lease"
"""Topics whose messages do not overtake each other: the lease relies on the order of a topic."""


@dataclass
class Weather:
    """Faults of the network; `draw` decides about each message."""

    timeline: Timeline
    draw: random.Random
    faults: list[Fault] = field(default_factory=list)

    def holding(self, kind: str, client: str) -> Iterable[Fault]:
        """The conditions of this kind that hold now for a client."""
        now = self.timeline.now
        return (
            fault
            for fault in self.faults
            if fault.kind == kind and fault.at <= now < fault.over and fault.target in ("", client)
        )

    def happens(self, kind: str, client: str) -> bool:
        """Whether a message of a client is lost, or repeated."""
        return any(self.draw.random() < fault.size for fault in self.holding(kind, client))

    def detour_s(self, client: str) -> float:
        """Additional seconds on the way, by which messages overtake each other."""
        return sum(self.draw.uniform(0, fault.size) for fault in self.holding("reordering", client))

    def cut_off(self, client: str) -> bool:
        """Whether nothing passes between a client and the broker."""
        return any(True for _ in self.holding("partition", client))


class Connection:
    """One connection of a client, seen from the network."""

    def __init__(self, broker: "Broker", client: "Client", will: tuple[str, bytes, bool] | None) -> None:
        self.broker, self.client, self.will = broker, client, will
        self.filters: dict[str, int] = {}
        self.open_at_broker = self.open_at_client = True
        self.reaches = {"up": 0.0, "down": 0.0}
        self.held: list[tuple[str, Callable[[], None], bool]] = []
        self.silent_since: float | None = None

    def carry(
        self, way: str, arrive: Callable[[], None], *, again: bool = True, ordered: bool = False
    ) -> None:
        """Carry a packet `up` to the broker or `down` to the client.

        Only `again` lets faults repeat and overtake it: not what changes the broker's state, whose last word
        is that of the client, nor acknowledgements. What is `ordered` overtakes nothing.
        """
        if self.broker.weather.cut_off(self.client.owner) or self.client.is_paused():
            self.held.append((way, arrive, ordered))
            self._note_silence()
            return
        weather, timeline = self.broker.weather, self.broker.timeline
        delay = weather.draw.uniform(*LATENCY_S)
        detour = weather.detour_s(self.client.owner) if again and not ordered else 0.0
        at = max(self.reaches[way], timeline.now + delay)
        if not detour:
            self.reaches[way] = at
        timeline.post(at + detour - timeline.now, partial(self._arrive, way, arrive, ordered))
        if again and weather.happens("repeats", self.client.owner):
            timeline.post(
                at + weather.draw.uniform(0, 3) - timeline.now, partial(self._arrive, way, arrive, ordered)
            )

    def _arrive(self, way: str, arrive: Callable[[], None], ordered: bool) -> None:
        if way == "down" and self.open_at_client and self.client.is_paused():
            self.held.append((way, arrive, ordered))
        elif self.open_at_broker if way == "up" else self.open_at_client:
            arrive()

    def _note_silence(self) -> None:
        if self.silent_since is None:
            self.silent_since = self.broker.timeline.now
            self.broker.timeline.post(KEEPALIVE_S, partial(self._give_up, self.silent_since))

    def watch(self) -> None:
        """A condition that silences the connection has begun."""
        if self.broker.weather.cut_off(self.client.owner) or self.client.is_paused():
            self._note_silence()

    def heal(self) -> None:
        """A condition is over: what was held is carried, in order."""
        if self.broker.weather.cut_off(self.client.owner) or self.client.is_paused():
            return
        self.silent_since = None
        held, self.held = self.held, []
        for way, arrive, ordered in held:
            self.carry(way, arrive, ordered=ordered)
        if self.open_at_client and not self.open_at_broker:
            self.client.lost("connection reset")

    def _give_up(self, since: float) -> None:
        """Nothing was heard for the keepalive: the broker ends the connection, and so does the client."""
        if self.silent_since != since:
            return
        self.broker.ended(self)
        if not self.client.is_paused():
            self.client.lost("keepalive timeout")

    def reset(self) -> None:
        """The connection breaks, and both sides notice."""
        self.broker.ended(self)
        self.client.lost("connection reset")


class Broker:
    """Routes messages by topic and keeps retained ones."""

    def __init__(self, timeline: Timeline, weather: Weather) -> None:
        self.timeline, self.weather = timeline, weather
        self.up = True
        self.connections: dict[str, Connection] = {}
        self._retained: dict[str, bytes] = {}

    def accept(self, connection: Connection, client_id: str) -> None:
        """A client has connected; an earlier connection of its name ends."""
        earlier = self.connections.get(client_id)
        if earlier is not None:
            self.ended(earlier)
            earlier.client.lost("taken over", of=earlier)
        self.connections[client_id] = connection

    def ended(self, connection: Connection, *, with_will: bool = True) -> None:
        """A connection is over; its last will is published."""
        if not connection.open_at_broker:
            return
        connection.open_at_broker = False
        name = connection.client.client_id
        if self.connections.get(name) is connection:
            del self.connections[name]
        if with_will and connection.will is not None:
            topic, payload, retain = connection.will
            self.publish(topic, payload, retain=retain, sender=connection.client.owner)

    def subscribe(self, connection: Connection, topic_filter: str, qos: int) -> None:
        """Subscribe a client and send it what is retained."""
        connection.filters[topic_filter] = qos
        for topic, payload in self._retained.items():
            if matches(topic_filter, topic):
                heard = partial(connection.client.hear, connection, topic, payload, True)
                connection.carry("down", heard, ordered=topic.endswith(LEASE))

    def publish(self, topic: str, payload: bytes, *, retain: bool, sender: str) -> None:
        """Hand a message to all that have subscribed, unless it is lost."""
        self.timeline.note(sender, topic, payload)
        if retain:
            self._retained[topic] = payload
        if not topic.endswith(ECHO) and self.weather.happens("loss", sender):
            return
        for connection in list(self.connections.values()):
            lost = not topic.endswith(ECHO) and self.weather.happens("loss", connection.client.owner)
            if not lost and any(matches(each, topic) for each in connection.filters):
                heard = partial(connection.client.hear, connection, topic, payload, False)
                connection.carry("down", heard, ordered=topic.endswith(LEASE))

    def stop(self, *, forgets: bool) -> None:
        """The broker dies: no last will is published."""
        self.up = False
        for connection in list(self.connections.values()):
            self.ended(connection, with_will=False)
            connection.client.lost("the broker is gone", of=connection)
        if forgets:
            self._retained.clear()

    def start(self) -> None:
        """The broker is back."""
        self.up = True


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic matches a filter with `+` and `#`."""
    wanted, parts = topic_filter.split("/"), topic.split("/")
    for number, want in enumerate(wanted):
        if want == "#":
            return True
        if number >= len(parts) or want not in ("+", parts[number]):
            return False
    return len(wanted) == len(parts)


class Client:
    """Stands in for `paho.mqtt.client.Client`; `owner` is whom faults of its connection name.

    `route` chooses broker and owner by the host to which it connects.
    """

    broker: Broker
    owner: str
    route: Callable[[str], None]
    is_paused: Callable[[], bool]
    is_dead: Callable[[], bool]

    def __init__(self, version: Any, *, client_id: str, protocol: Any, **more: Any) -> None:
        self.client_id, self.protocol = client_id, protocol
        self._connection: Connection | None = None
        self._running = self._trying = False
        self._unacknowledged: dict[int, tuple[str, bytes, bool]] = {}
        self._mid = 0
        self._will: tuple[str, bytes, bool] | None = None
        self._first_s, self._longest_s, self._delay_s = 1.0, 60.0, 1.0

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_set") or name in ("enable_logger", "username_pw_set"):
            return lambda *args, **more: None
        raise AttributeError(name)

    def reconnect_delay_set(self, first: float, longest: float) -> None:
        self._first_s, self._longest_s, self._delay_s = first, longest, first

    def will_set(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self._will = topic, payload, retain

    # --- connecting ---
    def connect_async(self, host: str, port: int, **terms: Any) -> None:
        self.route(host)

    def loop_start(self) -> None:
        self._running = True
        self._try_soon(0.0)

    def loop_stop(self) -> None:
        self._running = False

    def is_connected(self) -> bool:
        return self._connection is not None

    def _try_soon(self, delay: float) -> None:
        if not self._trying:
            self._trying = True
            self.broker.timeline.post(delay, self._try)

    def _try(self) -> None:
        self._trying = False
        if self.is_dead() or not self._running or self._connection is not None:
            return
        if self.is_paused():
            self._try_soon(0.5)
            return
        self.on_pre_connect(self, None)
        if not self.broker.up or self.broker.weather.cut_off(self.owner):
            self.on_connect_fail(self, None)
            self._try_later()
            return
        self._connection = Connection(self.broker, self, self._will)
        self.broker.accept(self._connection, self.client_id)
        self._delay_s = self._first_s
        reason = SimpleNamespace(is_failure=False, value=0)
        self.on_connect(self, None, None, reason, SimpleNamespace(MaximumPacketSize=None))
        for mid in self._unacknowledged:
            self._carry(mid)

    def _try_later(self) -> None:
        self._try_soon(self._delay_s)
        self._delay_s = min(self._delay_s * 2, self._longest_s)

    def lost(self, why: str, *, of: Connection | None = None) -> None:
        """The connection is gone."""
        connection = self._connection
        if connection is None or (of is not None and of is not connection):
            return
        if self.is_paused():
            return  # it finds out when it goes on
        connection.open_at_client, self._connection = False, None
        if self.is_dead():
            return
        flags = SimpleNamespace(is_disconnect_packet_from_server=False)
        self.on_disconnect(self, None, flags, SimpleNamespace(value=0x80), None)
        if self._running:
            self._try_later()

    def disconnect(self, reason: Any = None) -> None:
        """End the connection after what was published before; the reason may ask for the last will."""
        self._running = False
        connection, self._connection = self._connection, None
        with_will = reason is not None and reason.value == WITH_WILL
        if connection is not None:
            connection.open_at_client = False
            connection.carry("up", lambda: self.broker.ended(connection, with_will=with_will), again=False)

    def die(self) -> None:
        """The process is killed: its socket closes."""
        self._running = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.open_at_client = False
            self.broker.timeline.post(0.01, lambda: self.broker.ended(connection))

    @property
    def connection(self) -> Connection | None:
        """The connection, if there is one."""
        return self._connection

    # --- messages ---
    def subscribe(self, topic: Any, qos: int = 0) -> None:
        for each, level in [(topic, qos)] if isinstance(topic, str) else topic:
            self._send(partial(self._subscribed, each, level))

    def _subscribed(self, topic: str, qos: int, connection: Connection) -> None:
        connection.carry("down", self._granted, again=False)
        self.broker.subscribe(connection, topic, qos)

    def _granted(self) -> None:
        self.on_subscribe(self, None, 0, [SimpleNamespace(is_failure=False)], None)

    def unsubscribe(self, topics: Any) -> None:
        gone = [topics] if isinstance(topics, str) else list(topics)
        self._send(lambda connection: [connection.filters.pop(topic, None) for topic in gone])

    def _send(self, at_broker: Callable[[Connection], Any]) -> None:
        connection = self._connection
        if connection is not None:
            connection.carry("up", lambda: at_broker(connection), again=False)

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> Any:
        self._mid += 1
        online = self._connection is not None
        if qos:
            self._unacknowledged[self._mid] = topic, payload, retain
            if online:
                self._carry(self._mid)
        else:
            self._send(lambda _: self.broker.publish(topic, payload, retain=retain, sender=self.owner))
        rc = paho.MQTT_ERR_SUCCESS if online else paho.MQTT_ERR_NO_CONN
        return SimpleNamespace(mid=self._mid, rc=rc, wait_for_publish=lambda timeout: None)

    def _carry(self, mid: int) -> None:
        connection = self._connection
        assert connection is not None
        topic, payload, retain = self._unacknowledged[mid]
        published = partial(self._published, connection, mid, topic, payload, retain)
        connection.carry("up", published, again=not retain)

    def _published(self, connection: Connection, mid: int, topic: str, payload: bytes, retain: bool) -> None:
        """The broker has a message, and acknowledges it."""
        self.broker.publish(topic, payload, retain=retain, sender=self.owner)
        connection.carry("down", partial(self._acknowledged, mid), again=False)

    def _acknowledged(self, mid: int) -> None:
        if self._unacknowledged.pop(mid, None) is not None:
            self.on_publish(self, None, mid, None, None)

    def hear(self, connection: Connection, topic: str, payload: bytes, retained: bool) -> None:
        """A message arrives."""
        if connection is self._connection and not self.is_dead():
            self.on_message(self, None, SimpleNamespace(topic=topic, payload=payload, retain=retained))
