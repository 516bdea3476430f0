"""An update's metrics must agree with its task, and its groups must be values that devices can measure."""

import json

import numpy as np
import pytest

from edge_client.data.tasks.detection import COUNTED, COUNTED_AT_ALL
from edge_server.coordinator.validation.consistency import (
    MAX_OBJECTS,
    cap_birth_claims,
    check_group_values,
    check_training,
    check_variances,
)
from edge_server.rounds.fleet import Device
from edge_server.strategy.groups.header import Header
from edge_server.strategy.groups.registry import MeanData
from edge_server.strategy.weighting.claims import Claims
from schemas.errors import PeerError, Reason
from schemas.messages import decode_message, encode_message
from schemas.strategy import TrainingPlan
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.values import CapabilityProfile, DataCard, ModelSpec
from tests.edge_server.coordinator.validation.test_firewall import PREFIX, task, update

TRAIN = task(training=TrainingPlan(batch_size=16, local_epochs=3))


def claiming(**metrics):
    made = update(PREFIX)
    return made.model_copy(update={"metrics": made.metrics.model_copy(update=metrics)})


def refuses(call, *args, **options) -> bool:
    try:
        call(*args, **options)
    except PeerError as error:
        return error.reason == Reason.OUT_OF_BOUNDS
    return False


@pytest.mark.parametrize(
    ("examples", "epochs", "steps", "refused"),
    [
        # 40 examples in batches of 16: 2 full batches and a rest, which a normalising network may skip.
        (40, 3, 9, False),
        (40, 3, 6, False),
        (0, 0, 0, False),
        (0, 3, 0, False),
        (40, 2, 6, False),
        (40, 3, 10, True),
        (40, 3, 5, True),
        (40, 3, 1, True),
        (40, 3, 10**12, True),
        (40, 0, 3, True),
        (40, 4, 12, True),
        (40, 10**12, 9, True),
        (10**12, 3, 9, True),
        (1, 1, 0, False),
    ],
)
def test_steps_follow_from_examples_batches_and_epochs(examples, epochs, steps, refused):
    claimed = claiming(examples=examples, epochs=epochs, steps=steps)
    assert refuses(check_training, claimed, TRAIN) is refused


@pytest.mark.parametrize("worst", [np.nan, np.inf, 1e30, -0.1, -7e8, 1.1])
def test_attention_is_between_0_and_1(worst):
    scores = np.array([0.0, 1.0, 0.5, worst], np.float32)
    assert refuses(check_group_values, update(PREFIX), {"attention": {"conv": scores}}, ())
    check_group_values(update(PREFIX), {"attention": {"conv": scores[:3]}}, ())


def test_prototypes_cover_no_more_examples_than_the_update():
    def sent(*counts: float):
        means = np.zeros((2, 4), np.float32)
        return {"prototypes": {"out.weight": means, "counts": np.array(counts, np.float32)}}

    check_group_values(update(PREFIX, examples=10), sent(4, 6), (Header(),))
    assert refuses(check_group_values, update(PREFIX, examples=10), sent(4, 7), (Header(),))
    assert refuses(check_group_values, update(PREFIX, examples=10), sent(11, -1), (Header(),))


@pytest.mark.parametrize("labels", [[[-1, 2]], [[0.5, 0.6]], [[1e6, 0]]])
def test_averaged_labels_are_shares(labels):
    def sent(*rows: list[float]):
        arrays = {"images": np.zeros((len(rows), 1, 2, 2)), "labels": np.array(rows, np.float32)}
        return {"mean-data": arrays}

    check_group_values(update(PREFIX, examples=4), sent([0.5, 0.5], [1, 0]), (MeanData(),))
    assert refuses(check_group_values, update(PREFIX, examples=4), sent(*labels), (MeanData(),))
    # An average covers at least two examples.
    assert refuses(check_group_values, update(PREFIX, examples=3), sent([0.5, 0.5], [1, 0]), (MeanData(),))


NORMALISED = ChannelMap(
    groups={"g": ChannelGroup(channels=2, layers=("l",))},
    parameters={"n.running_var": ParameterLayout(shape=(2,), axes={0: (Segment(channels=2, group="g"),)})},
)
VARIANCES = {"n.running_var": np.array([0.5, 0.001], np.float32)}


@pytest.mark.parametrize(
    ("change", "late", "refused"),
    [
        ([-0.5, -0.001], False, False),
        ([-0.501, 0], False, True),
        ([0, -0.002], False, True),
        ([0, -1e6], False, True),
        ([-0.9, 0], True, False),
        ([-1.1, 0], True, True),
    ],
)
def test_a_running_variance_does_not_fall_below_0(change, late, refused):
    groups = {"model": {"n.running_var": np.array(change, np.float32)}}
    whole = update(SubModelSpec())
    assert refuses(check_variances, whole, groups, VARIANCES, NORMALISED, late=late) is refused


def test_a_sub_models_variances_are_compared_with_its_own_channels():
    groups = {"model": {"n.running_var": np.array([-0.002], np.float32)}}
    second = update(SubModelSpec(kept={"g": (1,)}))
    assert refuses(check_variances, second, groups, VARIANCES, NORMALISED)
    first = update(SubModelSpec(kept={"g": (0,)}))
    check_variances(first, groups, VARIANCES, NORMALISED)


# --- births ---
def device(name: str, examples: int, **profile) -> Device:
    card = DataCard(source="digits", examples=examples, input_shape=(1, 8, 8), num_classes=10)
    return Device(name, 1, CapabilityProfile(**profile), card)


def test_a_birth_counts_at_most_ten_medians_of_the_other_births():
    devices = [device(name, 30) for name in "abc"] + [device("liar", 10**12)]
    held, cut = cap_birth_claims(devices, Claims(10_000, 10))
    assert [held_device.data.examples for held_device in held] == [30, 30, 30, 300]
    assert cut == {"liar": "1000000000000 examples in its birth count as 300"}
    assert all(capped is original for capped, original in zip(held, devices[:3], strict=False))


def test_free_memory_is_capped_at_the_total_memory():
    (held,), cut = cap_birth_claims([device("a", 1, memory_bytes=10**9, memory_free_bytes=10**15)], Claims())
    assert (held.profile.memory_free_bytes, cut) == (10**9, {})


MULTI_LABEL = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=3, task="multi-label")
BOXES = ModelSpec(name="detector:mlp", input_shape=(3, 32, 32), num_classes=3, task="detection")
MEASURE = TrainingPlan(batch_size=16, local_epochs=0)


@pytest.mark.parametrize(
    ("by_class", "asked", "refused"),
    [
        # 10 examples are held out, of three classes.
        (((5, 5), (3, 0), (2, 1)), {}, False),
        ((), {}, False),
        (((5, 5), (3, 0), (2, 1)), {"by_class": False}, True),
        (((5, 5), (5, 0)), {}, True),
        (((5, 5), (3, 0), (2, 1), (0, 0)), {}, True),
        (((5, 6), (3, 0), (2, 1)), {}, True),
        (((5, 5), (3, 0), (1, 1)), {}, True),
        (((5, 5), (3, 0), (10**12, 1)), {}, True),
        # An example may have several labels, or none.
        (((10, 5), (9, 0), (0, 0)), {"model": MULTI_LABEL}, False),
        (((11, 5), (9, 0), (0, 0)), {"model": MULTI_LABEL}, True),
        # A picture may have several boxes of one class.
        (((90, 5), (9, 0), (0, 0)), {"model": BOXES}, False),
        (((90, 91), (9, 0), (0, 0)), {"model": BOXES}, True),
        (((10 * MAX_OBJECTS + 1, 5), (9, 0), (0, 0)), {"model": BOXES}, True),
    ],
)
def test_counts_by_class_fit_the_examples_held_out(by_class, asked, refused):
    claimed = claiming(examples=40, epochs=0, steps=0, measured_on=10, by_class=by_class)
    assert (
        refuses(check_training, claimed, task(**{"training": MEASURE, "by_class": True, **asked})) is refused
    )


ROW = (3, *[1] * (COUNTED - 1))


@pytest.mark.parametrize(
    ("counts", "asked", "refused"),
    [
        ((ROW,) * 3, {}, False),
        ((ROW + (1,) * (COUNTED_AT_ALL - COUNTED),) * 3, {}, False),
        (((*ROW, 1),) * 3, {}, True),
        ((), {}, False),
        ((ROW,) * 3, {"by_class": False}, True),
        ((ROW,) * 3, {"model": MULTI_LABEL}, True),
        ((ROW,) * 2, {}, True),
        ((ROW, ROW, ROW[:-1]), {}, True),
        ((ROW, ROW, (10 * MAX_OBJECTS + 1, *ROW[1:])), {}, True),
    ],
)
def test_counts_of_a_figure_are_those_that_its_task_has(counts, asked, refused):
    claimed = claiming(examples=40, epochs=0, steps=0, measured_on=10, counts=counts)
    given = {"training": MEASURE, "by_class": True, "model": BOXES, **asked}
    assert refuses(check_training, claimed, task(**given)) is refused


@pytest.mark.parametrize("by_class", [[[1, -1]], [[1.5, 1]], [[1]], [[1, 1, 1]], [[1, 1]] * 101, [["x", 1]]])
def test_counts_by_class_are_pairs_of_counts_of_a_bounded_number(by_class):
    message = json.loads(encode_message(update(PREFIX)))
    message["metrics"]["by_class"] = by_class
    with pytest.raises(PeerError):
        decode_message(json.dumps(message).encode())
