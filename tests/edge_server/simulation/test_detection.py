"""Detection in a simulated federation of unlike devices."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from tests.edge_client.data.tasks.examples import examples
from tests.edge_server.simulation.small import history, run
from tests.slow import mark_slow


def patches(input_shape: tuple[int, ...], _: int) -> nn.Module:
    """A trunk that sees each patch of eight pixels."""
    return nn.Sequential(nn.Conv2d(input_shape[0], 8, 8, stride=8), nn.BatchNorm2d(8), nn.ReLU())


def trained(folder: Path, recipe: str, *more: str) -> list[dict[str, Any]]:
    """The rounds of five tiers."""
    data = examples("detection", 150)
    np.savez(folder / "squares.npz", images=data.images, labels=data.labels)
    words = [
        f"model.name=detector:{__name__}:patches",
        "model.task=detection",
        f"data.source=npz:{folder}/squares.npz",
        *("num-clients=5", "samples-per-client=24", "batch-size=8"),
        *("optimizer=adam", "deadline-s=100000"),
    ]
    assert run(folder / "run", recipe, *words, *more).outcome == "finished"
    rounds = history(folder / "run")
    assert rounds[-1]["tier_metrics"].keys() == {"1", "2", "3", "4", "5"}
    return rounds


def test_five_tiers_learn_to_find_objects(tmp_path: Path) -> None:
    plain = ("strategy.objectives=[]", "strategy.groups=[]", "fraction=1", "rounds=4", "local-epochs=6")
    last = trained(tmp_path, "heterofl", *plain, "learning-rate=0.01", "learning-rate-decay=0.7")[-1]
    # 0.97 to 1 with five seeds.
    assert last["test_metrics"]["map50"] >= 0.9


@mark_slow
def test_five_tiers_cut_by_attention_learn_to_find_objects(tmp_path: Path) -> None:
    last = trained(tmp_path, "attending", "learning-rate=0.005", "rounds=8", "local-epochs=3")[-1]
    assert last["test_metrics"]["map50"] >= 0.9
    assert min(figures["map50"] for figures in last["tier_metrics"].values()) > 0.7
