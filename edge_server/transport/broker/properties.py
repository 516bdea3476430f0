"""MQTT 5 properties: which exist, what they hold and which packet may carry them (section 2.2.2.2)."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from edge_server.transport.broker import wire

Value = int | str | bytes | tuple[str, str]


class Prop(IntEnum):
    PAYLOAD_FORMAT = 1
    MESSAGE_EXPIRY = 2
    CONTENT_TYPE = 3
    RESPONSE_TOPIC = 8
    CORRELATION_DATA = 9
    SUBSCRIPTION_ID = 11
    SESSION_EXPIRY = 17
    ASSIGNED_CLIENT_ID = 18
    SERVER_KEEP_ALIVE = 19
    AUTHENTICATION_METHOD = 21
    AUTHENTICATION_DATA = 22
    REQUEST_PROBLEM_INFORMATION = 23
    WILL_DELAY = 24
    REQUEST_RESPONSE_INFORMATION = 25
    RESPONSE_INFORMATION = 26
    SERVER_REFERENCE = 28
    REASON_STRING = 31
    RECEIVE_MAXIMUM = 33
    TOPIC_ALIAS_MAXIMUM = 34
    TOPIC_ALIAS = 35
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER_PROPERTY = 38
    MAXIMUM_PACKET_SIZE = 39
    WILDCARDS_AVAILABLE = 40
    SUBSCRIPTION_IDS_AVAILABLE = 41
    SHARED_SUBSCRIPTIONS_AVAILABLE = 42


class Property(NamedTuple):
    """One property as it stood in a packet; order and repetition are kept for user properties."""

    key: Prop
    value: Value


Properties = tuple[Property, ...]


def _flag(reader: wire.Reader) -> int:
    value = reader.number(1)
    if value > 1:
        raise wire.MqttError(f"a property that is 0 or 1 has {value}", wire.Code.PROTOCOL_ERROR)
    return value


def _above_zero(read: Callable[[wire.Reader], int]) -> Callable[[wire.Reader], int]:
    def read_above_zero(reader: wire.Reader) -> int:
        value = read(reader)
        if not value:
            raise wire.MqttError("a property that must be above 0 is 0", wire.Code.PROTOCOL_ERROR)
        return value

    return read_above_zero


def _topic(reader: wire.Reader) -> str:
    value = reader.text()
    wire.check_topic(value)
    return value


def _number_reader(width: int) -> Callable[[wire.Reader], int]:
    return lambda reader: reader.number(width)


def _pair(reader: wire.Reader) -> tuple[str, str]:
    return reader.text(), reader.text()


def _number(width: int) -> Callable[[int], bytes]:
    return lambda value: value.to_bytes(width, "big")


_Kind = tuple[Callable[[wire.Reader], Value], Callable[..., bytes]]
_TEXT: _Kind = (wire.Reader.text, wire.text)

_P = Prop
_MESSAGE = {_P.PAYLOAD_FORMAT, _P.MESSAGE_EXPIRY, _P.CONTENT_TYPE, _P.RESPONSE_TOPIC, _P.CORRELATION_DATA}
_AUTHENTICATION = {_P.AUTHENTICATION_METHOD, _P.AUTHENTICATION_DATA}
_SESSION = {_P.SESSION_EXPIRY, _P.RECEIVE_MAXIMUM, _P.MAXIMUM_PACKET_SIZE, _P.TOPIC_ALIAS_MAXIMUM}
_SERVER = {_P.ASSIGNED_CLIENT_ID, _P.SERVER_KEEP_ALIVE, _P.RESPONSE_INFORMATION, _P.SERVER_REFERENCE}
_ABILITIES = {
    _P.MAXIMUM_QOS,
    _P.RETAIN_AVAILABLE,
    _P.WILDCARDS_AVAILABLE,
    _P.SUBSCRIPTION_IDS_AVAILABLE,
    _P.SHARED_SUBSCRIPTIONS_AVAILABLE,
}
_REQUESTS = {_P.REQUEST_PROBLEM_INFORMATION, _P.REQUEST_RESPONSE_INFORMATION}

_KINDS: dict[Prop, _Kind] = {
    **dict.fromkeys({_P.PAYLOAD_FORMAT, *_ABILITIES, *_REQUESTS}, (_flag, _number(1))),
    **dict.fromkeys((_P.SERVER_KEEP_ALIVE, _P.TOPIC_ALIAS_MAXIMUM), (_number_reader(2), _number(2))),
    **dict.fromkeys((_P.RECEIVE_MAXIMUM, _P.TOPIC_ALIAS), (_above_zero(_number_reader(2)), _number(2))),
    **dict.fromkeys((_P.MESSAGE_EXPIRY, _P.SESSION_EXPIRY, _P.WILL_DELAY), (_number_reader(4), _number(4))),
    **dict.fromkeys((_P.CONTENT_TYPE, _P.ASSIGNED_CLIENT_ID, _P.AUTHENTICATION_METHOD), _TEXT),
    **dict.fromkeys((_P.RESPONSE_INFORMATION, _P.SERVER_REFERENCE, _P.REASON_STRING), _TEXT),
    **dict.fromkeys((_P.CORRELATION_DATA, _P.AUTHENTICATION_DATA), (wire.Reader.binary, wire.binary)),
    _P.RESPONSE_TOPIC: (_topic, wire.text),
    _P.SUBSCRIPTION_ID: (_above_zero(wire.Reader.varint), wire.varint),
    _P.USER_PROPERTY: (_pair, lambda pair: wire.text(pair[0]) + wire.text(pair[1])),
    _P.MAXIMUM_PACKET_SIZE: (_above_zero(_number_reader(4)), _number(4)),
}

# A user property may stand in every packet, so it is in no set.
IN_CONNECT = frozenset(_SESSION | _AUTHENTICATION | _REQUESTS)
IN_WILL = frozenset(_MESSAGE | {_P.WILL_DELAY})
IN_CONNACK = frozenset(_SESSION | _AUTHENTICATION | _SERVER | _ABILITIES | {_P.REASON_STRING})
IN_PUBLISH = frozenset(_MESSAGE | {_P.TOPIC_ALIAS, _P.SUBSCRIPTION_ID})
IN_ACKNOWLEDGEMENT = frozenset({_P.REASON_STRING})
IN_SUBSCRIBE = frozenset({_P.SUBSCRIPTION_ID})
IN_UNSUBSCRIBE: frozenset[Prop] = frozenset()
IN_DISCONNECT = frozenset({_P.SESSION_EXPIRY, _P.SERVER_REFERENCE, _P.REASON_STRING})


def read_properties(reader: wire.Reader, allowed: frozenset[Prop]) -> Properties:
    """Take a property block off `reader`; MqttError for an unknown, misplaced or repeated one."""
    block = wire.Reader(reader.take(reader.varint()))
    found: list[Property] = []
    seen: set[Prop] = set()
    while block.bytes_left:
        number = block.varint()
        if number not in _KINDS:
            raise wire.MqttError(f"unknown property {number}")
        key = Prop(number)
        if key is not Prop.USER_PROPERTY:
            if key not in allowed or key in seen:
                raise wire.MqttError(f"{key.name} is misplaced or stands twice", wire.Code.PROTOCOL_ERROR)
            seen.add(key)
        found.append(Property(key, _KINDS[key][0](block)))
    return tuple(found)


def encode(properties: Iterable[Property]) -> bytes:
    """Return the properties' bytes without the length in front."""
    return b"".join(bytes((key,)) + _KINDS[key][1](value) for key, value in properties)


def write_properties(properties: Iterable[Property]) -> bytes:
    """Return a whole property block."""
    body = encode(properties)
    return wire.varint(len(body)) + body


def number(properties: Properties, key: Prop, default: int) -> int:
    """Return the value of a numeric property, or `default` where it is absent."""
    for name, value in properties:
        if name is key and isinstance(value, int):
            return value
    return default
