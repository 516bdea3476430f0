"""A simulation with masked updates has the same result as without masks."""

import math
from pathlib import Path

import numpy as np
import pytest

from edge_server.simulation import simulator
from tests.edge_server.simulation.small import history, run
from tests.groups import read_groups

TIERS = (
    "num-clients=9",
    "tiers.ratios=[0.5, 0.3, 0.0]",
    "rounds=2",
    "learning-rate=0.1",
    "strategy.objectives=[]",
    "strategy.groups=[]",
)
MASKED = "secure-aggregation=true"


def final_model(out: Path) -> dict[str, np.ndarray]:
    return read_groups(out / "models" / "round-0002" / "state.safetensors")["model"]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("masked") / "run"
    assert run(out, "heterofl", *TIERS, MASKED).outcome == "finished"
    return out


def test_masks_change_the_model_only_by_rounding(masked: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "plain", "heterofl", *TIERS, "strategy.uplink=[]").outcome == "finished"
    ours, plain = final_model(masked), final_model(tmp_path / "plain")
    # In round two both runs start from models that differ by 1e-7, so one rounding is no bound.
    assert max(float(np.abs(ours[name] - plain[name]).max()) for name in plain) < 1e-6
    assert any((ours[name] != plain[name]).any() for name in plain)


def test_the_same_seed_gives_the_same_masked_run(masked: Path, tmp_path: Path) -> None:
    run(tmp_path / "again", "heterofl", *TIERS, MASKED)
    assert (tmp_path / "again" / "history.jsonl").read_bytes() == (masked / "history.jsonl").read_bytes()


class Leaves:
    """A presence that ends at `at_s` seconds and never resumes."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def online(self, t: float) -> bool:
        return t < self._at_s

    def next_change(self, t: float) -> float:
        return self._at_s if t < self._at_s else math.inf


def test_the_masks_of_devices_that_leave_while_training_are_removed(
    masked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = history(masked)[0]["duration_s"]
    gone = [Leaves(trained / 2), None, None] * 3
    monkeypatch.setattr(simulator, "presence_of", lambda config, device, index: gone[index])
    assert run(tmp_path / "run", "heterofl", *TIERS, MASKED, "tiers.ratios=[0.0]").outcome == "finished"
    first, second = history(tmp_path / "run")
    assert first["dropped"] == ["device-0001", "device-0004", "device-0007"]
    assert [len(line["completed"]) for line in (first, second)] == [6, 6]
    assert second["dropped"] == []
