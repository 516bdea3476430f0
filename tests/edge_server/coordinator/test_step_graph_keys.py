"""The key of a kept step graph covers the source of the network's layers."""

import importlib
from pathlib import Path

import pytest
from torch import nn

from edge_server.coordinator.step_graphs import _sources

LAYER = """from torch import nn, relu, tanh

class Layer(nn.Module):
    def forward(self, x):
        return {}(x)
"""


def test_an_edited_forward_with_the_same_shapes_has_another_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_layer.py").write_text(LAYER.format("relu"))
    module = nn.Sequential(importlib.import_module("edited_layer").Layer())
    before = _sources(module)
    (tmp_path / "edited_layer.py").write_text(LAYER.format("tanh"))
    assert len(before) == 1
    assert _sources(module) != before


def test_torchs_own_layers_are_covered_by_its_release() -> None:
    assert _sources(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == []
