"""What trains on virtual devices: torch, onnxruntime, or both in one federation."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.data.dataset import Labels
from edge_server.config.load import load_config
from edge_server.simulation.population import make_population
from schemas.errors import ConfigError
from tests.edge_server.simulation.small import history, last_model, run
from tests.slow import slow

RUN = ("num-clients=4", "rounds=2", "tiers.ratios=[0.5, 0.0]", "learning-rate=0.1")


@pytest.mark.parametrize("trainer", [slow("onnx"), '["torch", "onnx"]'])
def test_the_same_seed_gives_the_same_bits(tmp_path: Path, trainer: str) -> None:
    for name in ("first", "second"):
        run(tmp_path / name, "heterofl", *RUN, f"simulation.trainer={trainer}")
    rounds = history(tmp_path / "first")
    assert [len(line["completed"]) for line in rounds] == [4, 4]
    assert rounds == history(tmp_path / "second")
    assert last_model(tmp_path / "first") == last_model(tmp_path / "second")


def labels() -> Labels:
    return np.arange(100) % 10


def trainers_of(*words: str) -> list[tuple[int, str]]:
    config = load_config("attending", ["num-clients=6", "tiers.ratios=[0.5, 0.0]", "clock=[]", *words])
    return [(device.tier, device.trainer) for device in make_population(config, labels())]


def test_all_devices_have_the_one_trainer() -> None:
    assert {trainer for _, trainer in trainers_of()} == {"torch"}
    assert {trainer for _, trainer in trainers_of("simulation.trainer=onnx")} == {"onnx"}


def test_the_devices_of_each_tier_have_the_trainers_of_a_list_in_turn() -> None:
    found = trainers_of('simulation.trainer=["torch", "onnx"]')
    assert [trainer for tier, trainer in found if tier == 1] == ["torch", "onnx", "torch"]
    assert [trainer for tier, trainer in found if tier == 2] == ["torch", "onnx", "torch"]


@pytest.mark.parametrize("wrong", ["tensorflow", "[]", '["torch", "caffe"]'])
def test_other_trainers_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="trainer"):
        load_config("fedavg", [f"simulation.trainer={wrong}"])
