"""Which arrays of a file fit a network, by name and shape."""

import numpy as np
import pytest

from edge_client.data.classes import numbers
from edge_server.coordinator.pretrained.model import Outputs, find_names, match_arrays

NETWORK = {"conv.weight": (4, 3, 3, 3), "norm.running_mean": (4,), "head.weight": (3, 4), "head.bias": (3,)}


def kinds(shapes: dict[str, tuple[int, ...]], dtype: str = "float32") -> dict:
    return {name: (np.dtype(dtype), shape) for name, shape in shapes.items()}


def outputs(*here: str, layer: str | None = "head", there: tuple[str, ...] = ()) -> Outputs:
    return Outputs(layer, here or numbers(3), there)


def of_classes(count: int) -> dict[str, tuple[int, ...]]:
    return {**NETWORK, "head.weight": (count, 4), "head.bias": (count,)}


def test_equal_names_and_shapes_are_taken_and_the_rest_of_the_file_is_left() -> None:
    given = kinds({**NETWORK, "aux.weight": (2, 4)})
    match = match_arrays(NETWORK, given, outputs())
    assert match.taken == {name: name for name in NETWORK}
    assert (match.drawn, match.unused, match.share) == ({}, ("aux.weight",), 1.0)


def test_a_head_of_another_number_of_classes_is_drawn_anew_and_costs_no_share() -> None:
    match = match_arrays(NETWORK, kinds(of_classes(1000)), outputs())
    why = "1,000 classes in the file, 3 here"
    assert match.drawn == {"head.weight": why, "head.bias": why}
    assert (set(match.taken), match.share) == ({"conv.weight", "norm.running_mean"}, 1.0)


def test_rows_of_classes_go_by_their_names() -> None:
    match = match_arrays(
        NETWORK, kinds(of_classes(4)), outputs("hen", "ox", "cat", there=("cat", "dog", "hen", "elk"))
    )
    assert (match.rows, match.drawn) == ((2, None, 0), {})
    assert set(match.taken) == set(NETWORK)


def test_as_many_classes_of_other_names_are_drawn_anew_and_without_names_taken() -> None:
    there = ("ant", "bee", "fly")
    other = match_arrays(NETWORK, kinds(NETWORK), outputs("cat", "dog", "hen", there=there))
    assert other.drawn == dict.fromkeys(("head.weight", "head.bias"), "other classes in the file")
    assert not match_arrays(NETWORK, kinds(NETWORK), outputs("cat", "dog", "hen")).drawn
    assert not match_arrays(NETWORK, kinds(NETWORK), outputs(there=there)).drawn
    assert not match_arrays(NETWORK, kinds(NETWORK), outputs("cat", "dog", "hen", there=numbers(3))).drawn


def test_numbered_classes_on_both_sides_go_by_their_numbers() -> None:
    assert match_arrays(NETWORK, kinds(of_classes(2)), outputs(there=numbers(2))).rows == (0, 1, None)


def test_a_head_that_reads_other_features_is_drawn_anew_as_a_whole() -> None:
    match = match_arrays(NETWORK, kinds({**NETWORK, "head.weight": (3, 9)}), outputs())
    assert match.drawn == dict.fromkeys(("head.weight", "head.bias"), "(3, 9) in the file, (3, 4) here")


def test_a_last_layer_that_is_not_known_is_told_by_its_rows() -> None:
    network, given = {**NETWORK, "scale": ()}, kinds({**of_classes(5), "scale": (5,)})
    match = match_arrays(network, given, outputs(layer=None))
    assert match.head == {"head.weight", "head.bias"}
    assert set(match.drawn) == {*match.head, "scale"}
    assert match.share == 112 / 113


def test_a_first_layer_of_three_colours_is_summed_for_one() -> None:
    network = {**NETWORK, "conv.weight": (4, 1, 3, 3)}
    match = match_arrays(network, kinds(NETWORK), outputs())
    assert (match.summed, match.drawn) == ({"conv.weight"}, {})
    assert "conv.weight" in match_arrays(NETWORK, kinds(network), outputs()).drawn


def test_missing_arrays_other_shapes_and_other_types_are_named_and_lower_the_share() -> None:
    network = {"a.weight": (6, 1), "b.weight": (2, 1), "c.weight": (1, 1), "d.weight": (1, 1), **NETWORK}
    given = {
        **kinds({"a.weight": (6, 1), "b.weight": (3, 1), **NETWORK}),
        **kinds({"c.weight": (1, 1)}, "int8"),
        **kinds({"e.weight": (1, 1)}, "complex64"),
    }
    del given["conv.weight"], given["norm.running_mean"]
    match = match_arrays(network, given, outputs())
    assert match.drawn == {
        "b.weight": "(3, 1) in the file, (2, 1) here",
        "c.weight": "int8 in the file",
        "d.weight": "not in the file",
        "conv.weight": "not in the file",
        "norm.running_mean": "not in the file",
    }
    assert match.share == 6 / (6 + 2 + 1 + 1 + 108 + 4)


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.module.", "state.model.net."])
def test_a_prefix_of_all_names_on_either_side_does_not_count(prefix: str) -> None:
    longer = {prefix + name: shape for name, shape in NETWORK.items()}
    assert find_names(NETWORK, kinds(longer)) == {name: prefix + name for name in NETWORK}
    assert find_names(longer, kinds(NETWORK)) == {prefix + name: name for name in NETWORK}
    assert match_arrays(longer, kinds(NETWORK), outputs(layer=prefix + "head")).share == 1.0


def test_a_backbone_inside_a_larger_network_is_found_beside_arrays_of_another_part() -> None:
    body = {f"layer{n}.weight": (8, 8) for n in range(5)}
    given = kinds({f"backbone.{name}": shape for name, shape in body.items()} | {"decoder.weight": (2, 2)})
    match = match_arrays({**body, "head.weight": (3, 8)}, given, outputs())
    assert set(match.taken) == set(body)
    assert (match.drawn, match.unused) == ({"head.weight": "not in the file"}, ("decoder.weight",))


def test_weights_of_a_network_are_taken_for_a_detectors_trunk_alone() -> None:
    added = {
        "neck.0.weight": (96, 4, 1, 1),
        "neck.1.weight": (96, 96, 3, 3),
        "head.classes.weight": (3, 96, 1, 1),
    }
    detector = {"trunk.conv.weight": (4, 3, 3, 3), "trunk.norm.running_mean": (4,), **added}
    match = match_arrays(detector, kinds(of_classes(1000)), outputs(layer=None), trunk="trunk.")
    assert match.taken == {name: name.removeprefix("trunk.") for name in detector if name not in added}
    assert match.drawn == dict.fromkeys(added, "not in the file")
    assert (match.share, match.unused) == (1.0, ("head.bias", "head.weight"))
    # Those of another detector are taken as a whole.
    again = match_arrays(detector, kinds(detector), outputs(layer=None), trunk="trunk.")
    assert (again.taken, again.share) == ({name: name for name in detector}, 1.0)
