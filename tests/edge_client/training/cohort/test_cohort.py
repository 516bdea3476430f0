"""Devices that train together have the results that each has alone."""

from typing import Any

import numpy as np
import pytest

from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Groups
from tests.edge_client.training.cohort.clients import alone, check_equal, jobs, network, plan, together
from tests.slow import slow

ATTENTIVE = Component(name="attentive", options={"layers": ("conv2",)})
NARROW = Component(name="ordered-dropout", options={"own": 0.5})

CASES: dict[str, tuple[str, TrainingPlan]] = {
    "plain": ("mlp", plan()),
    "convolutions": ("cnn", plan()),
    "batch-statistics": ("cnn-batch", plan()),
    "groups": ("resnet20-group", plan(local_epochs=1)),
    "residual": ("resnet20", plan(local_epochs=1, batch_size=12)),
    "momentum": ("mlp", plan(momentum=0.9)),
    "decay": ("mlp", plan(momentum=0.5, weight_decay=0.01)),
    "adam": ("mlp", plan(optimizer="adam", learning_rate=0.001)),
    "adamw-warm-up": ("mlp", plan(optimizer="adamw", learning_rate=0.001, warm_up_steps=3, weight_decay=0.1)),
    "sharp": ("mlp", plan(sam_radius=0.1, local_epochs=5, warm_up_steps=9)),
    # At a radius of 0.1 two outputs in a pooling window are equal, and rounding chooses the gradient's way.
    "sharp-statistics": ("cnn-batch", plan(sam_radius=0.05, local_epochs=3)),
    "prox": ("mlp", plan(Component(name="prox", options={"mu": 0.5}))),
    "attentive": ("two-nn", plan(ATTENTIVE)),
    "attentive-sharp": ("two-nn", plan(ATTENTIVE, sam_radius=0.1, local_epochs=3)),
    "scores": ("two-nn", plan(ATTENTIVE, local_epochs=0)),
    "magnitudes": ("two-nn", plan(Component(name="magnitude-scores", options={"layers": ("conv2",)}))),
    "masked": ("mlp", plan("masked-loss")),
    "one-example-batches": ("mlp", plan(batch_size=1, local_epochs=1)),
    "large-batches": ("mlp", plan(batch_size=50)),
}


SLOW = {"groups", "residual", "sharp-statistics", "attentive-sharp", "decay", "one-example-batches"}


@pytest.mark.parametrize("case", [slow(case) if case in SLOW else case for case in CASES])
def test_devices_that_train_together_have_the_results_of_training_alone(case: str) -> None:
    model, training = CASES[case]
    given = jobs(model, training)
    for ours, job in zip(together(given), given, strict=True):
        check_equal(ours, alone(job))


def test_one_step_differs_by_less_than_a_hundred_thousandth() -> None:
    for model in ("mlp", "two-nn", "cnn-batch"):
        given = jobs(model, plan(local_epochs=1, batch_size=12), counts=(12, 12))
        for ours, job in zip(together(given), given, strict=True):
            check_equal(ours, alone(job), close=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_corrects_and_keeps_controls_as_alone(momentum: float) -> None:
    arrays = network("mlp")[2]
    rng = np.random.default_rng(5)

    def controls() -> dict[str, np.ndarray]:
        return {name: rng.normal(size=each.shape).astype(np.float32) / 10 for name, each in arrays.items()}

    kept: list[Groups] = [{"own-control": controls()} for _ in range(3)]
    given = jobs("mlp", plan("scaffold", momentum=momentum), received={"control": controls()}, kept=kept)
    for ours, job in zip(together(given), given, strict=True):
        check_equal(ours, alone(job), close=1e-4)


def half_and_quarter() -> tuple[SubModelSpec, Groups]:
    """A sub-model of `mlp` with 100 channels, and the group of a smaller one in it."""
    kept = {name: tuple(range(0, 200, 2)) for name in network("mlp")[1].groups}
    smaller = {f"0/{name}": np.arange(0, 100, 4, dtype=np.int32) for name in kept}
    return SubModelSpec(kept=kept), {"widths": smaller}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "adam", "learning_rate": 0.001, "rate_by_width": True},
        {"momentum": 0.9, "sam_radius": 0.1, "local_epochs": 4},
    ],
)
def test_each_device_trains_the_widths_that_it_draws(settings: dict[str, Any]) -> None:
    spec, widths = half_and_quarter()
    given = jobs("mlp", plan(NARROW, **settings), spec=spec, received=widths)
    for ours, job in zip(together(given), given, strict=True):
        check_equal(ours, alone(job))


def test_a_sub_model_is_scaled_as_alone() -> None:
    spec, _ = half_and_quarter()
    given = jobs("mlp", plan("masked-loss", "scaler"), spec=spec)
    for ours, job in zip(together(given), given, strict=True):
        check_equal(ours, alone(job))


def test_devices_begin_with_their_personal_weights() -> None:
    arrays = network("mlp")[2]
    kept: list[Groups] = [
        {
            "personal": {name: each + number for name, each in arrays.items()},
            "personal-held": {name: np.ones(each.shape, bool) for name, each in arrays.items()},
        }
        for number in range(3)
    ]
    overlap = {
        "overlap": {name: np.arange(each.size).reshape(each.shape) % 2 == 0 for name, each in arrays.items()}
    }
    given = jobs("mlp", plan("personal", "prox"), kept=kept, received=overlap)
    for ours, job in zip(together(given), given, strict=True):
        check_equal(ours, alone(job), close=1e-4)


@pytest.mark.parametrize("parts", [(), slow(("prox",)), ("scaffold",)])
def test_heads_train_on_features_as_alone(parts: tuple[str, ...]) -> None:
    head = ("linear3.weight", "linear3.bias")
    given = jobs("cnn-batch", plan(*parts, momentum=0.9), trained=head)
    for ours, job in zip(together(given), given, strict=True):
        theirs = alone(job)
        check_equal(ours, theirs)
        assert {name for name, change in ours.delta.items() if change.any()} == set(head)
        assert ours.metrics.received_loss == pytest.approx(theirs.metrics.received_loss)


@pytest.mark.parametrize("settings", [{}, slow({"momentum": 0.9, "sam_radius": 0.1, "local_epochs": 4})])
def test_objectives_look_inside_what_follows_features_as_alone(settings: dict[str, Any]) -> None:
    scored = ("conv2.weight", "conv2.bias", "linear3.weight")
    behind = ("linear2.weight", "linear2.bias", "linear3.weight")
    widths: Groups = {"widths": {"0/linear2": np.arange(0, 200, 2, dtype=np.int32)}}
    for given in (
        jobs("cnn-batch", plan(ATTENTIVE, **settings), trained=scored),
        jobs("mlp", plan(NARROW, **settings), trained=behind, received=widths),
    ):
        for ours, job in zip(together(given), given, strict=True):
            check_equal(ours, alone(job))
            assert ours.metrics.features is not None


@pytest.mark.parametrize("settings", [{}, slow({"sam_radius": 0.1, "local_epochs": 3})])
def test_dropout_draws_what_a_device_draws_alone(settings: dict[str, Any]) -> None:
    head = ("classifier.1.weight", "classifier.1.bias")
    given = jobs("mobilenet-v2-quarter", plan(**settings), trained=head)
    for ours, job in zip(together(given), given, strict=True):
        check_equal(ours, alone(job))


def test_the_same_cohort_has_the_same_bits() -> None:
    for model, training in (("cnn-batch", plan(momentum=0.9)), ("two-nn", plan(ATTENTIVE, local_epochs=1))):
        first, second = (together(jobs(model, training)) for _ in range(2))
        for ours, theirs in zip(first, second, strict=True):
            check_equal(ours, theirs, close=0)


def test_frozen_layers_of_a_network_that_trains_stay_as_they_are() -> None:
    given = jobs("cnn-batch", plan(ATTENTIVE), trained=("linear3.weight", "conv1.weight"))
    for ours, job in zip(together(given), given, strict=True):
        check_equal(ours, alone(job))
