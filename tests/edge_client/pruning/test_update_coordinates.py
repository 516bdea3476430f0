"""The channel coordinates of sent and stored arrays, with five channels sliced and ranked by hand."""

import numpy as np

from edge_client.pruning.update_coordinates import Answer, in_global, in_sub_model
from schemas.messages import TrainTask
from schemas.strategy import PersonalPruning, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_server.strategy.network import MAP


def task(**fields) -> TrainTask:
    model = ModelSpec(name="mlp", input_shape=(2,), num_classes=2)
    common = {"federation": "home", "run": "r", "round": 1, "attempt": 1, "tier": 1, "ratio": 0, "blobs": {}}
    return TrainTask(**common, model=model, training=TrainingPlan(), **fields)


def full(start: float = 0.0) -> dict[str, np.ndarray]:
    """hidden.bias is start + 0, 1, 2, 3, 4; the others likewise."""
    return {
        name: (start + np.arange(np.prod(layout.shape), dtype=np.float32)).reshape(layout.shape)
        for name, layout in MAP.parameters.items()
    }


SCORES = {"hidden": np.array([0.1, 0.9, 0.3, 0.8, 0.2], np.float32)}


def test_a_plain_answer_is_the_delta_and_the_groups_unchanged():
    answer = Answer(task(), MAP, {"control": full()})
    assert answer.spec == SubModelSpec()
    assert answer.groups(full(1)).keys() == {"control", "model"}


def test_a_personal_answer_holds_the_best_channels_of_every_group_of_arrays():
    # Ranked by score: 1, 3, 2, 4, 0. Ratio 0.6 removes ceil(3) of 5, so 1 and 3 stay, in that order.
    requested = task(personal=PersonalPruning(ratios={"hidden": 0.6}))
    answer = Answer(
        requested, MAP, {"attention": SCORES, "control": full(), "counts": {"counts": np.ones(7)}}
    )
    sent = answer.groups(full(10))
    assert answer.spec.kept == {"hidden": (1, 3)}
    assert sent["model"]["hidden.bias"].tolist() == [11, 13]
    assert sent["control"]["hidden.bias"].tolist() == [1, 3]
    assert sent["attention"]["hidden"].shape == (5,)
    assert sent["counts"]["counts"].shape == (7,)


def test_only_requested_layers_are_sent():
    sent = Answer(task(returned=("out",)), MAP, {}).groups(full())
    assert sent["model"].keys() == {"out.weight", "out.bias"}


def test_kept_values_replace_those_kept_before():
    # The sub-model holds channels 0 and 2; 1, 3 and 4 keep their earlier values.
    spec = SubModelSpec(kept={"hidden": (0, 2)})
    kept = {"control": {"hidden.bias": np.array([7.0, 8.0], np.float32)}}
    after = in_global(kept, {"control": full()}, spec, MAP)
    assert after["control"]["hidden.bias"].tolist() == [7, 1, 8, 3, 4]
    # Without earlier values the other channels are 0.
    assert in_global(kept, {}, spec, MAP)["control"]["hidden.bias"].tolist() == [7, 0, 8, 0, 0]
    # The result can be sliced to any sub-model of the next round.
    cut = in_sub_model(after, SubModelSpec(kept={"hidden": 2}), MAP)
    assert cut["control"]["hidden.bias"].tolist() == [7, 1]
