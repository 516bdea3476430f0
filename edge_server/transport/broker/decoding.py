"""From bytes to packets: strict, without I/O; any bytes give a packet or a MqttError."""

from collections.abc import Callable

from edge_server.transport.broker import packets, properties
from edge_server.transport.broker.properties import Prop, Properties
from edge_server.transport.broker.wire import Code, MqttError, Reader, check_topic

# What the lower four bits of the first byte must be; PUBLISH keeps its own flags there.
_FLAGS = {
    kind: 0b0010 if kind in (packets.Kind.SUBSCRIBE, packets.Kind.UNSUBSCRIBE) else 0 for kind in packets.Kind
}


def frame_length(head: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """Return where the body of the packet that begins with `head` starts, and its length; None: too early."""
    if len(head) < 2 or (len(head) < 5 and all(byte & 0x80 for byte in head[1:])):
        return None
    reader = Reader(memoryview(head)[1:])
    length = reader.varint()
    return len(head) - reader.bytes_left, length


def decode(first: int, body: memoryview, version: int) -> packets.Packet:
    """Return the packet of first byte `first`; a CONNECT says its own version.

    A Publish's payload is a view of `body`, so `body` must not change afterwards.
    """
    kind, flags = first >> 4, first & 0x0F
    if kind not in _DECODERS:
        raise MqttError(f"packet type {kind} is not spoken here", Code.PROTOCOL_ERROR)
    reader = Reader(body)
    if kind == packets.Kind.PUBLISH:
        return _publish(reader, flags, version)
    if flags != _FLAGS[packets.Kind(kind)]:
        raise MqttError(f"flags {flags:#x} of packet type {kind}")
    packet = _DECODERS[kind](reader, version)
    reader.finish()
    return packet


def _block(reader: Reader, version: int, allowed: frozenset[Prop]) -> Properties:
    return properties.read_properties(reader, allowed) if version == packets.V5 else ()


def _publish(reader: Reader, flags: int, version: int) -> packets.Publish:
    qos, dup = flags >> 1 & 3, bool(flags & 8)
    if qos == 2:
        raise MqttError("QoS 2 is not supported", Code.QOS_NOT_SUPPORTED)
    if qos == 3 or (dup and not qos):
        raise MqttError(f"PUBLISH flags {flags:#x}")
    topic = reader.text()
    packet_id = reader.packet_id() if qos else 0
    block = _block(reader, version, properties.IN_PUBLISH)
    if any(key is Prop.TOPIC_ALIAS for key, _ in block):
        raise MqttError("a topic alias, but the maximum is 0", Code.BAD_TOPIC_ALIAS)
    check_topic(topic)
    return packets.Publish(topic, reader.rest(), qos, bool(flags & 1), dup, packet_id, block)


def _connect(reader: Reader, _version: int) -> packets.Connect:
    name, version = reader.text(), reader.number(1)
    if (name, version) not in (("MQTT", packets.V311), ("MQTT", packets.V5)):
        raise MqttError(f"protocol {name[:20]!r} version {version}", Code.UNSUPPORTED_VERSION)
    flags = reader.number(1)
    if flags & 1:
        raise MqttError("the reserved CONNECT flag is set")
    keep_alive = reader.number(2)
    block = _block(reader, version, properties.IN_CONNECT)
    client_id = reader.text()
    will = _will(reader, flags, version)
    username = reader.text() if flags & 0x80 else None
    if flags & 0x40 and username is None and version == packets.V311:
        raise MqttError("a password without a user name")
    password = reader.binary() if flags & 0x40 else None
    return packets.Connect(version, client_id, bool(flags & 2), keep_alive, will, username, password, block)


def _will(reader: Reader, flags: int, version: int) -> packets.Will | None:
    qos, retain = flags >> 3 & 3, bool(flags & 0x20)
    if not flags & 4:
        if qos or retain:
            raise MqttError("will flags without a will")
        return None
    if qos == 3:
        raise MqttError("will QoS 3")
    block = _block(reader, version, properties.IN_WILL)
    topic = reader.text()
    check_topic(topic)
    return packets.Will(topic, reader.binary(), qos, retain, block)


def _connack(reader: Reader, version: int) -> packets.ConnAck:
    flags = reader.number(1)
    if flags > 1:
        raise MqttError(f"CONNACK flags {flags:#x}")
    return packets.ConnAck(bool(flags), reader.number(1), _block(reader, version, properties.IN_CONNACK))


def _puback(reader: Reader, version: int) -> packets.PubAck:
    return packets.PubAck(reader.packet_id(), *_code(reader, version, properties.IN_ACKNOWLEDGEMENT))


def _disconnect(reader: Reader, version: int) -> packets.Disconnect:
    return packets.Disconnect(*_code(reader, version, properties.IN_DISCONNECT))


def _code(reader: Reader, version: int, allowed: frozenset[Prop]) -> tuple[int, Properties]:
    # MQTT 5 leaves out the properties, then the code too, where they say nothing.
    if version != packets.V5 or not reader.bytes_left:
        return Code.SUCCESS, ()
    code = reader.number(1)
    return code, properties.read_properties(reader, allowed) if reader.bytes_left else ()


def _subscribe(reader: Reader, version: int) -> packets.Subscribe:
    packet_id, block = reader.packet_id(), _block(reader, version, properties.IN_SUBSCRIBE)
    filters = [_filter(reader, version)]
    while reader.bytes_left:
        filters.append(_filter(reader, version))
    return packets.Subscribe(packet_id, tuple(filters), block)


def _filter(reader: Reader, version: int) -> packets.Filter:
    topic, options = reader.text(), reader.number(1)
    qos, handling = options & 3, options >> 4 & 3
    if qos == 3 or handling == 3 or options & (0xC0 if version == packets.V5 else 0xFC):
        raise MqttError(f"subscription options {options:#x}", Code.PROTOCOL_ERROR)
    return packets.Filter(topic, qos, bool(options & 4), bool(options & 8), handling)


def _suback(reader: Reader, version: int) -> packets.SubAck:
    packet_id, block = reader.packet_id(), _block(reader, version, properties.IN_ACKNOWLEDGEMENT)
    return packets.SubAck(packet_id, tuple(reader.rest()), block)


def _unsubscribe(reader: Reader, version: int) -> packets.Unsubscribe:
    packet_id, block = reader.packet_id(), _block(reader, version, properties.IN_UNSUBSCRIBE)
    filters = [reader.text()]
    while reader.bytes_left:
        filters.append(reader.text())
    return packets.Unsubscribe(packet_id, tuple(filters), block)


def _unsuback(reader: Reader, version: int) -> packets.UnsubAck:
    packet_id, block = reader.packet_id(), _block(reader, version, properties.IN_ACKNOWLEDGEMENT)
    return packets.UnsubAck(packet_id, tuple(reader.rest()) if version == packets.V5 else (), block)


_DECODERS: dict[int, Callable[[Reader, int], packets.Packet]] = {
    packets.Kind.CONNECT: _connect,
    packets.Kind.CONNACK: _connack,
    packets.Kind.PUBLISH: lambda reader, version: _publish(reader, 0, version),
    packets.Kind.PUBACK: _puback,
    packets.Kind.SUBSCRIBE: _subscribe,
    packets.Kind.SUBACK: _suback,
    packets.Kind.UNSUBSCRIBE: _unsubscribe,
    packets.Kind.UNSUBACK: _unsuback,
    packets.Kind.PINGREQ: lambda _reader, _version: packets.PingReq(),
    packets.Kind.PINGRESP: lambda _reader, _version: packets.PingResp(),
    packets.Kind.DISCONNECT: _disconnect,
}
