"""Simulated boards whose memory counts: their tiers, and the tasks that they decline."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.system.hardware.memory import memory
from edge_client.training.choice import PROCESS_BYTES
from edge_server.config.board_profiles import profile
from edge_server.config.load import load_config
from edge_server.simulation.clock import board_files, free_for_training, undecided_profile
from edge_server.simulation.population import make_population
from schemas.errors import ConfigError
from schemas.values import TrainerName
from tests.edge_server.simulation.small import history, run

WORDS = (
    "num-clients=2",
    "rounds=1",
    "fraction=1.0",
    "simulation.memory=true",
    "tiers.ratios=[0.5, 0.0]",
    'simulation.clock=["pi-zero-2", "pi-3-a"]',
)


@pytest.mark.parametrize(("trainer", "free"), [("torch", 0), ("onnx", 239_304_704 - 90_000_000)])
def test_a_board_of_512_mb_has_room_beside_onnxruntime_and_none_beside_torch(
    trainer: TrainerName, free: int
) -> None:
    found = undecided_profile(profile("pi-zero-2"), trainer)
    assert (found.tier, found.trainers) == (None, (trainer,))
    assert free_for_training(found) == free
    speed = found.speed_with(trainer)
    assert speed is not None
    assert speed.resident_bytes == PROCESS_BYTES[trainer]
    # Two FLOP per multiply-accumulate.
    assert speed.training_macs_per_s == pytest.approx(1.7696e9 / 2, rel=1e-4)


def test_a_boards_files_say_how_much_memory_is_free(tmp_path: Path) -> None:
    root = board_files(tmp_path, 149_304_320)
    assert memory(root).free == 149_304_320
    assert board_files(tmp_path, 149_304_320) == root


def test_with_memory_devices_have_the_boards_in_turn() -> None:
    config = load_config("heterofl", [*WORDS, "num-clients=4"])
    boards = [device.board for device in make_population(config, np.arange(40) % 2)]
    assert boards == ["pi-zero-2", "pi-3-a"] * 2


def test_memory_without_boards_is_refused() -> None:
    with pytest.raises(ConfigError, match="name them in clock"):
        load_config("heterofl", ["simulation.memory=true", "simulation.clock=[]"])


def test_boards_of_512_mb_train_the_largest_tier_with_onnxruntime(tmp_path: Path) -> None:
    summary = run(tmp_path / "onnx", "heterofl", *WORDS, "simulation.trainer=onnx")
    assert summary.outcome == "finished"
    (line,) = history(tmp_path / "onnx")
    assert line["completed"] == ["device-0001", "device-0002"]
    assert {device.tier for device in summary.devices} == {2}


def test_boards_of_512_mb_decline_the_smallest_tier_with_torch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        summary = run(tmp_path / "torch", "heterofl", *WORDS, "simulation.trainer=torch")
    assert summary.outcome == "failed"
    assert "device-0001: tier 1 with torch from its memory and speed" in caplog.text
    assert "declined the task (no-memory)" in caplog.text
    assert history(tmp_path / "torch") == []
