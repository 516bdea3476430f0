"""Layered states: values shared by nested sub-models are stored once, and the layers add up to the state."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.compression.layered_model import ADDED, SPEC, assemble, first_holding, received_groups
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import LazySlice, extract
from edge_client.pruning.surgery import arrays_of
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.tasks.increments import (
    PublishedVersion,
    name_blobs,
    nested_chains,
    publish_increments,
)
from schemas.errors import PeerError
from schemas.messages import DeliverTask, Increment
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors.arrays import BLOCK_NUMBERS
from schemas.tensors.chunks import BlobRef, encode_json
from schemas.tensors.files import FileGroups
from tests.edge_client.networks import INPUT, Recipe, random_spec, small_net
from tests.edge_server.strategy.network import MAP, arrays
from tests.schemas.examples import plain_task

NETS = [
    Recipe(norm="group", depthwise=True, residual=True, concat=True),
    Recipe(norm="batch", squeeze=True, head="view"),
    Recipe(norm="none", head="mean"),
]
TRACED = [(trace_channels(net, INPUT), arrays_of(net)) for net in (small_net(name, 0) for name in NETS)]
TYPES = [np.float32, np.int8, np.float16, np.bool_]


def narrower(spec: SubModelSpec, channel_map: ChannelMap, seed: int) -> SubModelSpec:
    """Return a sub-model nested in `spec`: some of its blocks, in another order."""
    random = np.random.default_rng(seed)
    kept = {}
    for name, group in channel_map.groups.items():
        held = np.array(spec.indices(name, group.channels)).reshape(-1, group.multiple)
        chosen = random.permutation(len(held))[: random.integers(1, len(held) + 1)]
        kept[name] = tuple(held[np.sort(chosen) if random.integers(2) else chosen].ravel().tolist())
    return SubModelSpec(kept=kept)


class Desk:
    """Publishes layers as a server does and assembles them as a device does."""

    def __init__(self, folder: Path, channel_map: ChannelMap) -> None:
        self.store, self.channel_map = BlobStore(folder, durable=False), channel_map
        self.described = self.store.put_blob(encode_json(channel_map))

    def parts(self, specs, holding, **how):
        how = {"lasting": {"channel-map": self.described}, "shared": True, "new_map": True, **how}
        paths = publish_increments(specs.values(), holding, self.store.put_groups, self.channel_map)
        return name_blobs(specs, [PublishedVersion(paths)], **how)

    def received(self, parts, spec):
        task = plain_task(DeliverTask, spec=spec, blobs=parts.blobs, layers=parts.layers)
        return received_groups(task, self.store, self.channel_map)

    def values(self, ref: BlobRef) -> int:
        groups = FileGroups(self.store.blob_path(ref.digest))
        both = (groups.get(name, {}) for name in ("model", "model" + ADDED))
        return sum(array.size for arrays in both for array in arrays.values())


def assert_same(groups, expected) -> None:
    assert {n: {*a} for n, a in groups.items() if len(a)} == {n: {*a} for n, a in expected.items() if len(a)}
    for group, held in expected.items():
        for name, array in held.items():
            found = groups[group][name]
            assert (found.dtype, found.shape) == (array.dtype, array.shape), (group, name)
            assert found.tobytes() == array.tobytes(), (group, name)


@settings(max_examples=12, deadline=None)
@given(net=st.integers(0, 2), seeds=st.lists(st.integers(0, 9999), min_size=1, max_size=4))
def test_assembled_layers_equal_the_state_bit_for_bit(net, seeds, tmp_path_factory):
    channel_map, params = TRACED[net]
    desk = Desk(tmp_path_factory.mktemp("store"), channel_map)
    specs = {"full": SubModelSpec()}
    for n, seed in enumerate(seeds):
        specs[f"random-{n}"] = random_spec(channel_map, seed)
        specs[f"within-{n}"] = narrower(specs[f"random-{n}"], channel_map, seed)
    dtype = TYPES[seeds[0] % len(TYPES)]

    def holding(spec):
        """Return groups of every kind: cut like the model, common to all, different for every sub-model."""
        codes = {name: (array * 50).astype(dtype) for name, array in params.items()}
        own = sum(len(spec.indices(n, g.channels)) for n, g in channel_map.groups.items())
        return {
            "model": LazySlice(params, spec, channel_map),
            "codes": extract(codes, spec, channel_map),
            "pool": {"images": np.arange(6.0).reshape(2, 3), "round": np.array(3.0)},
            "own": {"count": np.full((2, own), own), "scale": np.array(float(own))},
        }

    for name, parts in desk.parts(specs, holding).items():
        expected = {group: dict(held) for group, held in holding(specs[name]).items()}
        assert_same(desk.received(parts, specs[name]), expected)


def test_nested_sub_models_form_one_chain_whose_layers_add_up_to_the_largest(tmp_path):
    desk, params = Desk(tmp_path, MAP), arrays(0)
    specs = {f"d{kept}": SubModelSpec(kept={"hidden": kept}) for kept in (4, 2, 5)}
    parts = desk.parts({**specs, "again": specs["d2"]}, lambda spec: {"model": LazySlice(params, spec, MAP)})
    refs = [parts["d5"].blobs[layer.blob] for layer in parts["d5"].layers]
    # With n channels the network has 2n + n weights and biases, then 2n weights and 2 biases: 5n + 2.
    assert [desk.values(ref) for ref in refs] == [12, 10, 5]
    assert [len(parts[name].layers) for name in ("d2", "again", "d4", "d5")] == [1, 1, 2, 3]
    # Only d5 uses increment 3.
    assert parts["d5"].channels == {"channel-map": 0, "layer-1": 1, "layer-2": 2}
    assert parts["d2"].channels == {"channel-map": 0, "layer-1": 1}


def test_sub_models_that_do_not_nest_have_separate_layers(tmp_path):
    desk, params = Desk(tmp_path, MAP), arrays(0)
    specs = {"a": SubModelSpec(kept={"hidden": (0, 1)}), "b": SubModelSpec(kept={"hidden": (3, 4)})}
    parts = desk.parts(specs, lambda spec: {"model": LazySlice(params, spec, MAP)}, new_map=False)
    assert [len(task.layers) for task in parts.values()] == [1, 1]
    assert [task.channels for task in parts.values()] == [{}, {}]


def test_tasks_assigned_one_at_a_time_share_no_channels(tmp_path):
    desk, params = Desk(tmp_path, MAP), arrays(0)
    specs = {"a": SubModelSpec(), "b": SubModelSpec()}
    parts = desk.parts(specs, lambda spec: {"model": LazySlice(params, spec, MAP)}, shared=False)
    assert [task.channels for task in parts.values()] == [{}, {}]


def test_a_group_present_only_in_the_smaller_sub_model_starts_a_new_chain(tmp_path):
    desk, params = Desk(tmp_path, MAP), arrays(0)
    specs = {"small": SubModelSpec(kept={"hidden": 2}), "full": SubModelSpec()}

    def holding(spec):
        extra = {"hint": {"x": np.ones(3)}} if spec.kept else {}
        return {"model": LazySlice(params, spec, MAP), **extra}

    parts = desk.parts(specs, holding)
    assert len(parts["full"].layers) == 1
    assert {*desk.received(parts["full"], specs["full"])} == {"model"}


def test_a_chain_is_sorted_by_containment():
    small, middle = SubModelSpec(kept={"hidden": (4, 1)}), SubModelSpec(kept={"hidden": (1, 2, 4)})
    apart = SubModelSpec(kept={"hidden": (0, 3)})
    assert nested_chains([SubModelSpec(), apart, middle, small, middle], MAP) == [
        [apart],
        [small, middle, SubModelSpec()],
    ] or nested_chains([SubModelSpec(), apart, middle, small, middle], MAP) == [
        [small, middle, SubModelSpec()],
        [apart],
    ]


def test_values_outside_a_large_array_are_read_a_piece_at_a_time(tmp_path):
    rows, columns = 3, BLOCK_NUMBERS
    kept = Segment(channels=columns, group="wide")
    channel_map = ChannelMap(
        groups={"wide": ChannelGroup(channels=columns, layers=("wide",))},
        parameters={"w": ParameterLayout(shape=(rows, columns), axes={1: (kept,)})},
    )
    params = {"w": np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)}
    desk = Desk(tmp_path, channel_map)
    specs = {"small": SubModelSpec(kept={"wide": columns - 2}), "full": SubModelSpec()}
    parts = desk.parts(specs, lambda spec: {"model": LazySlice(params, spec, channel_map)})
    assert desk.values(parts["full"].blobs["layer-2"]) == rows * 2
    assert_same(desk.received(parts["full"], specs["full"]), {"model": params})


def small_holding():
    return first_holding({"model": extract(arrays(0), SubModelSpec(kept={"hidden": 2}), MAP), **named(2)})


def named(kept):
    return {SPEC: {"hidden": np.array(kept, np.int32)}}


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        ({"model+": {"hidden.bias": np.zeros(3, np.float32)}, **named(4)}, "does not fit"),
        ({"model+": {"hidden.bias": np.zeros(2, np.float64)}, **named(4)}, "does not fit"),
        ({"model+": {"hidden.bias": np.zeros(2, np.float32)}, **named([1, 2, 3])}, "does not fit"),
        ({"model+": {"stranger": np.zeros(2, np.float32)}, **named(4)}, "there is nothing"),
        ({"other+": {"hidden.bias": np.zeros(2, np.float32)}, **named(4)}, "there is nothing"),
        (named(9), "lacks"),
        (named(0), "names no sub-model"),
        (named([1, 1]), "names no sub-model"),
    ],
)
def test_a_layer_that_does_not_fit_is_refused(layer, why):
    with pytest.raises(PeerError, match=why):
        assemble(small_holding(), layer, MAP)


def test_a_first_layer_for_channels_missing_from_the_network_is_refused():
    first = first_holding({"model": extract(arrays(0), SubModelSpec(kept={"hidden": 2}), MAP), **named(9)})
    with pytest.raises(PeerError, match="lacks"):
        assemble(first, {"model+": {"hidden.bias": np.zeros(2, np.float32)}, **named(4)}, MAP)


def test_layers_of_a_sub_model_other_than_the_tasks_are_refused(tmp_path):
    desk, params = Desk(tmp_path, MAP), arrays(0)
    spec = SubModelSpec(kept={"hidden": 2})
    parts = desk.parts({"a": spec}, lambda spec: {"model": LazySlice(params, spec, MAP)})["a"]
    assert parts.layers == (Increment(blob="layer-1"),)
    with pytest.raises(PeerError, match="another sub-model"):
        desk.received(parts, SubModelSpec())
