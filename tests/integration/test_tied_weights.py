"""Two layers with one weight: every recipe trains them, and all forms of the model compute the same."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_client.agent.task_runner import do_delivery
from edge_client.inference.export.graph_export import draw_graph
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.training.step_graphs.drawing.step import draw_step
from schemas.errors import ConfigError
from tests.integration.bench import bench_of, file_outputs, outputs_of
from tests.other_networks import Tied
from tests.slow import slow

SHAPE = (1, 4, 4)


@pytest.mark.parametrize(
    ("recipe", "trainer"),
    [
        *((recipe, "torch") for recipe in ("attending", "scaffold", "fedp3")),
        *(slow(recipe, "torch") for recipe in ("attending-l1", "attending-literal", "heterofl", "fjord")),
        *(slow(recipe, "torch") for recipe in ("fedprox", "hermes", "igfl", "fedmix")),
        *(slow(recipe, "onnx") for recipe in ("attending", "attending-l1")),
    ],
)
def test_every_recipe_trains_it_and_the_device_has_the_servers_model(
    recipe: str, trainer: str, tmp_path: Path
) -> None:
    run = bench_of(tmp_path, "Tied", recipe, "local-epochs=2", trainer=trainer)
    for number in (1, 2):
        record, _ = run.round(number)
        assert len(record.completed) == 2
    model = run.coordinator.model
    for name, task in run.tasks(3, 3, deliver=True).items():
        if trainer == "torch":
            continue
        do_delivery(task, run.places[name])
        found = file_outputs(run.places[name].models / "model.onnx")
        expected = outputs_of(model.network.sub_model(model.params_of(task.spec), task.spec))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_graphs_have_the_weight_once_by_its_first_name() -> None:
    module = Tied(SHAPE, 3)
    for data in (draw_graph(module, SHAPE), draw_step(module, SHAPE)):
        inputs = {value.name for value in onnx.load_from_string(data).graph.input}
        assert "a.weight" in inputs
        assert "b.weight" not in inputs


def test_a_weight_is_scored_behind_the_layer_that_has_it_first() -> None:
    (group,) = trace_channels(Tied(SHAPE, 3), SHAPE).groups.values()
    assert group.layers == ("first", "a")


@pytest.mark.parametrize("shared", ["a", "b"])
def test_a_weight_cannot_be_kept_and_shared_at_once(shared: str, tmp_path: Path) -> None:
    own = f'strategy.own={{name="named", names=["{shared}", "out"]}}'
    with pytest.raises(ConfigError, match=r"'b.weight' and 'a.weight' are one weight"):
        bench_of(tmp_path, "Tied", "fedavg", own, "hold-out=0.2")
