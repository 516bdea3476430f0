"""The estimate of a step graph that is not drawn, beside the drawn one."""

from dataclasses import replace

import pytest
from torch import nn

from edge_client.models.build import build_model
from edge_client.training.step_graphs.drawing.estimate import estimate_step
from edge_client.training.step_graphs.drawing.step import draw_step
from edge_client.training.step_graphs.running.graph_file import read_step_graph
from edge_client.training.step_graphs.running.memory import sizes, step_bytes
from schemas.strategy import TrainingSettings
from schemas.values import ModelSpec
from tests.slow import slow

SHAPE = (3, 16, 16)
PLAN = TrainingSettings(batch_size=32, momentum=0.9)


@pytest.mark.parametrize("name", [slow("cnn"), "cnn-batch"])
def test_an_estimate_is_within_a_fifth_of_the_drawn_graph(name: str, tmp_path) -> None:
    module = build_model(ModelSpec(name=name, input_shape=SHAPE, num_classes=10)).requires_grad_(True)
    path = tmp_path / "step.onnx"
    path.write_bytes(draw_step(module, SHAPE))
    drawn, estimated = read_step_graph(path), estimate_step(module, SHAPE)
    assert estimated.smallest_batch == drawn.smallest_batch
    weights = sum(parameter.numel() * 4 for parameter in module.parameters())
    part = sizes(drawn, 32, weights)[0]
    needed = [step_bytes(step, PLAN, weights, batch=part, split=part < 32) for step in (estimated, drawn)]
    assert needed[0] == pytest.approx(needed[1], rel=0.2)
    assert estimated.size == pytest.approx(drawn.size, rel=0.3)


def test_a_network_without_batch_normalisation_runs_in_parts() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(768, 50_000), nn.ReLU(), nn.Linear(50_000, 10))
    step = estimate_step(module, SHAPE)
    # An example takes 0.4 MB; parts are larger beside larger weights, and have at least four examples.
    assert sizes(step, 32, weights=0)[0] == 7
    assert sizes(step, 32, weights=100_000_000)[0] == 32
    assert sizes(replace(step, bytes_per_example=1e9), 32, weights=0)[0] == 4
