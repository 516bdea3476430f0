"""ONNX's messages on protobuf, which onnxruntime installs; the onnx package needs ten times their memory.

The schema is that of onnx.proto (ONNX 1.23) without the placement of operators on several devices.
Alternatives (`oneof`) and enumerations are described too, so that a file is read here as onnxruntime reads
it. protobuf keeps fields that are not named here.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

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
