"""Runs in which devices train changes of low rank: factors travel, products are averaged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.task_runner import do_delivery
from edge_server.config.load import load_config
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.rounds.events import PlanRound
from edge_server.storage.run_folder import RunFolder
from schemas.capabilities import ALL, Capability
from schemas.errors import ConfigError
from schemas.tensors.arrays import Groups
from schemas.tensors.files import FileGroups
from tests.edge_server.simulation.small import run
from tests.integration.bench import Bench, file_outputs, outputs_of
from tests.integration.test_site_sums import SiteBench
from tests.slow import slow

WHOLE = ("clients.fraction=1.0", "tiers.ratios=[0.0, 0.0]", "model.name=mlp")
RANKS = ("training.train=lora", "tiers.ranks=[1, 2]")


def sent(bench: Bench, name: str, digest: str) -> Groups:
    return FileGroups(bench.places[name].store.blob_path(digest))


def test_products_of_unlike_ranks_are_averaged_and_no_factors(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *WHOLE, *RANKS)
    start = {name: np.array(array) for name, array in bench.coordinator.model.state.params.items()}
    _, updates = bench.round(1)
    after = bench.coordinator.model.state.params
    factors = {name: sent(bench, name, update.blob.digest) for name, update in updates.items()}
    for array in ("linear1.weight", "linear2.weight", "linear3.weight"):
        pairs = [(groups["model.left"][array], groups["model.right"][array]) for groups in factors.values()]
        assert sorted(len(left) for left, _ in pairs) == [1, 2]
        # Both devices have the same number of examples.
        mean = sum(left.T.astype(np.float64) @ right for left, right in pairs) / 2
        np.testing.assert_allclose(after[array] - start[array], mean, rtol=0, atol=1e-6)
        assert np.linalg.matrix_rank(mean, tol=1e-9) == 3
    for array in ("linear1.bias", "linear2.bias", "linear3.bias"):
        assert (after[array] == start[array]).all()


def test_an_update_has_the_bytes_of_the_factors(tmp_path: Path) -> None:
    whole, low = (
        Bench(tmp_path / "whole", "fedavg", *WHOLE),
        Bench(tmp_path / "low", "fedavg", *WHOLE, *RANKS),
    )
    full = whole.round(1)[1]["strong"].blob.size
    size = low.round(1)[1]["strong"].blob.size
    # Rank 2 of the layers 64 - 200 - 200 - 10, which have 55,210 numbers.
    assert 4 * 1_748 < size < 4 * 1_748 + 1_000
    assert full > 4 * 55_210


def test_the_exported_model_has_the_merged_weights(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *WHOLE, *RANKS)
    for number in (1, 2):
        bench.round(number)
    model = bench.coordinator.model
    for name, task in bench.tasks(3, 3, deliver=True).items():
        do_delivery(task, bench.places[name])
        found = file_outputs(bench.places[name].models / "model.onnx")
        expected = outputs_of(model.network.sub_model(model.params_of(task.spec), task.spec))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert [result.verdict for result in replay(tmp_path / "run")] == [ReplayVerdict.AGREES] * 2


def test_a_device_that_is_too_old_is_left_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *WHOLE, *RANKS)
    weak, strong = bench.devices
    old = replace(weak, can=ALL - {Capability.ADAPTS})
    planned = bench.coordinator.planner.plan(PlanRound(1, 1, (old, strong)))
    assert set(planned.assignments) == {"strong"}
    assert "too old to train changes of low rank: update it" in planned.left_out


def test_a_site_sums_products(tmp_path: Path) -> None:
    words = (*WHOLE, *RANKS, 'strategy.uplink=["fp16", "zstd"]')
    plain = Bench(tmp_path / "plain", "fedavg", *words, names=("barn.weak", "barn.strong"))
    site = SiteBench(tmp_path / "site", "fedavg", *words)
    plain.round(1)
    site.round(1)
    for name, array in plain.coordinator.model.state.params.items():
        found = site.coordinator.model.state.params[name]
        np.testing.assert_allclose(found, array, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("attending", ()),
        slow("attending-literal", ()),
        ("fedavg", ("personalise-epochs=1", "hold-out=0.2", "local-epochs=1")),
        slow("adafl-scaffold", ()),
        slow("fedadam", ("local-epochs=0", "rounds=2")),
        slow("ditto", ()),
        slow("dp-fedavg", ("privacy.clip=0.5",)),
        ("fedavg", ("privacy.secure-aggregation=true", "privacy.min-holders=3", "num-clients=4")),
        ("fedavg", ('strategy.uplink=["top-k", "int8", "zstd"]', "training.sam-radius=0.05")),
    ],
)
def test_recipes_train_it_and_keep_the_rest(tmp_path: Path, recipe: str, words: tuple[str, ...]) -> None:
    given = ("model.name=mlp", "num-clients=3", "clients.fraction=1.0", "rounds=2", "batch-size=8")
    small = ("samples-per-client=24", "test-samples=20", "training.train=lora", "training.rank=2")
    run(tmp_path / "run", recipe, *given, *small, *(words or ("local-epochs=1",)))
    folder = RunFolder(tmp_path / "run")
    before, after = (FileGroups(folder.model(number))["model"] for number in (0, 2))
    changed = {n for n in before if (np.sort(before[n], None) != np.sort(after[n], None)).any()}
    expected = {"linear1.weight", "linear2.weight", "linear3.weight"}
    assert changed == (set() if "local-epochs=0" in words else expected)


def test_weights_of_the_devices_own_have_no_change_since_they_were_received() -> None:
    with pytest.raises(ConfigError, match=r"'personal' starts from weights of the device's own.*leave out"):
        load_config("hermes", ["training.train=lora"])
