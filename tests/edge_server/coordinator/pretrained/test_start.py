"""A run on new classes that starts from a network which was trained on others."""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from edge_client.data.arrays import read_digits
from edge_client.models.build import build_model
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from schemas.values import ModelSpec
from tests.edge_server.coordinator.test_initial_model import Nobody, params_in
from tests.edge_server.simulation.in_process import in_process

FIRST = 6  # The network has seen the digits below it, the devices have the others


def late_digits() -> tuple[np.ndarray, np.ndarray]:
    data = read_digits("train")
    late = np.flatnonzero(data.labels >= FIRST)
    return np.asarray(data.images)[late], data.labels[late] - FIRST


def train_on_early_digits(path: Path) -> None:
    """Write a checkpoint, as scripts do, of `mlp` after 40 steps on the digits 0 to 5."""
    data = read_digits("train")
    early = data.labels < FIRST
    pixels = torch.from_numpy(np.asarray(data.images)[early] / 255).float()
    labels = torch.from_numpy(data.labels[early])
    module = build_model(ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=FIRST))
    optimizer = torch.optim.Adam(module.parameters(), 0.003)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(module(pixels), labels).backward()
        optimizer.step()
    weights = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    torch.save({"epoch": 40, "state_dict": weights}, path)


@in_process()
def test_a_head_on_trained_layers_learns_new_classes_better_than_on_drawn_ones(tmp_path: Path) -> None:
    train_on_early_digits(tmp_path / "early.ckpt")
    words = [
        f"data.source=python:{__name__}:late_digits",
        "model.name=mlp",
        "training.train=head",
        "rounds=2",
        "num-clients=2",
        "samples-per-client=40",
        "workers=1",
    ]
    reached: dict[str, float] = {}
    for name, more in (("trained", [f"from={tmp_path / 'early.ckpt'}"]), ("drawn", [])):
        config = load_config("fedavg", [*words, *more])
        summary = simulate(config, out=tmp_path / name, watcher=Nobody(), export=False)
        reached[name] = summary.test_accuracy or 0.0
    assert reached["trained"] > reached["drawn"] + 0.1
    first, last = (params_in(tmp_path / "trained" / "models" / f"round-000{n}") for n in (0, 2))
    assert np.array_equal(first["linear2.weight"], last["linear2.weight"])
    assert not np.array_equal(first["linear3.weight"], last["linear3.weight"])
