"""From packets to bytes; the inverse of `decoding`."""

from functools import singledispatch

from edge_server.transport.broker import packets, properties, wire
from edge_server.transport.broker.properties import Properties

# What 3.1.1 has for a refused CONNECT; the connection is closed without a word for any other code.
_REFUSALS_311 = {
    wire.Code.UNSUPPORTED_VERSION: 1,
    wire.Code.BAD_CLIENT_ID: 2,
    wire.Code.QUOTA_EXCEEDED: 3,
    wire.Code.SHUTTING_DOWN: 3,
}


@singledispatch
def encode(packet: packets.Packet, version: int) -> bytes:
    """Return the whole packet as `version` writes it; a CONNECT has its own version."""
    raise NotImplementedError(type(packet).__name__)


def publish_head(
    topic: bytes, payload_bytes: int, *, qos: int, retain: bool, dup: bool, packet_id: int, block: bytes
) -> bytes:
    """Return a PUBLISH without its payload; `block` is b"" in 3.1.1."""
    rest = b"".join((wire.binary(topic), packet_id.to_bytes(2, "big") if qos else b"", block))
    first = packets.Kind.PUBLISH << 4 | dup << 3 | qos << 1 | retain
    return b"".join((bytes((first,)), wire.varint(len(rest) + payload_bytes), rest))


def farewell(code: wire.Code, version: int, *, accepted: bool) -> bytes:
    """Return the last bytes to a refused client: DISCONNECT, or CONNACK before it was accepted."""
    if accepted:
        return encode(packets.Disconnect(code), version) if version == packets.V5 else b""
    if version == packets.V5:
        return encode(packets.ConnAck(code=code), version)
    refusal = _REFUSALS_311.get(code)
    return encode(packets.ConnAck(code=refusal), version) if refusal else b""


def _frame(kind: packets.Kind, body: bytes, flags: int = 0) -> bytes:
    return b"".join((bytes((kind << 4 | flags,)), wire.varint(len(body)), body))


def _block(values: Properties, version: int) -> bytes:
    return properties.write_properties(values) if version == packets.V5 else b""


def _tail(code: int, values: Properties, version: int) -> bytes:
    if version != packets.V5 or (code == wire.Code.SUCCESS and not values):
        return b""
    return bytes((code,)) + (properties.write_properties(values) if values else b"")


@encode.register
def _(packet: packets.Connect, _version: int) -> bytes:
    version, will = packet.version, packet.will
    flags = packet.clean_start << 1 | (packet.password is not None) << 6 | (packet.username is not None) << 7
    parts = [_block(packet.properties, version), wire.text(packet.client_id)]
    if will:
        flags |= 4 | will.qos << 3 | will.retain << 5
        parts += [_block(will.properties, version), wire.text(will.topic), wire.binary(will.payload)]
    if packet.username is not None:
        parts.append(wire.text(packet.username))
    if packet.password is not None:
        parts.append(wire.binary(packet.password))
    head = wire.text("MQTT") + bytes((version, flags)) + packet.keep_alive.to_bytes(2, "big")
    return _frame(packets.Kind.CONNECT, head + b"".join(parts))


@encode.register
def _(packet: packets.ConnAck, version: int) -> bytes:
    body = bytes((packet.session_present, packet.code)) + _block(packet.properties, version)
    return _frame(packets.Kind.CONNACK, body)


@encode.register
def _(packet: packets.Publish, version: int) -> bytes:
    head = publish_head(
        packet.topic.encode(),
        len(packet.payload),
        qos=packet.qos,
        retain=packet.retain,
        dup=packet.dup,
        packet_id=packet.packet_id,
        block=_block(packet.properties, version),
    )
    return head + packet.payload


@encode.register
def _(packet: packets.PubAck, version: int) -> bytes:
    return _frame(packets.Kind.PUBACK, _id(packet.packet_id) + _tail(packet.code, packet.properties, version))


@encode.register
def _(packet: packets.Disconnect, version: int) -> bytes:
    return _frame(packets.Kind.DISCONNECT, _tail(packet.code, packet.properties, version))


@encode.register
def _(packet: packets.Subscribe, version: int) -> bytes:
    filters = b"".join(wire.text(f.topic) + bytes((_options(f, version),)) for f in packet.filters)
    return _frame(
        packets.Kind.SUBSCRIBE, _id(packet.packet_id) + _block(packet.properties, version) + filters, 2
    )


@encode.register
def _(packet: packets.Unsubscribe, version: int) -> bytes:
    filters = b"".join(map(wire.text, packet.filters))
    return _frame(
        packets.Kind.UNSUBSCRIBE, _id(packet.packet_id) + _block(packet.properties, version) + filters, 2
    )


@encode.register
def _(packet: packets.SubAck, version: int) -> bytes:
    body = _id(packet.packet_id) + _block(packet.properties, version) + bytes(packet.codes)
    return _frame(packets.Kind.SUBACK, body)


@encode.register
def _(packet: packets.UnsubAck, version: int) -> bytes:
    codes = bytes(packet.codes) if version == packets.V5 else b""
    return _frame(packets.Kind.UNSUBACK, _id(packet.packet_id) + _block(packet.properties, version) + codes)


@encode.register
def _(packet: packets.PingReq, version: int) -> bytes:
    return _frame(packets.Kind.PINGREQ, b"")


@encode.register
def _(packet: packets.PingResp, version: int) -> bytes:
    return _frame(packets.Kind.PINGRESP, b"")


def _id(packet_id: int) -> bytes:
    return packet_id.to_bytes(2, "big")


def _options(wanted: packets.Filter, version: int) -> int:
    if version != packets.V5:
        return wanted.qos
    return wanted.qos | wanted.no_local << 2 | wanted.retain_as_published << 3 | wanted.retain_handling << 4
