"""ONNX's messages as described here, beside those of the onnx package."""

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edge_client.models.graphs.checks import CONSTANT_TYPES, ModelProto, texts_of
from tests.edge_client.models.graphs.networks import graph

ELSEWHERE = {"device_configurations", "configuration"}
"""Fields that place operators on devices, which are not described here."""
RENAMED = {"Tensor": "TensorType", "SparseTensor": "TensorType"} | {
    name: f"{name}Type" for name in ("Sequence", "Map", "Opaque", "Optional")
}


def messages(descriptor: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The descriptors of all messages that a message refers to, by their names here."""
    name = RENAMED.get(descriptor.name, descriptor.name)
    if name not in found:
        found[name] = descriptor
        for field in descriptor.fields:
            if field.message_type is not None and field.name not in ELSEWHERE:
                messages(field.message_type, found)
    return found


def fields(descriptor: Any) -> dict[str, tuple[Any, ...]]:
    """What determines the bytes of each field."""
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.is_packed,
            field.containing_oneof is not None,
            None if field.enum_type is None else sorted(field.enum_type.values_by_number),
        )
        for field in descriptor.fields
        if field.name not in ELSEWHERE
    }


def test_every_field_is_that_of_the_onnx_package() -> None:
    ours, theirs = messages(ModelProto.DESCRIPTOR, {}), messages(onnx.ModelProto.DESCRIPTOR, {})
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert fields(ours[name]) == fields(theirs[name]), name


def test_numpys_types_have_the_numbers_of_the_onnx_package() -> None:
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    assert {
        name: TensorProto.DataType.Value(names.get(name, name.upper())) for name in CONSTANT_TYPES
    } == CONSTANT_TYPES


def everything() -> onnx.ModelProto:
    """A model with constants, sparse constants, attributes of many types, and an inner graph."""
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "inner", [], [])
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0])
    sparse = helper.make_sparse_tensor(tensor, helper.make_tensor("i", TensorProto.INT64, [2], [0, 3]), [4])
    node = helper.make_node(
        "Any", ["x"], ["y"], name="n", doc_string="d", domain="x.y", i=-1, f=0.5, s="s", ints=[1, -2]
    )
    more = {"floats": [0.5], "strings": ["a", "b"], "t": tensor, "g": inner, "sp": sparse}
    node.attribute.extend(helper.make_attribute(name, value) for name, value in more.items())
    outside = TensorProto(name="o", dims=[1], data_type=1, data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="/etc/passwd")
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    graph_proto = helper.make_graph(
        [node], "g", values, values, [tensor, outside], sparse_initializer=[sparse]
    )
    function = helper.make_function("x.y", "F", ["a"], ["b"], [node], [helper.make_opsetid("", 18)], ["attr"])
    model = helper.make_model(graph_proto, functions=[function])
    helper.set_model_props(model, {"key": "value", "\u00fc": "\u2713"})
    return model


@pytest.mark.parametrize("make", [lambda: graph("cnn-batch"), lambda: everything().SerializeToString()])
def test_files_are_read_and_written_alike(make: Any) -> None:
    theirs = onnx.load_model_from_string(make())
    data = theirs.SerializeToString(deterministic=True)
    ours = ModelProto.FromString(data)
    assert ours.SerializeToString(deterministic=True) == data
    assert onnx.load_model_from_string(ours.SerializeToString()) == theirs
    assert len(ours.graph.node) == len(theirs.graph.node) > 0


def test_an_alternative_that_was_overwritten_is_gone() -> None:
    # dim_value 8, then dim_param "b", in one dimension: the later one holds.
    model = onnx.ModelProto()
    dim = model.graph.input.add().type.tensor_type.shape.dim.add(dim_value=8)
    data = model.SerializeToString()
    both = data.replace(dim.SerializeToString(), b"")
    assert both != data
    parsed = type(ModelProto().graph.input.add().type.tensor_type.shape.dim.add()).FromString(
        b"\x08\x08\x12\x01b"
    )
    assert (parsed.dim_value, parsed.dim_param) == (0, "b")


def test_an_unknown_location_does_not_hide_an_external_one() -> None:
    tensor = type(ModelProto().graph.initializer.add()).FromString(b"\x70\x01\x70\x07")
    theirs = TensorProto.FromString(b"\x70\x01\x70\x07")
    assert tensor.data_location == theirs.data_location == TensorProto.EXTERNAL


def test_texts_are_found_in_every_message() -> None:
    texts = list(texts_of(ModelProto.FromString(everything().SerializeToString())))
    assert {"inner", "batch", "/etc/passwd", "value", "attr", "Identity"} <= set(texts)
    broken = ModelProto(producer_name="ab").SerializeToString().replace(b"ab", b"\xff\xfe")
    assert list(texts_of(ModelProto.FromString(broken))) == [b"\xff\xfe"]
