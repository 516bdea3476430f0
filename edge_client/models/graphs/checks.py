"""Checks of ONNX files from elsewhere, before onnxruntime reads them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from schemas.errors import EdgeError

# ONNX's messages on protobuf, which onnxruntime installs; the onnx package needs ten times their memory.

__all__ = ["CONSTANT_TYPES", "EXTERNAL", "DecodeError", "Message", "ModelProto", "TensorProto", "texts_of"]

_SCHEMA = """
ModelProto: ir_version 1 int64, producer_name 2 string, producer_version 3 string, domain 4 string,
  model_version 5 int64, doc_string 6 string, graph 7 GraphProto, opset_import 8 *OperatorSetIdProto,
  metadata_props 14 *StringStringEntryProto, training_info 20 *TrainingInfoProto, functions 25 *FunctionProto
OperatorSetIdProto: domain 1 string, version 2 int64
StringStringEntryProto: key 1 string, value 2 string
TrainingInfoProto: initialization 1 GraphProto, algorithm 2 GraphProto,
  initialization_binding 3 *StringStringEntryProto, update_binding 4 *StringStringEntryProto
FunctionProto: name 1 string, input 4 *string, output 5 *string, attribute 6 *string, node 7 *NodeProto,
  doc_string 8 string, opset_import 9 *OperatorSetIdProto, domain 10 string,
  attribute_proto 11 *AttributeProto, value_info 12 *ValueInfoProto, overload 13 string,
  metadata_props 14 *StringStringEntryProto
GraphProto: node 1 *NodeProto, name 2 string, initializer 5 *TensorProto, doc_string 10 string,
  input 11 *ValueInfoProto, output 12 *ValueInfoProto, value_info 13 *ValueInfoProto,
  quantization_annotation 14 *TensorAnnotation, sparse_initializer 15 *SparseTensorProto,
  metadata_props 16 *StringStringEntryProto
TensorAnnotation: tensor_name 1 string, quant_parameter_tensor_names 2 *StringStringEntryProto
NodeProto: input 1 *string, output 2 *string, name 3 string, op_type 4 string, attribute 5 *AttributeProto,
  doc_string 6 string, domain 7 string, overload 8 string, metadata_props 9 *StringStringEntryProto
AttributeProto: name 1 string, f 2 float, i 3 int64, s 4 bytes, t 5 TensorProto, g 6 GraphProto,
  floats 7 *float, ints 8 *int64, strings 9 *bytes, tensors 10 *TensorProto, graphs 11 *GraphProto,
  doc_string 13 string, tp 14 TypeProto, type_protos 15 *TypeProto, type 20 @AttributeType,
  ref_attr_name 21 string, sparse_tensor 22 SparseTensorProto, sparse_tensors 23 *SparseTensorProto
TensorProto: dims 1 *int64, data_type 2 int32, segment 3 Segment, float_data 4 #float, int32_data 5 #int32,
  string_data 6 *bytes, int64_data 7 #int64, name 8 string, raw_data 9 bytes, double_data 10 #double,
  uint64_data 11 #uint64, doc_string 12 string, external_data 13 *StringStringEntryProto,
  data_location 14 @DataLocation, metadata_props 16 *StringStringEntryProto
Segment: begin 1 int64, end 2 int64
SparseTensorProto: values 1 TensorProto, indices 2 TensorProto, dims 3 *int64
ValueInfoProto: name 1 string, type 2 TypeProto, doc_string 3 string, metadata_props 4 *StringStringEntryProto
TypeProto: tensor_type 1 |TensorType, sequence_type 4 |SequenceType, map_type 5 |MapType, denotation 6 string,
  opaque_type 7 |OpaqueType, sparse_tensor_type 8 |TensorType, optional_type 9 |OptionalType
TensorType: elem_type 1 int32, shape 2 TensorShapeProto
SequenceType: elem_type 1 TypeProto
MapType: key_type 1 int32, value_type 2 TypeProto
OpaqueType: domain 1 string, name 2 string
OptionalType: elem_type 1 TypeProto
TensorShapeProto: dim 1 *Dimension
Dimension: dim_value 1 |int64, dim_param 2 |string, denotation 3 string
"""
"""A message per paragraph: fields with number and type.

`*` is repeated, `#` repeated and packed, `|` one of the message's alternatives, `@` an enumeration.
"""

_ENUMERATIONS = {"AttributeType": 15, "DataLocation": 2}  # values from 0; others count as not given

EXTERNAL = 1  # the location of a tensor whose data is in another file
CONSTANT_TYPES = {"float32": 1, "int64": 7, "bool": 9, "float16": 10, "float64": 11}  # by ONNX

_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="onnx-graphs.proto", package="onnx", syntax="proto2")
    for name, count in _ENUMERATIONS.items():
        enumeration = file.enum_type.add(name=name)
        for number in range(count):
            enumeration.value.add(name=f"{name}_{number}", number=number)
    for paragraph in _SCHEMA.strip().replace("\n  ", " ").splitlines():
        name, _, fields = paragraph.partition(": ")
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            _add_field(message, *field.split())
    return file


def _add_field(message: Any, name: str, number: str, kind: str) -> None:
    label = _Field.LABEL_REPEATED if kind[0] in "*#" else _Field.LABEL_OPTIONAL
    plain = kind.lstrip("*#|@")
    field = message.field.add(name=name, number=int(number), label=label)
    if plain[0].islower():
        field.type = _Field.Type.Value(f"TYPE_{plain.upper()}")
    else:
        field.type = _Field.TYPE_ENUM if kind[0] == "@" else _Field.TYPE_MESSAGE
        field.type_name = f".onnx.{plain}"
    if kind[0] == "#":
        field.options.packed = True
    if kind[0] == "|":
        if not message.oneof_decl:
            message.oneof_decl.add(name="value")
        field.oneof_index = 0


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    file = _file()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"onnx.{message.name}"))
        for message in file.message_type
    }


def texts_of(message: Any) -> Iterator[str | bytes]:
    """Every string in a message and the messages in it; those that are not UTF-8 are bytes."""
    for field, value in message.ListFields():
        if field.type == _Field.TYPE_STRING:
            yield from [value] if isinstance(value, str | bytes) else value
        elif field.type == _Field.TYPE_MESSAGE:
            for inner in [value] if isinstance(value, Message) else value:
                yield from texts_of(inner)


_MESSAGES = _classes()
ModelProto: Any = _MESSAGES["ModelProto"]
TensorProto: Any = _MESSAGES["TensorProto"]


OPSET = 18  # the exporter's native opset: a lower one would be converted, a higher one runs on fewer runtimes
ROUNDING, SENSITIVITY = (
    1e-7,
    100.0,
)  # of numbers given; how many times its effect a graph may differ from torch
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
MAX_FIELDS = 400_000  # take at most 60 MB when parsed; the step graph of `resnet56` has 47,000
MAX_CONSTANT_BYTES = 1024 * 1024  # far above the constants of a graph without weights


class GraphRefused(EdgeError):
    """An ONNX file that this device does not load."""


def read_graph(data: bytes, *, max_bytes: int) -> Any:
    """The parsed model; raises `GraphRefused` for too many bytes and for bytes that are no model."""
    if len(data) > max_bytes:
        raise GraphRefused(f"it has {len(data)} bytes, at most {max_bytes} are read")
    model = ModelProto()
    try:
        if count_fields(data, model.DESCRIPTOR, limit=MAX_FIELDS) > MAX_FIELDS:
            raise GraphRefused(f"it has more than {MAX_FIELDS} fields")
        model.ParseFromString(data)
        readable = all(isinstance(text, str) for text in texts_of(model))
    except GraphRefused:
        raise
    except Exception as error:
        # protobuf's exception classes differ between its versions.
        raise GraphRefused(f"it is not valid ONNX: {first_line(error)}") from error
    if not readable:
        raise GraphRefused("it is not valid ONNX: a text is not UTF-8")
    return model


def check_graph(data: bytes, *, max_bytes: int, max_nodes: int) -> Any:
    """The model of a graph that holds ONNX's own operators alone; raises `GraphRefused`.

    It has one opset, no functions, no control flow, no data outside of it, and small constants, none of
    them sparse. Every text in it is UTF-8.
    """
    model = read_graph(data, max_bytes=max_bytes)
    check_operators(model)
    graph = model.graph
    if len(graph.node) > max_nodes:
        raise GraphRefused(f"it has {len(graph.node)} operators, at most {max_nodes} are run")
    for node in graph.node:
        if node.op_type in CONTROL_FLOW or any(map(_inner, node.attribute)):
            raise GraphRefused(f"it has control flow: {node.op_type}")
    constants = sum(tensor.ByteSize() for tensor in tensors_of(graph))
    if constants > MAX_CONSTANT_BYTES:
        raise GraphRefused(f"it has {constants} bytes of constants, at most {MAX_CONSTANT_BYTES} are read")
    return model


def check_operators(model: Any) -> None:
    """Raise `GraphRefused` for operators other than ONNX's own of one opset, and for external data.

    Sparse constants are refused too.
    """
    opsets = [(opset.domain, opset.version) for opset in model.opset_import]
    if opsets != [("", OPSET)] or model.functions or model.training_info:
        raise GraphRefused(f"it is not of opset {OPSET} alone")
    for node in nodes_of(model.graph):
        if node.domain:
            raise GraphRefused(f"it has an operator of {node.domain!r}: {node.op_type}")
    if any(tensor.data_location == EXTERNAL or tensor.external_data for tensor in tensors_of(model.graph)):
        raise GraphRefused("it refers to data outside of it")
    if any(map(_is_sparse, _graphs(model.graph))):
        # A few bytes of a sparse constant become any number of bytes in memory.
        raise GraphRefused("it has sparse constants")


def nodes_of(graph: Any) -> Iterator[Any]:
    """Every node, including those of inner graphs."""
    return (node for inner in _graphs(graph) for node in inner.node)


def tensors_of(graph: Any) -> Iterator[Any]:
    """Every constant that is not sparse, including those of inner graphs."""
    for inner in _graphs(graph):
        yield from inner.initializer
    for attribute in (attribute for node in nodes_of(graph) for attribute in node.attribute):
        yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)


@contextmanager
def refused_if_it_cannot_run() -> Iterator[None]:
    """Within it an error of onnxruntime is a `GraphRefused`; that of a disk stays what it is."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise GraphRefused(f"onnxruntime cannot run the graph: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def _is_sparse(graph: Any) -> bool:
    """Whether a graph, without its inner graphs, has a sparse constant."""
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    return bool(graph.sparse_initializer) or any(
        attribute.HasField("sparse_tensor") or attribute.sparse_tensors for attribute in attributes
    )


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph and all inner graphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in _inner(attribute):
                yield from _graphs(inner)


def _inner(attribute: Any) -> list[Any]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


# Counts the fields of a protobuf file before it is parsed: two bytes of a file may take 140 in memory.

MESSAGE_TYPE = 11  # protobuf's number of fields that hold a message
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # protobuf's encodings of a field
_MAX_VARINT = 10


def count_fields(data: bytes, descriptor: Any, *, limit: int) -> int:
    """The fields of a message and of all messages in it; counting stops above `limit`.

    Raises `ValueError` for bytes that are no such message. Nested messages are not read recursively.
    """
    count, ranges = 0, [(0, len(data), descriptor)]
    while ranges and count <= limit:
        position, end, kind = ranges.pop()
        inner = {field.number: field.message_type for field in kind.fields if field.type == MESSAGE_TYPE}
        while position < end and count <= limit:
            count += 1
            tag, position = _varint(data, position, end)
            start, position = _skip(data, position, end, tag & 7)
            if tag & 7 == LENGTH and tag >> 3 in inner:
                ranges.append((start, position, inner[tag >> 3]))
    return count


def _skip(data: bytes, position: int, end: int, encoding: int) -> tuple[int, int]:
    """Where a field's content begins and ends."""
    if encoding == VARINT:
        return position, _varint(data, position, end)[1]
    sizes = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
    if encoding == LENGTH:
        size, position = _varint(data, position, end)
    elif encoding in sizes:
        size = sizes[encoding]
    else:
        raise ValueError(f"a field of encoding {encoding}")
    if position + size > end:
        raise ValueError("a field is longer than its message")
    return position, position + size


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the position behind it."""
    value = shift = 0
    for index in range(position, min(end, position + _MAX_VARINT)):
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value, index + 1
        shift += 7
    raise ValueError("a number has no end")
