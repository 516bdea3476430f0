"""The codec: decoding inverts encoding, and any bytes give a packet or a PeerError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_server.transport.broker import packets
from edge_server.transport.broker.decoding import decode, frame_length
from edge_server.transport.broker.encoding import encode
from edge_server.transport.broker.properties import Prop, Property
from edge_server.transport.broker.wire import Code, MqttError, Reader, varint
from schemas.errors import PeerError

USER = Property(Prop.USER_PROPERTY, ("k", "v"))
REASON = Property(Prop.REASON_STRING, "why")

BOTH: list[packets.Packet] = [
    packets.Connect(packets.V311, "dev-01"),
    packets.Connect(packets.V311, "", clean_start=False, keep_alive=65535, username="u", password=b"\0p"),
    packets.Connect(packets.V311, "d", will=packets.Will("w/t", b"gone", qos=2, retain=True), username=""),
    packets.ConnAck(True, 0),
    packets.ConnAck(code=5),
    packets.Publish("t", b""),
    packets.Publish("a/ü/€", b"x" * 300, qos=1, retain=True, dup=True, packet_id=65535),
    packets.PubAck(1),
    packets.Subscribe(7, (packets.Filter("a/+", 1), packets.Filter("#", 2))),
    packets.SubAck(7, (0, 1, 0x80)),
    packets.Unsubscribe(9, ("a/+", "#")),
    packets.UnsubAck(9),
    packets.PingReq(),
    packets.PingResp(),
    packets.Disconnect(),
]

ONLY_5: list[packets.Packet] = [
    packets.Connect(
        packets.V5,
        "",
        will=packets.Will("w", b"", properties=(Property(Prop.WILL_DELAY, 5), USER)),
        password=b"alone",
        properties=(
            Property(Prop.SESSION_EXPIRY, 0xFFFF_FFFF),
            Property(Prop.RECEIVE_MAXIMUM, 1),
            Property(Prop.REQUEST_PROBLEM_INFORMATION, 0),
            USER,
            USER,
        ),
    ),
    packets.ConnAck(
        code=0x97, properties=(Property(Prop.ASSIGNED_CLIENT_ID, "auto"), Property(Prop.MAXIMUM_QOS, 1))
    ),
    packets.Publish(
        "t",
        b"p",
        properties=(
            Property(Prop.CORRELATION_DATA, b"\0\1"),
            Property(Prop.RESPONSE_TOPIC, "r/t"),
            Property(Prop.MESSAGE_EXPIRY, 60),
            Property(Prop.SUBSCRIPTION_ID, 268_435_455),
        ),
    ),
    packets.PubAck(1, Code.QUOTA_EXCEEDED),
    packets.PubAck(1, Code.SUCCESS, (REASON,)),
    packets.Subscribe(7, (packets.Filter("a", 1, True, True, 2),), (USER,)),
    packets.UnsubAck(9, (0, 0x11), (REASON,)),
    packets.Disconnect(Code.TAKEN_OVER),
    packets.Disconnect(Code.DISCONNECT_WITH_WILL, (Property(Prop.SESSION_EXPIRY, 3),)),
]


def round_trip(packet: packets.Packet, version: int) -> packets.Packet:
    return decode_frame(encode(packet, version), version)


def decode_frame(raw: bytes, version: int) -> packets.Packet:
    frame = frame_length(raw[:5])
    assert frame is not None
    body_at, length = frame
    assert body_at + length == len(raw)
    return decode(raw[0], memoryview(raw)[body_at:], version)


@pytest.mark.parametrize("version", [packets.V311, packets.V5])
@pytest.mark.parametrize("packet", BOTH, ids=lambda packet: type(packet).__name__)
def test_a_packet_survives_the_codec(packet: packets.Packet, version: int) -> None:
    assert round_trip(packet, version) == packet


@pytest.mark.parametrize("packet", ONLY_5, ids=lambda packet: type(packet).__name__)
def test_a_packet_with_properties_survives_the_codec(packet: packets.Packet) -> None:
    assert round_trip(packet, packets.V5) == packet


def test_bytes_are_those_of_the_standard() -> None:
    # CONNECT: type 1, 13 bytes: "MQTT", level 4, clean session, keep alive 60 s, client id "c".
    assert encode(packets.Connect(packets.V311, "c", keep_alive=60), packets.V311) == bytes.fromhex(
        "100d 00044d515454 04 02 003c 000163"
    )
    # PUBLISH: QoS 1 and retain are 0b0011, topic "a", packet id 2, payload "hi".
    assert encode(packets.Publish("a", b"hi", 1, True, packet_id=2), packets.V311) == bytes.fromhex(
        "3307 000161 0002 6869"
    )
    # The same packet in MQTT 5 has an empty property block.
    assert encode(packets.Publish("a", b"hi", 1, True, packet_id=2), packets.V5) == bytes.fromhex(
        "3308 000161 0002 00 6869"
    )


@pytest.mark.parametrize(
    ("value", "raw"), [(0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (268_435_455, "ffffff7f")]
)
def test_a_variable_byte_integer_takes_seven_bits_per_byte(value: int, raw: str) -> None:
    assert varint(value).hex() == raw
    assert Reader(memoryview(bytes.fromhex(raw))).varint() == value


@pytest.mark.parametrize(
    ("raw", "version", "code"),
    [
        ("30 80808080", packets.V5, Code.MALFORMED),  # a length of five bytes
        ("30 8000", packets.V5, Code.MALFORMED),  # a length with a superfluous byte
        ("f0 00", packets.V5, Code.PROTOCOL_ERROR),  # AUTH
        ("00 00", packets.V311, Code.PROTOCOL_ERROR),  # type 0
        ("c1 00", packets.V311, Code.MALFORMED),  # PINGREQ with a flag
        ("c0 01 00", packets.V311, Code.MALFORMED),  # PINGREQ with a body
        ("80 06 0001 000161 00", packets.V311, Code.MALFORMED),  # SUBSCRIBE without its fixed flag
        ("82 02 0001", packets.V311, Code.MALFORMED),  # SUBSCRIBE to nothing
        ("82 06 0000 000161 00", packets.V311, Code.PROTOCOL_ERROR),  # packet id 0
        ("82 06 0001 000161 04", packets.V311, Code.PROTOCOL_ERROR),  # a reserved option
        ("82 07 0001 00 000161 30", packets.V5, Code.PROTOCOL_ERROR),  # retain handling 3
        ("30 04 0002 ff61", packets.V311, Code.MALFORMED),  # a topic that is not UTF-8
        ("30 05 0003 eda080", packets.V311, Code.MALFORMED),  # a surrogate
        ("30 03 0001 00", packets.V311, Code.MALFORMED),  # NUL
        ("30 03 0001 23", packets.V311, Code.BAD_TOPIC),  # publish to '#'
        ("30 02 0000", packets.V311, Code.BAD_TOPIC),  # publish to nothing
        ("30 03 0005 61", packets.V311, Code.MALFORMED),  # a topic longer than the packet
        ("38 03 0001 61", packets.V311, Code.MALFORMED),  # DUP at QoS 0
        ("34 05 000161 0001", packets.V311, Code.QOS_NOT_SUPPORTED),  # QoS 2
        ("36 05 000161 0001", packets.V311, Code.MALFORMED),  # QoS 3
        ("30 06 000161 02 01 02", packets.V5, Code.PROTOCOL_ERROR),  # payload format 2
        ("30 08 000161 04 01 01 01 01", packets.V5, Code.PROTOCOL_ERROR),  # a repeated property
        ("30 05 000161 01 7f", packets.V5, Code.MALFORMED),  # unknown property
        ("30 06 000161 02 24 01", packets.V5, Code.PROTOCOL_ERROR),  # a property of CONNACK
        ("30 07 000161 03 23 0001", packets.V5, Code.BAD_TOPIC_ALIAS),  # topic alias
        ("10 0d 00044d515454 03 02 003c 000163", packets.V311, Code.UNSUPPORTED_VERSION),
        ("10 0d 00044d515458 04 02 003c 000163", packets.V311, Code.UNSUPPORTED_VERSION),
        ("10 0d 00044d515454 04 03 003c 000163", packets.V311, Code.MALFORMED),  # the reserved flag
        ("10 0d 00044d515454 04 22 003c 000163", packets.V311, Code.MALFORMED),  # will retain without a will
        ("10 0f 00044d515454 04 42 003c 000163 0000", packets.V311, Code.MALFORMED),  # password without user
        ("10 0e 00044d515454 04 02 003c 000163 00", packets.V311, Code.MALFORMED),  # a byte too many
    ],
)
def test_a_malformed_packet_is_refused_by_its_code(raw: str, version: int, code: Code) -> None:
    with pytest.raises(MqttError) as refused:
        decode_frame(bytes.fromhex(raw), version)
    assert refused.value.code is code


@given(st.integers(0, 255), st.binary(max_size=120), st.sampled_from([packets.V311, packets.V5]))
def test_any_bytes_give_a_packet_or_a_peer_error(first: int, body: bytes, version: int) -> None:
    try:
        packet = decode(first, memoryview(body), version)
    except PeerError:
        return
    # Encoding an accepted packet and decoding it again gives the same packet.
    assert round_trip(packet, packet.version if isinstance(packet, packets.Connect) else version) == packet


@given(st.sampled_from(BOTH + ONLY_5), st.data())
def test_a_damaged_packet_gives_a_packet_or_a_peer_error(packet: packets.Packet, data: st.DataObject) -> None:
    raw = bytearray(encode(packet, packets.V5))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        frame = frame_length(raw[:5])
        if frame:
            decode(raw[0], memoryview(bytes(raw[frame[0] :])), packets.V5)
    except PeerError:
        pass


@given(st.binary(max_size=5))
def test_a_frame_is_known_from_its_first_bytes(head: bytes) -> None:
    try:
        frame = frame_length(head)
    except PeerError:
        return
    assert frame is None or 2 <= frame[0] <= len(head)
