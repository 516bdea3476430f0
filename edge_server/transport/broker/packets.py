"""MQTT control packets as frozen values, the same for 3.1.1 and 5.

The codec (`decoding`, `encoding`) is our own: PyPI's `mqtt5` speaks MQTT 5 only and comes as a compiled
wheel, while devices still speak 3.1.1 too, and the two versions share nearly all of their layout.
QoS 2 and enhanced authentication have no packets here: the broker offers neither.
"""

from dataclasses import dataclass
from enum import IntEnum

from edge_server.transport.broker.properties import Properties
from edge_server.transport.broker.wire import Code

V311 = 4
V5 = 5

Payload = bytes | memoryview


class Kind(IntEnum):
    """The upper four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


@dataclass(frozen=True, slots=True)
class Will:
    """What a client asks to be published when it vanishes."""

    topic: str
    payload: Payload
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """The first packet of a client; `keep_alive` in seconds, 0 for none."""

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class ConnAck:
    """The broker's answer to CONNECT; `code` is a Code in MQTT 5 and 0..5 in 3.1.1."""

    session_present: bool = False
    code: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """An application message; `packet_id` is 0 exactly at QoS 0."""

    topic: str
    payload: Payload
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class PubAck:
    """A QoS 1 message arrived."""

    packet_id: int
    code: int = Code.SUCCESS
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """One subscription as asked for; `retain_handling` 0 always, 1 for a new one only, 2 never."""

    topic: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    packet_id: int
    filters: tuple[Filter, ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class SubAck:
    """One granted QoS or failure code per filter."""

    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class UnsubAck:
    """One code per filter in MQTT 5, none in 3.1.1."""

    packet_id: int
    codes: tuple[int, ...] = ()
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class PingReq:
    """Is the broker there?"""


@dataclass(frozen=True, slots=True)
class PingResp:
    """It is."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The sender's last packet; in 3.1.1 only clients send it, without a code."""

    code: int = Code.SUCCESS
    properties: Properties = ()


Packet = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
)
