"""Every decoder of received data, as a function of bytes: it returns, or raises `PeerError`.

The same table serves the property tests here and the fuzzer (`make fuzz`).
"""

import contextlib
import io
import json
import os
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import zstandard
from safetensors.numpy import load

from edge_client.compression import decoding
from edge_client.compression.chain import Chain, make_chain
from edge_client.compression.downlink import added_up, changes
from edge_client.compression.layered_model import Holding, assemble
from edge_client.compression.low_rank import draw_factors
from edge_client.compression.quantization import Fp16, Int8
from edge_client.compression.uplink import encode_answer
from edge_client.compression.zstd import unpack
from edge_client.data.sounds.sound_files import read_sound
from edge_client.pruning.index_sets import extract
from edge_client.pruning.update_coordinates import Answer
from edge_client.storage.client_archive import DamagedArchive, unpack_wheels
from edge_client.transport.message_parts import PART_HEADER_BYTES, Parts, split
from edge_server.coordinator.tasks.increments import difference
from edge_server.coordinator.validation.contents import examine
from edge_server.coordinator.validation.update import check_encoding
from edge_server.strategy.aggregation.partial_sums import COARSE, FINE, check_sum, planes_of, read_sum
from edge_server.transport.broker.decoding import decode, frame_length
from edge_server.transport.broker.encoding import encode
from edge_server.transport.broker.packets import V5, V311, Connect, Packet, Publish, Subscribe, Will
from edge_server.transport.broker.packets import Filter as TopicFilter
from schemas.errors import ConfigError, PeerError, Reason
from schemas.messages import Refusal, decode_message, encode_message
from schemas.strategy import Adapters, Component
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Groups
from schemas.tensors.chunks import decode_chunk, decode_json, encode_chunk, encode_json
from schemas.tensors.files import FileGroups
from schemas.topics import Channel, DeviceTopic, StateTopic, parse_topic
from tests.edge_client.agent.client_update.wheels import make_release, make_wheel
from tests.edge_client.data.sounds.sound_bytes import pcm, tone, wav_bytes
from tests.edge_server.coordinator.validation.test_firewall import (
    ASKED,
    CHOSEN,
    HONEST,
    HONEST_PERSONAL,
    MAP,
    PLAIN,
    PREFIX,
    model,
    update,
)
from tests.groups import decode_groups, encode_groups
from tests.schemas.examples import CHANNEL_MAP, DIGEST, GROUPS, MESSAGES_BY_KIND, SPEC

FEW, MIN_LEVELS = {"name": "int8", "levels": 7}, {"name": "int8", "levels": 1}
CHAINS: tuple[Chain, ...] = tuple(
    make_chain([Component.model_validate(target) for target in named])
    for named in ((), ("fp16",), ("int8",), (FEW,), (MIN_LEVELS,), ("top-k",), ("top-k", "int8"))
)


FACTORED = PLAIN.model_copy(update={"adapters": Adapters(rank=2, arrays=("hidden.weight",))})


@cache
def _folder_of(process: int) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"fuzz-{process}-")


def _spool() -> Path:
    """This process's own folder; one of a process that it was forked from goes with any of its children."""
    return Path(_folder_of(os.getpid()).name)


@dataclass(frozen=True)
class Target:
    """A decoder with valid examples from which a fuzzer starts."""

    decode: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def _message(data: bytes) -> None:
    """An unreadable message must be answered, so its reason must be valid in a message."""
    try:
        message = decode_message(data)
    except PeerError as error:
        answer = Refusal(federation="home", device="pi", reason=Reason(error.reason), detail=str(error)[:500])
        encode_message(answer)
        raise
    assert decode_message(encode_message(message)) == message


def _groups(data: bytes) -> None:
    """The decoded arrays equal those of the safetensors library."""
    groups = decode_groups(data)
    assert {f"{group}/{name}" for group in groups for name in groups[group]} == load(data).keys()


def _update(data: bytes) -> None:
    """A blob as the update of a plain task and of a task in which the device chooses its channels."""
    groups = decode_groups(data)
    try:
        examine(update(PREFIX), groups, PLAIN, MAP)
    except PeerError:
        examine(update(CHOSEN), groups, ASKED, MAP)


def _encoded(data: bytes) -> None:
    """An encoded update of a plain task or of one of low rank, by the first codecs that fit its form."""
    path = _spool() / "encoded"
    path.write_bytes(data)
    for task, chain in product((PLAIN, FACTORED), CHAINS):
        with contextlib.suppress(PeerError):
            check_encoding(FileGroups(path), chain, task)
            examine(update(PREFIX), decoding.decode_groups(FileGroups(path)), task, MAP)
            return
    raise PeerError("of no form")


def _packed(data: bytes) -> None:
    path, out = _spool() / "packed", io.BytesIO()
    path.write_bytes(data)
    unpack(path, out, limit=10**6)
    assert len(out.getvalue()) <= 10**6


def _frame(data: bytes) -> None:
    """A delta to a model that a device has."""
    _read_all(added_up([{"model": _OLD}, _spooled(data)]))


def _layer(data: bytes) -> None:
    """The increment to a smaller sub-model that a device has."""
    _read_all(assemble(_PART, _spooled(data), MAP).groups)


def _spooled(data: bytes) -> FileGroups:
    path = _spool() / "spooled"
    path.write_bytes(data)
    return FileGroups(path)


def _read_all(groups: Groups) -> None:
    assert all(arrays[name].nbytes >= 0 for arrays in groups.values() for name in arrays)


def _in_form(chain: Chain) -> bytes:
    groups = chain.encode(HONEST["model"], 0).groups
    return encode_groups({group: dict(parts) for group, parts in groups.items()})


def _in_factors(number: str) -> bytes:
    """An update of a change of low rank."""
    task = FACTORED.model_copy(update={"uplink": (Component(name=number),)})
    pairs = {"hidden.weight": draw_factors((3, 4), 2, 0, "hidden.weight")}
    groups = encode_answer(Answer(task, MAP, {}), HONEST["model"], task, MAP, {}, pairs).groups
    return encode_groups({group: dict(parts) for group, parts in groups.items()})


def _chosen(data: bytes) -> None:
    """A device's own choice of channels."""
    examine(update(decode_json(SubModelSpec, data)), HONEST_PERSONAL, ASKED, MAP)


def _packet(data: bytes, version: int) -> None:
    frame = frame_length(data[:5])
    if frame is not None:
        decode(data[0], memoryview(data)[frame[0] : frame[0] + frame[1]], version)


def _parts(data: bytes) -> list[bytes]:
    """Packets of one topic, each preceded by its length in two bytes; returns the assembled messages."""
    parts, whole, rest = Parts(), [], data
    while rest:
        size = int.from_bytes(rest[:2], "big")
        message, rest = parts.take("topic", rest[2 : 2 + size]), rest[2 + size :]
        whole += [] if message is None else [message]
    assert len(parts) <= 1
    return whole


def _in_parts(message: bytes) -> bytes:
    pieces = split(message, PART_HEADER_BYTES + 40)
    return b"".join(struct.pack("!H", len(piece)) + piece for piece in pieces)


def _release(data: bytes) -> None:
    """Unpack the archive of a client release; nothing appears outside the folder of its wheels."""
    with tempfile.TemporaryDirectory(dir=_spool()) as name:
        folder = Path(name)
        (folder / "wheels").mkdir()
        (folder / "release.tar").write_bytes(data)
        try:
            unpack_wheels(folder / "release.tar", folder / "wheels")
        except DamagedArchive as error:
            raise PeerError(str(error)) from error
        finally:
            assert {path.name for path in folder.iterdir()} == {"wheels", "release.tar"}


def _whole_release() -> bytes:
    with tempfile.TemporaryDirectory(dir=_spool()) as name:
        wheel = make_wheel(Path(name), "0.2.0")
        return make_release(Path(name) / "release.tar", wheel).read_bytes()


def _topic(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    assert str(parse_topic(text)) == text


def safetensors(header: object, data: bytes = b"") -> bytes:
    """A safetensors file with an arbitrary header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def false_header(**fields: object) -> dict[str, object]:
    """A header of one tensor of 4 bytes with one field changed."""
    return {"model/w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **fields}}


_ENTRY = b'{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
LIES: Mapping[str, bytes] = {
    "a huge shape": safetensors(false_header(shape=[2**62, 4]), bytes(4)),
    "a huge shape without elements": safetensors(
        false_header(shape=[0, 2**63 - 1, 2**63 - 1], data_offsets=[0, 0])
    ),
    "an axis longer than 63 bits": safetensors(false_header(shape=[0, 2**64 - 1], data_offsets=[0, 0])),
    "a hundred axes": safetensors(false_header(shape=[1] * 100), bytes(4)),
    "a negative axis": safetensors(false_header(shape=[-1]), bytes(4)),
    "half an axis": safetensors(false_header(shape=[0.5]), bytes(4)),
    "overlapping tensors": safetensors(b'{"m/a":%s,"m/b":%s}' % (_ENTRY, _ENTRY), bytes(4)),
    "offsets in reverse order": safetensors(false_header(data_offsets=[4, 0]), bytes(4)),
    "offsets behind the end": safetensors(false_header(data_offsets=[2**63, 2**63 + 4]), bytes(4)),
    "a name twice": safetensors(b'{"m/a":%s,"m/a":%s}' % (_ENTRY, _ENTRY), bytes(4)),
    "NaN for a number": safetensors(b'{"m/a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)),
    "ten thousand digits": safetensors(
        json.dumps(false_header(shape=["N"])).replace('"N"', "9" * 10_000).encode(), bytes(4)
    ),
    "deep nesting": safetensors(b"[" * 50_000 + b"]" * 50_000),
    "a lone surrogate": safetensors(b'{"m/\\ud800":%s}' % _ENTRY, bytes(4)),
    "a NUL in a name": safetensors(b'{"m/\\u0000":%s}' % _ENTRY, bytes(4)),
    "a type without numpy": safetensors(false_header(dtype="F8_E5M2", shape=[4]), bytes(4)),
    "half a byte": safetensors(false_header(dtype="F4", shape=[8]), bytes(4)),
    "no such type": safetensors(false_header(dtype="F31"), bytes(4)),
    "a header longer than the file": struct.pack("<Q", 10**9) + b"{}",
    "a header longer than any file": struct.pack("<Q", 2**64 - 1) + b"{}",
    "no header": b"",
}
"""False headers of blobs; the firewall checks NaN and infinity in tensors."""

_OLD, _NEW = model(PREFIX), {name: array + 1 for name, array in model(PREFIX).items()}
_FRAMES = tuple(changes(_NEW, _OLD, number) for number in (None, Fp16(), Int8()))
_WHOLE = Holding(SubModelSpec(), {"model": model(SubModelSpec())})
_PART = Holding(PREFIX, {"model": extract(_WHOLE.groups["model"], PREFIX, MAP)})

_PACKETS: tuple[Packet, ...] = (
    Connect(V5, "pi", will=Will("w/t", b"gone", qos=1, retain=True), username="u", password=b"p"),
    Publish("a/b", b"payload", qos=1, packet_id=7),
    Subscribe(7, (TopicFilter("a/+", 1), TopicFilter("#", 0))),
)


def _sum(data: bytes) -> None:
    path = _spool() / "sum"
    path.write_bytes(data)
    check_sum(read_sum(path, MAP), MAP)


def _of_a_sum() -> bytes:
    arrays = {name: np.ones(layout.shape) for name, layout in MAP.parameters.items()}
    return encode_groups(planes_of({COARSE: arrays, FINE: arrays}))


def _sound(data: bytes) -> None:
    """A recording of a request to a service."""
    try:
        assert len(read_sound(io.BytesIO(data), rate=8000, most=10**5).samples) <= 10**5
    except ConfigError as error:
        raise PeerError(str(error)) from error


TARGETS: Mapping[str, Target] = {
    "message": Target(_message, tuple(encode_message(kind) for kind in MESSAGES_BY_KIND.values())),
    "parts": Target(_parts, tuple(_in_parts(encode_message(kind)) for kind in MESSAGES_BY_KIND.values())),
    "chunk": Target(decode_chunk, (encode_chunk(DIGEST, 3, b"some bytes"),)),
    "groups": Target(_groups, (encode_groups(GROUPS), *LIES.values())),
    "update": Target(_update, (encode_groups(HONEST), encode_groups(HONEST_PERSONAL))),
    "encoded-update": Target(
        _encoded, (*map(_in_form, CHAINS), *map(_in_factors, ("delta", "fp16", "int8")))
    ),
    "frame": Target(_frame, tuple(encode_groups(frame) for frame in _FRAMES)),
    "layer": Target(_layer, (encode_groups(difference(_PART, _WHOLE, MAP)),)),
    "sum": Target(_sum, (_of_a_sum(),)),
    "packed": Target(_packed, (zstandard.compress(encode_groups(HONEST)), zstandard.compress(bytes(10**5)))),
    "chosen-channels": Target(_chosen, (encode_json(CHOSEN), b'{"kept":{"conv":2,"hidden":1000000000000}}')),
    "channel-map": Target(lambda data: decode_json(ChannelMap, data), (encode_json(CHANNEL_MAP),)),
    "sub-model-spec": Target(lambda data: decode_json(SubModelSpec, data), (encode_json(SPEC),)),
    "client-release": Target(_release, (_whole_release(),)),
    "sound": Target(
        _sound,
        (
            wav_bytes(pcm(tone(300, 0.02), 16)),
            wav_bytes(pcm(tone(300, 0.02), 24), bits=24, inner=1, rate=44_100, long=b"RF64"),
            wav_bytes(bytes(range(100)), bits=8, inner=7, rate=16_000),
        ),
    ),
    "topic": Target(
        _topic, (str(DeviceTopic("home", "pi", Channel.UP)).encode(), str(StateTopic("home")).encode())
    ),
    "mqtt-5": Target(lambda data: _packet(data, V5), tuple(encode(packet, V5) for packet in _PACKETS)),
    "mqtt-3.1.1": Target(
        lambda data: _packet(data, V311), tuple(encode(packet, V311) for packet in _PACKETS[1:])
    ),
}


def decoded(target: Target, data: bytes) -> bool:
    """Whether the decoder accepts these bytes; an exception other than `PeerError` is an error."""
    with np.errstate(all="ignore"):
        try:
            target.decode(data)
        except PeerError as error:
            Reason(error.reason)
            return False
    return True
