"""Every shipped recipe runs rounds with devices of different tiers."""

from pathlib import Path

import numpy as np
import pytest

from edge_server.config.load import recipe_names
from edge_server.storage.records import RoundRecord
from schemas.tensors.arrays import Arrays
from tests.integration.bench import NAMES, Bench
from tests.slow import slow

ROUNDS = (1, 2, 3)
REPEATED = ("attending-adafl", "attending-fedbuff", "fedmp", "fedp3", "fedrad", "hermes", "igfl", "scaffold")
"""One recipe of each kind that keeps state between rounds or draws at random."""
QUICK = ("attending-fedbuff", "fedmp", "scaffold")
"""Buffered rounds, a choice that learns, and groups beside the model."""


LITTLE_NOISE = {
    "dp-fedavg": "privacy.clip=0.01",
    "dp-fedavg-adaptive": "privacy.initial-clip=0.01",
    "dp-heterofl": "privacy.clip=0.01",
}
"""Noise is proportional to the clip: a clip for hundreds of devices would hide the updates of two."""


NETWORKS = {"fedbn": "cnn-batch", "attending": "two-nn"}
"""One recipe needs normalisation, one is run with convolutions, the others with dense layers."""


def bench(folder: Path, recipe: str) -> Bench:
    words = ["rounds=3", "clients.fraction=1.0", "data.test-samples=40"]
    words += [f"model.name={NETWORKS.get(recipe, 'mlp')}"]
    words += [LITTLE_NOISE[recipe]] if recipe in LITTLE_NOISE else []
    return Bench(folder, recipe, *words)


def rounds(bench: Bench) -> list[RoundRecord]:
    """Three rounds in which every selected device's update counts."""
    records = []
    only_strongest = bench.coordinator.context.config.strategy.selection.name == "largest-tier"
    names = ("strong",) if only_strongest else NAMES
    for number in ROUNDS:
        record, updates = bench.round(number)
        assert record.completed == tuple(sorted(updates))
        assert record.staleness == {}
        # Some recipes select fewer than all devices, at least in some rounds.
        assert record.completed == tuple(sorted(names)) or record.fraction < 1
        records.append(record)
    return records


def late_rounds(bench: Bench) -> list[RoundRecord]:
    """Three buffered rounds: the weak device's update of round one arrives in round two."""
    early = bench.answers(1)
    first = bench.close(1, {"strong": early["strong"]})
    second = bench.close(2, {"weak": early["weak"], **bench.answers(2, among=["strong"])})
    third, _ = bench.round(3)
    assert [record.completed for record in (first, second, third)] == [("strong",), NAMES[::-1], NAMES[::-1]]
    assert [record.staleness for record in (first, second, third)] == [{}, {"weak": 1}, {}]
    return [first, second, third]


def run(folder: Path, recipe: str) -> tuple[list[RoundRecord], Arrays, Arrays]:
    """The records, the model before and the model after."""
    made = bench(folder, recipe)
    first = made.coordinator.model.state.params
    buffered = made.coordinator.context.config.clients.mode == "buffered"
    return (late_rounds if buffered else rounds)(made), first, made.coordinator.model.state.params


def check_trained(records: list[RoundRecord], first: Arrays, last: Arrays) -> None:
    # Without the layers that devices keep, the server tests nothing.
    losses = [record.train_loss if record.test_loss is None else record.test_loss for record in records]
    assert all(np.isfinite(loss) for loss in losses if loss is not None)
    assert all(record.test_loss is not None or record.client_metrics for record in records)
    assert any((first[name] != last[name]).any() for name in first)
    assert all(np.isfinite(array).all() for array in last.values())


def is_variant(recipe: str) -> bool:
    """Whether its name says of which other recipe it is a variant."""
    return any(recipe.startswith(f"{name}-") for name in recipe_names())


@pytest.mark.parametrize(
    "recipe", [slow(name) if is_variant(name) else name for name in recipe_names() if name not in QUICK]
)
def test_a_recipe_trains_and_changes_the_model(tmp_path: Path, recipe: str) -> None:
    check_trained(*run(tmp_path, recipe))


@pytest.mark.parametrize("recipe", [name if name in QUICK else slow(name) for name in REPEATED])
def test_the_same_seed_gives_the_same_history_and_model_to_the_bit(tmp_path: Path, recipe: str) -> None:
    (records, first, model), (records_again, _, again) = (
        run(tmp_path / "one", recipe),
        run(tmp_path / "two", recipe),
    )
    check_trained(records, first, model)
    assert records == records_again
    assert all(np.array_equal(model[name], again[name]) for name in model)
