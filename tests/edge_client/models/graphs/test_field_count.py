"""Fields of a protobuf file, counted without parsing it."""

import contextlib
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from edge_client.models.graphs.checks import MAX_FIELDS, GraphRefused, ModelProto, count_fields, read_graph
from tests.edge_client.models.graphs.networks import graph

DESCRIPTOR = ModelProto.DESCRIPTOR


def parsed_count(message: Any) -> int:
    """The fields of a parsed message whose packed numbers are absent."""
    count = 0
    for _, value in message.ListFields():
        for one in [value] if isinstance(value, Message | str | bytes | int | float) else value:
            count += 1 + (parsed_count(one) if isinstance(one, Message) else 0)
    return count


def test_every_field_of_a_graph_is_counted() -> None:
    data = graph("mlp")
    count = parsed_count(ModelProto.FromString(data))
    assert count > 100
    assert count_fields(data, DESCRIPTOR, limit=count) == count
    assert count_fields(data, DESCRIPTOR, limit=50) == 51


def test_a_small_file_of_many_messages_is_not_parsed() -> None:
    model = ModelProto()
    for _ in range(MAX_FIELDS):
        model.graph.node.add()
    data = model.SerializeToString()
    assert len(data) < 3 * MAX_FIELDS
    with pytest.raises(GraphRefused, match=f"more than {MAX_FIELDS} fields"):
        read_graph(data, max_bytes=len(data))


BROKEN = {
    "a missing number": (b"\x08", "a number has no end"),
    "a field's number without an end": (b"\x80" * 11, "a number has no end"),
    "a graph longer than the file": (b"\x3a\x05\x0a", "longer than its message"),
    "a node longer than its graph": (b"\x3a\x02\x0a\x01", "longer than its message"),
    "three of four bytes": (b"\x0d\0\0\0", "longer than its message"),
    "a group": (b"\x0b\x0c", "encoding 3"),
}


@pytest.mark.parametrize(("data", "why"), BROKEN.values(), ids=BROKEN)
def test_broken_fields_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        count_fields(data, DESCRIPTOR, limit=10)
    with pytest.raises(GraphRefused, match="not valid ONNX"):
        read_graph(data, max_bytes=100)


@given(st.binary(max_size=100))
def test_the_count_ends(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert count_fields(data, DESCRIPTOR, limit=1000) <= len(data)
