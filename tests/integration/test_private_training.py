"""Runs with differential privacy: every file states the spent epsilon, and the budget ends the run."""

import json
from pathlib import Path

import onnx
import pytest

from edge_server.config.load import load_config, read_recipe
from edge_server.coordinator.coordinator import Coordinator, assemble
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.storage.recovery import Resumption
from tests.edge_server.simulation.small import history, last_model, run
from tests.integration.bench import Bench

FEW = ("num-clients=4", "rounds=6", "simulation.clock=[]", "data.test-samples=40", "ratios=[0.5, 0.0]")
TWO_ROUNDS = "budget=3.0"
"""At noise multiplier 2 and delta 1e-5 one round spends epsilon 1.993, two 2.943, three 3.709."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with different sub-models that its budget has ended."""
    out = tmp_path_factory.mktemp("ended") / "run"
    assert run(out, "dp-heterofl", *FEW, TWO_ROUNDS, export=True).outcome == "finished"
    return out


def test_the_budget_ends_the_run_before_it_is_exceeded(ended: Path) -> None:
    assert [line["epsilon"] for line in history(ended)] == pytest.approx([1.993, 2.943], abs=1e-3)
    summary = json.loads((ended / "summary.json").read_text())
    assert (summary["outcome"], summary["rounds"]) == ("finished", 2)
    assert summary["detail"] == (
        "privacy budget: another round would spend epsilon 3.709 of 3 at delta 1e-05"
    )
    assert summary["epsilon"] == pytest.approx(2.943, abs=1e-3)
    assert "epsilon 2.94 at delta 1e-05" in (ended / "report.html").read_text()


def test_metrics_of_devices_are_in_the_history_only_if_released(ended: Path, tmp_path: Path) -> None:
    assert {line["train_loss"] for line in history(ended)} == {None}
    assert {line["clip"] for line in history(ended)} == {0.2}
    run(tmp_path / "released", "dp-heterofl", *FEW, "rounds=1", "release-metrics=true")
    assert history(tmp_path / "released")[0]["train_loss"] > 0


def test_every_model_states_the_epsilon_of_its_training(ended: Path) -> None:
    for tier in (1, 2):
        model = onnx.load(ended / "onnx" / f"tier-{tier}.onnx")
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        assert float(metadata["fl.privacy.epsilon"]) == pytest.approx(2.943, abs=1e-3)
        assert metadata["fl.privacy.delta"] == "1e-05"
        assert metadata["fl.privacy.mechanism"] == "gaussian"
        assert metadata["fl.privacy.relation"] == "zero-out"
        assert metadata["fl.privacy.releases"] == "2"


def test_a_raised_budget_gives_the_same_model_as_a_budget_that_was_larger_from_the_start(
    ended: Path, tmp_path: Path
) -> None:
    more = (*FEW, "rounds=3", "budget=4.0")
    run(tmp_path / "two", "dp-heterofl", *FEW, "rounds=3", TWO_ROUNDS)
    run(tmp_path / "two", "dp-heterofl", *more, resume=True)
    run(tmp_path / "three", "dp-heterofl", *more)
    assert history(tmp_path / "two") == history(tmp_path / "three")
    assert last_model(tmp_path / "two") == last_model(tmp_path / "three")


def test_secret_random_selection_spends_less(tmp_path: Path) -> None:
    words = (*FEW[2:4], "num-clients=20", "fraction=0.1", "noise-multiplier=8", "rounds=1")
    drawn = run(tmp_path / "drawn", "dp-fedavg", *words, "amplification=true")
    known = run(tmp_path / "known", "dp-fedavg", *words)
    assert drawn.epsilon is not None
    assert known.epsilon is not None
    assert 0 < drawn.epsilon < known.epsilon


def test_the_secret_of_a_real_run_is_random(tmp_path: Path) -> None:
    secrets = {Bench(tmp_path / name, "dp-fedavg").coordinator.model.state.privacy["secret"] for name in "ab"}
    assert len(secrets) == 2
    assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets)


def test_a_run_without_privacy_stores_no_privacy_state(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg")
    record, _ = bench.round(1)
    assert isinstance(bench.coordinator, Coordinator)
    assert bench.coordinator.model.state.privacy is None
    assert (record.epsilon, record.delta, record.clip) == (None, None, None)
    assert record.train_loss is not None
    assert not any(key.startswith("privacy") for key in bench.coordinator.model.provenance(1, 0.0))
    assert load_config("fedavg").privacy.mechanism == "none"
    assert "privacy" not in read_recipe("fedavg")


def test_replay_of_private_rounds_is_bit_equal_even_after_dropouts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "dp-heterofl", "privacy.clip=0.01")
    bench.round(1)
    bench.close(2, {"strong": bench.answers(2)["strong"]})
    found = [(result.round, result.verdict, result.updates) for result in replay(tmp_path / "run")]
    assert found == [(1, ReplayVerdict.AGREES, 2), (2, ReplayVerdict.AGREES, 1)]


def test_a_restarted_server_keeps_the_secret_and_the_spent_budget(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "dp-fedavg")
    bench.round(1)
    before = bench.coordinator
    before.storage.close()
    after = assemble(before.context.config, "run-1", bench.folder, resume=Resumption(1))
    assert after.model.state.privacy == before.model.state.privacy
    assert after.model.provenance(1, 0.0)["privacy.releases"] == "1"
    after.storage.close()
