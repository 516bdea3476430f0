"""Detection in a simulated federation of unlike devices."""

from pathlib import Path

import numpy as np
from torch import nn

from tests.edge_client.data.tasks.examples import examples
from tests.edge_server.simulation.small import history, run


def patches(input_shape: tuple[int, ...], _: int) -> nn.Module:
    """A trunk that sees each patch of eight pixels."""
    return nn.Sequential(nn.Conv2d(input_shape[0], 8, 8, stride=8), nn.BatchNorm2d(8), nn.ReLU())


def test_five_tiers_learn_to_find_objects(tmp_path: Path) -> None:
    data = examples("detection", 150)
    np.savez(tmp_path / "squares.npz", images=data.images, labels=data.labels)
    words = [
        f"model.name=detector:{__name__}:patches",
        "model.task=detection",
        f"data.source=npz:{tmp_path}/squares.npz",
        *("num-clients=5", "samples-per-client=24", "rounds=6", "local-epochs=3", "batch-size=8"),
        *("optimizer=adam", "learning-rate=0.005", "deadline-s=100000"),
    ]
    assert run(tmp_path / "run", "attending", *words).outcome == "finished"
    last = history(tmp_path / "run")[-1]
    assert last["test_metrics"]["map50"] >= 0.9
    assert last["tier_metrics"].keys() == {"1", "2", "3", "4", "5"}
    assert min(figures["map50"] for figures in last["tier_metrics"].values()) > 0.7
