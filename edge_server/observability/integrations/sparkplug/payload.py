"""Sparkplug B payloads as protobuf bytes.

The schema is that of the Sparkplug specification 3.0.0, section 6.4.1, as far as scalar metrics need it;
other fields are ignored. It is described field by field, so that it works with every version of protobuf
without generated code.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from schemas.errors import PeerError

MAX_BYTES = 64 * 1024
Scalar = int | float | bool | str | None


class Datatype(IntEnum):
    """Types of metric values (section 6.4.16) that are used here."""

    INT64 = 4
    UINT64 = 8
    DOUBLE = 10
    BOOLEAN = 11
    STRING = 12


@dataclass(frozen=True)
class Metric:
    """One value, None where it is unknown; births must carry its `datatype`."""

    name: str
    value: Scalar
    datatype: Datatype | None = None


@dataclass(frozen=True)
class Payload:
    """A message: milliseconds since 1970, its metrics, its sequence number (none for a death)."""

    timestamp: int
    metrics: tuple[Metric, ...] = ()
    seq: int | None = None


_Field = descriptor_pb2.FieldDescriptorProto
_METRIC = (
    ("name", 1, _Field.TYPE_STRING),
    ("alias", 2, _Field.TYPE_UINT64),
    ("timestamp", 3, _Field.TYPE_UINT64),
    ("datatype", 4, _Field.TYPE_UINT32),
    ("is_historical", 5, _Field.TYPE_BOOL),
    ("is_transient", 6, _Field.TYPE_BOOL),
    ("is_null", 7, _Field.TYPE_BOOL),
)
_VALUES = (
    ("int_value", 10, _Field.TYPE_UINT32),
    ("long_value", 11, _Field.TYPE_UINT64),
    ("float_value", 12, _Field.TYPE_FLOAT),
    ("double_value", 13, _Field.TYPE_DOUBLE),
    ("boolean_value", 14, _Field.TYPE_BOOL),
    ("string_value", 15, _Field.TYPE_STRING),
)
_VALUE_FIELD = {
    Datatype.INT64: "long_value",
    Datatype.UINT64: "long_value",
    Datatype.DOUBLE: "double_value",
    Datatype.BOOLEAN: "boolean_value",
    Datatype.STRING: "string_value",
}
_UNSIGNED = 2**64  # Negative integers are encoded as their complement to this number (section 6.4.17)


def _payload_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="sparkplug.proto", package="sparkplug", syntax="proto2")
    metric = file.message_type.add(name="Metric")
    for name, number, kind in _METRIC:
        metric.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    metric.oneof_decl.add(name="value")
    for name, number, kind in _VALUES:
        metric.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL, oneof_index=0)
    payload = file.message_type.add(name="Payload")
    payload.field.add(name="timestamp", number=1, type=_Field.TYPE_UINT64, label=_Field.LABEL_OPTIONAL)
    payload.field.add(
        name="metrics",
        number=2,
        type=_Field.TYPE_MESSAGE,
        type_name=".sparkplug.Metric",
        label=_Field.LABEL_REPEATED,
    )
    payload.field.add(name="seq", number=3, type=_Field.TYPE_UINT64, label=_Field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sparkplug.Payload"))


_Message = _payload_class()


def encode_payload(payload: Payload, kinds: Iterable[Datatype]) -> bytes:
    """Encode a payload; `kinds` gives each metric's type, also where the metric does not carry it."""
    message = _Message(timestamp=payload.timestamp)
    for metric, kind in zip(payload.metrics, kinds, strict=True):
        encoded = message.metrics.add(name=metric.name, timestamp=payload.timestamp)
        if metric.datatype is not None:
            encoded.datatype = metric.datatype
        if metric.value is None:
            encoded.is_null = True
        else:
            whole = isinstance(metric.value, int) and _VALUE_FIELD[kind] == "long_value"
            setattr(encoded, _VALUE_FIELD[kind], int(metric.value) % _UNSIGNED if whole else metric.value)
    if payload.seq is not None:
        message.seq = payload.seq
    return bytes(message.SerializeToString())


def decode_payload(data: bytes) -> Payload:
    """Decode a payload; raises `PeerError` for anything else."""
    if len(data) > MAX_BYTES:
        raise PeerError(f"a Sparkplug payload of {len(data)} bytes", reason="oversized")
    message = _Message()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise PeerError(f"not a Sparkplug payload: {error}") from error
    metrics = tuple(map(_metric, message.metrics))
    return Payload(message.timestamp, metrics, message.seq if message.HasField("seq") else None)


def _metric(encoded: Any) -> Metric:
    name = encoded.WhichOneof("value")
    known = encoded.HasField("datatype") and encoded.datatype in set(Datatype)
    kind = Datatype(encoded.datatype) if known else None
    value = None if name is None or encoded.is_null else getattr(encoded, name)
    if kind is Datatype.INT64 and isinstance(value, int) and value >= _UNSIGNED // 2:
        value -= _UNSIGNED
    return Metric(encoded.name, value, kind)
