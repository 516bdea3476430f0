"""The key of a kept step graph covers the source of the network's layers and of the loss."""

import importlib
from pathlib import Path

import pytest
from torch import nn
from torch.nn.functional import cross_entropy

from edge_server.coordinator.step_graphs import layer_sources

LAYER = """from torch import nn, relu, tanh

class Layer(nn.Module):
    def forward(self, x):
        return {}(x)
"""


LOSS = """def loss(outputs, targets):
    return (outputs - targets).abs().mean() * {}
"""


def test_an_edited_forward_with_the_same_shapes_has_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_layer.py").write_text(LAYER.format("relu"))
    module = nn.Sequential(importlib.import_module("edited_layer").Layer())
    before = layer_sources(module, cross_entropy)
    (tmp_path / "edited_layer.py").write_text(LAYER.format("tanh"))
    assert len(before) == 1
    assert layer_sources(module, cross_entropy) != before


def test_an_edited_loss_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_loss.py").write_text(LOSS.format(1))
    loss = importlib.import_module("edited_loss").loss
    before = layer_sources(nn.Linear(2, 2), loss)
    (tmp_path / "edited_loss.py").write_text(LOSS.format(2))
    assert layer_sources(nn.Linear(2, 2), loss) != before


def test_torchs_own_layers_are_covered_by_its_release() -> None:
    assert layer_sources(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), cross_entropy) == []
