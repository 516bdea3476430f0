"""The update firewall: every kind of wrong update is refused with its reason, and honest updates pass."""

import json

import numpy as np
import pytest

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, personal_spec, prefix_spec
from edge_client.pruning.index_sets import expected_shapes, extract
from edge_client.pruning.surgery import arrays_of
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.validation.contents import MAX_ABS, examine, max_answer_bytes
from edge_server.strategy.pruning.pruners import Attention, Evidence
from schemas.errors import PeerError, Reason
from schemas.messages import TrainTask, Update, decode_message, encode_message
from schemas.strategy import PersonalPruning, TrainingPlan
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors.chunks import encode_json
from schemas.values import ModelSpec, Preprocessing, TrainingMetrics
from tests.groups import encode_groups, read_groups
from tests.schemas.examples import plain_task, plain_update

# Four channels in blocks of two, flattened from 2x1 maps, feed five hidden channels, then three classes.
_CONV, _HIDDEN = Segment(channels=4, group="conv"), Segment(channels=5, group="hidden")
MAP = ChannelMap(
    groups={
        "conv": ChannelGroup(channels=4, layers=("conv",), multiple=2),
        "hidden": ChannelGroup(channels=5, layers=("hidden",)),
    },
    parameters={
        "conv.weight": ParameterLayout(shape=(4, 1, 3, 3), axes={0: (_CONV,)}),
        "conv.bias": ParameterLayout(shape=(4,), axes={0: (_CONV,)}),
        "hidden.weight": ParameterLayout(
            shape=(5, 8), axes={0: (_HIDDEN,), 1: (_CONV.model_copy(update={"repeat": 2}),)}
        ),
        "out.weight": ParameterLayout(shape=(3, 5), axes={1: (_HIDDEN,)}),
    },
)
PREFIX = SubModelSpec(kept={"conv": 2, "hidden": 3})
# ceil(2 blocks * 0.5) = 1 of 2 blocks is cut, and ceil(5 * 0.4) = 2 of 5 channels.
PERSONAL = PersonalPruning(ratios={"conv": 0.5, "hidden": 0.4})
CHOSEN = SubModelSpec(kept={"conv": (2, 3), "hidden": (4, 0, 2)})
SCORES = {"conv": np.array([0.1, 0.2, 0.9, 0.8], np.float32), "hidden": np.arange(5, dtype=np.float32) / 8}


def task(personal: PersonalPruning | None = None, spec: SubModelSpec = PREFIX, **more) -> TrainTask:
    usual = {"ratio": 0.5, "model": ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=3)}
    parts = {"spec": SubModelSpec() if personal else spec, "personal": personal}
    return plain_task(TrainTask, **(usual | parts | more))


def update(spec: SubModelSpec, examples: int = 10, **metrics) -> Update:
    measured = TrainingMetrics(examples=examples, epochs=1, steps=1, **metrics)
    return plain_update(spec=spec, metrics=measured)


def model(spec: SubModelSpec) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = expected_shapes(spec, MAP)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


PLAIN, ASKED = task(), task(PERSONAL)
HONEST = {"model": model(PREFIX)}
HONEST_PERSONAL = {"model": model(CHOSEN), "attention": SCORES}


def changed(groups, group: str, **arrays):
    """Return the groups with arrays of `group` replaced, or removed if None; in names, `_` stands for `.`."""
    named = {name.replace("_", ".", 1): array for name, array in arrays.items()}
    mixed = {**groups[group], **named}
    return {**groups, group: {name: array for name, array in mixed.items() if array is not None}}


def reason_of(answer: Update, groups, asked: TrainTask) -> str:
    with pytest.raises(PeerError) as refused:
        examine(answer, groups, asked, MAP)
    return refused.value.reason


# --- honest updates ---
def test_a_plain_update_passes():
    examine(update(PREFIX), HONEST, PLAIN, MAP)


def test_a_full_model_passes_where_the_task_sent_one():
    examine(update(SubModelSpec()), {"model": model(SubModelSpec())}, task(spec=SubModelSpec()), MAP)


def test_a_personal_update_passes_with_its_scores():
    examine(update(CHOSEN), HONEST_PERSONAL, ASKED, MAP)


def test_a_personal_update_at_ratio_zero_names_every_channel():
    whole = SubModelSpec(kept={"conv": (2, 3, 0, 1), "hidden": (4, 3, 2, 1, 0)})
    asked = task(PersonalPruning(ratios={"conv": 0.0, "hidden": 0.0}))
    examine(update(whole), {"model": model(whole), "attention": SCORES}, asked, MAP)


def test_an_update_without_examples_needs_no_scores():
    prefix = SubModelSpec(kept={"conv": 2, "hidden": 3})
    examine(update(prefix, examples=0), {"model": model(prefix)}, ASKED, MAP)


def test_the_largest_allowed_change_passes():
    edge = changed(HONEST, "model", conv_bias=np.array([MAX_ABS, -MAX_ABS], np.float32))
    examine(update(PREFIX), edge, PLAIN, MAP)


# --- specs ---
@pytest.mark.parametrize(
    "spec",
    [
        SubModelSpec(),
        SubModelSpec(kept={"conv": 2}),
        SubModelSpec(kept={"conv": 2, "hidden": 4}),
        SubModelSpec(kept={"conv": (0, 1), "hidden": 3}),
        SubModelSpec(kept={"conv": 2, "hidden": 3, "other": 1}),
    ],
    ids=[
        "full",
        "one group missing",
        "one channel too many",
        "the same channels by index",
        "an unknown group",
    ],
)
def test_a_sub_model_other_than_the_tasks_is_refused(spec):
    assert reason_of(update(spec), HONEST, PLAIN) == Reason.WRONG_SHAPE


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"conv": (2, 3)},
        {"conv": (2, 3), "hidden": (4, 0)},
        {"conv": (2, 3), "hidden": (4, 0, 2, 1)},
        {"conv": (2, 3), "hidden": (4, 0, 5)},
        {"conv": (2, 3), "hidden": (4, 0, 2**70)},
        {"conv": 4, "hidden": 3},
        {"conv": (2, 3), "hidden": (4, 0, 2), "other": (0,)},
        {"conv": (2, 3), "hidden": (4, 0, 2), "other": 1},
        {"conv": (1, 2), "hidden": (4, 0, 2)},
        {"conv": (3, 0), "hidden": (4, 0, 2)},
    ],
    ids=[
        "full",
        "a group left out",
        "too few",
        "too many",
        "an unknown channel",
        "a huge channel index",
        "a prefix that is too long",
        "an unknown group by index",
        "an unknown group by prefix",
        "two half blocks",
        "two half blocks, reversed",
    ],
)
def test_a_personal_choice_must_be_the_right_number_of_known_channels_in_whole_blocks(kept):
    assert reason_of(update(SubModelSpec(kept=kept)), HONEST_PERSONAL, ASKED) == Reason.WRONG_SHAPE


def test_a_personal_choice_in_an_uncut_group_is_refused():
    asked = task(PersonalPruning(ratios={"hidden": 0.4}))
    spec = SubModelSpec(kept={"conv": (2, 3), "hidden": (4, 0, 2)})
    assert reason_of(update(spec), HONEST_PERSONAL, asked) == Reason.WRONG_SHAPE


def test_a_prefix_too_long_for_memory_is_refused_immediately():
    endless = update(SubModelSpec(kept={"conv": 2, "hidden": 10**12}))
    assert reason_of(endless, HONEST_PERSONAL, ASKED) == Reason.WRONG_SHAPE


# --- groups ---
@pytest.mark.parametrize(
    "groups",
    [{}, {"attention": SCORES}, {**HONEST, "attention": SCORES}, {**HONEST, "control": HONEST["model"]}],
    ids=["none", "no model", "unrequested scores", "an unknown group"],
)
def test_a_plain_update_contains_only_the_model(groups):
    assert reason_of(update(PREFIX), groups, PLAIN) == Reason.WRONG_SHAPE


@pytest.mark.parametrize(
    "groups",
    [{"model": HONEST_PERSONAL["model"]}, {"attention": SCORES}, {**HONEST_PERSONAL, "control": SCORES}],
    ids=["no scores", "no model", "an unknown group"],
)
def test_a_personal_update_contains_only_the_model_and_its_scores(groups):
    assert reason_of(update(CHOSEN), groups, ASKED) == Reason.WRONG_SHAPE


# --- arrays ---
BIAS = HONEST["model"]["conv.bias"]
WRONG = {
    "a tensor is missing": (None, Reason.WRONG_SHAPE),
    "double precision": (BIAS.astype(np.float64), Reason.WRONG_SHAPE),
    "half precision": (BIAS.astype(np.float16), Reason.WRONG_SHAPE),
    "integers": (BIAS.astype(np.int32), Reason.WRONG_SHAPE),
    "booleans": (BIAS.astype(bool), Reason.WRONG_SHAPE),
    "complex numbers": (BIAS.astype(np.complex64), Reason.WRONG_SHAPE),
    "the other byte order": (BIAS.astype(">f4"), Reason.WRONG_SHAPE),
    "all channels": (np.zeros(4, np.float32), Reason.WRONG_SHAPE),
    "no channels": (np.zeros(0, np.float32), Reason.WRONG_SHAPE),
    "a scalar": (np.float32(1).reshape(()), Reason.WRONG_SHAPE),
    "another axis": (BIAS[:, None], Reason.WRONG_SHAPE),
    "NaN": (np.array([0, np.nan], np.float32), Reason.NOT_FINITE),
    "infinity": (np.array([np.inf, 0], np.float32), Reason.NOT_FINITE),
    "minus infinity": (np.array([0, -np.inf], np.float32), Reason.NOT_FINITE),
    "a huge number": (np.array([0, 2e6], np.float32), Reason.OUT_OF_BOUNDS),
    "a huge negative number": (np.array([-3e38, 0], np.float32), Reason.OUT_OF_BOUNDS),
}


@pytest.mark.parametrize("case", WRONG)
def test_every_tensor_must_match_the_sub_model(case):
    array, reason = WRONG[case]
    wrong = changed(HONEST, "model", conv_bias=array)
    assert reason_of(update(PREFIX), wrong, PLAIN) == reason


def test_an_extra_tensor_is_refused():
    more = changed(HONEST, "model", extra_weight=np.zeros(1, np.float32))
    assert reason_of(update(PREFIX), more, PLAIN) == Reason.WRONG_SHAPE


def test_a_transposed_tensor_is_refused():
    turned = changed(HONEST, "model", hidden_weight=HONEST["model"]["hidden.weight"].T.copy())
    assert reason_of(update(PREFIX), turned, PLAIN) == Reason.WRONG_SHAPE


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({"hidden": None}, Reason.WRONG_SHAPE),
        ({"conv": SCORES["conv"], "out": np.zeros(3, np.float32)}, Reason.WRONG_SHAPE),
        # Scores of the kept channels only; a ranking needs the scores of all channels.
        ({"hidden": np.zeros(3, np.float32)}, Reason.WRONG_SHAPE),
        ({"hidden": np.arange(5.0)}, Reason.WRONG_SHAPE),
        ({"hidden": np.full(5, np.nan, np.float32)}, Reason.NOT_FINITE),
        ({"hidden": np.full(5, np.inf, np.float32)}, Reason.NOT_FINITE),
        ({"hidden": np.full(5, 1e7, np.float32)}, Reason.OUT_OF_BOUNDS),
    ],
)
def test_scores_are_one_finite_number_per_channel_of_each_layer(scores, reason):
    wrong = changed(HONEST_PERSONAL, "attention", **scores)
    assert reason_of(update(CHOSEN), wrong, ASKED) == reason


def test_a_refusal_states_the_expected_and_the_received_value():
    with pytest.raises(PeerError, match=r"'conv.bias': expected float32 \(2,\), got float64 \(2,\)"):
        examine(update(PREFIX), changed(HONEST, "model", conv_bias=BIAS.astype(float)), PLAIN, MAP)
    few = SubModelSpec(kept={"conv": (2, 3), "hidden": (4, 0)})
    with pytest.raises(PeerError, match=r"expected .*'hidden': 3.* got .*'hidden': 2"):
        examine(update(few), HONEST_PERSONAL, ASKED, MAP)


# --- metrics ---
@pytest.mark.parametrize(
    "metrics",
    [{"examples": 2**63}, {"examples": 10**400}, {"train_loss": 1e308}],
    ids=["more than the journal holds", "more than a float holds", "a loss that sums to infinity"],
)
def test_metrics_too_large_to_compute_with_are_refused(metrics):
    """They are refused on decoding, because later they would end the run."""
    sent = json.loads(encode_message(update(PREFIX)))
    sent["metrics"] |= metrics
    with pytest.raises(PeerError, match="malformed update"):
        decode_message(json.dumps(sent).encode())


# --- the size bound ---
NETWORKS = [
    ("two-nn", (3, 32, 32)),
    ("two-nn", (1, 8, 8)),
    ("resnet20", (3, 16, 16)),
    ("resnet56", (3, 32, 32)),
    ("mlp", (1, 28, 28)),
    ("cnn-group", (1, 8, 8)),
]
RATIOS = (0.7, 0.5, 0.3, 0.1, 0.0)


def network(name: str, shape: tuple[int, ...]):
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=10))
    return arrays_of(module), trace_channels(module, shape)


@pytest.mark.parametrize(("name", "shape"), NETWORKS)
def test_every_tiers_honest_answer_is_within_its_bound(name, shape):
    params, channel_map = network(name, shape)
    bounds = []
    for ratio in RATIOS:
        by_group = group_ratios(entry(name), ratio, channel_map)
        prefix = prefix_spec(by_group, channel_map)
        bounds.append(max_answer_bytes(task(spec=prefix), channel_map))
        assert len(encode_groups({"model": extract(params, prefix, channel_map)})) <= bounds[-1]
        layers = {layer for group in by_group for layer in channel_map.groups[group].layers}
        scores = {layer: np.zeros(len(params[f"{layer}.weight"]), np.float32) for layer in layers}
        means = {group: np.zeros(channel_map.groups[group].channels) for group in by_group}
        chosen = extract(params, personal_spec(means, by_group, channel_map), channel_map)
        asked = task(PersonalPruning(ratios=by_group))
        size = len(encode_groups({"model": chosen, "attention": scores}))
        assert size <= max_answer_bytes(asked, channel_map) == bounds[-1]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize(("name", "shape"), [case for case in NETWORKS if case[1] != (1, 8, 8)])
def test_the_weakest_tier_may_not_answer_with_a_full_model(name, shape):
    params, channel_map = network(name, shape)
    prefix = prefix_spec(group_ratios(entry(name), 0.7, channel_map), channel_map)
    assert max_answer_bytes(task(spec=prefix), channel_map) < len(encode_groups({"model": params}))


# --- updates from a real client ---
@pytest.mark.parametrize("ratio", [0.7, 0.0])
@pytest.mark.parametrize("first_round", ["prune-first", "train", "score-only"])
@pytest.mark.parametrize("examples", [24, 0])
def test_a_devices_update_of_the_first_round_passes(tmp_path, examples, first_round, ratio):
    params, channel_map = network("two-nn", (1, 8, 8))
    by_group = group_ratios(entry("two-nn"), ratio, channel_map)
    cut = Attention(first_round).cut(by_group, channel_map, Evidence(ordered=False))
    digits = load_source("digits")
    data = LocalData(digits.subset(np.arange(examples)), digits.subset(np.arange(24, 32)))
    place = TaskContext("pi", BlobStore(tmp_path / "blobs"), data, tmp_path / "models")
    blobs = {
        "state": place.store.put_blob(encode_groups({"model": params})),
        "channel-map": place.store.put_blob(encode_json(channel_map)),
    }
    asked = task(
        cut.personal,
        model=ModelSpec(name="two-nn", input_shape=(1, 8, 8), num_classes=10),
        preprocessing=Preprocessing(scale=16.0),
        training=TrainingPlan(local_epochs=int(cut.train), objectives=cut.objectives),
        blobs=blobs,
    )
    answer = do_training(asked, place, on_epoch=lambda report: None, should_stop=lambda: False)
    groups = read_groups(place.store.blob_path(answer.blob.digest))
    examine(answer, groups, asked, channel_map)
    assert answer.blob.size <= max_answer_bytes(asked, channel_map)
