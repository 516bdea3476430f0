"""Checks of ONNX files from elsewhere, before onnxruntime reads them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edge_client.models.graphs.onnx_messages import EXTERNAL, ModelProto, texts_of
from schemas.errors import EdgeError

OPSET = 18  # the exporter's native opset: a lower one would be converted, a higher one runs on fewer runtimes
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
