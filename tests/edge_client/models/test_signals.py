"""Networks for signals and rows: cut, exported and drawn exactly; they learn on every tier."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from edge_client.inference.export.graph_export import fill
from edge_client.models.build import build_model
from edge_client.models.registry import MODELS, entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import extract
from edge_client.pruning.surgery import arrays_of, compact
from edge_client.training.step_graphs.drawing.step import draw_step
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from schemas.errors import ConfigError
from schemas.values import ModelSpec
from tests.edge_client.models.graphs.networks import graph
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import Quiet, history
from tests.slow import slow

NAMES = [name for name, known in MODELS.items() if len(known.example_shape) < 3]
RATIOS = (0.7, 0.5, 0.3, 0.1, 0.0)


@pytest.fixture(params=NAMES)
def spec(request: pytest.FixtureRequest) -> ModelSpec:
    known = MODELS[request.param]
    shape, outputs = known.example_shape, known.example_outputs
    return ModelSpec(name=request.param, input_shape=shape, num_classes=outputs)


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_sub_model_is_the_network_with_its_other_channels_silent(spec: ModelSpec, ratio: float) -> None:
    module = build_model(spec).eval()
    channel_map = trace_channels(module, spec.input_shape)
    kept = prefix_spec(group_ratios(entry(spec.name), ratio, channel_map), channel_map)
    small = compact(module, kept, channel_map).eval()
    cut = extract(arrays_of(module), kept, channel_map)
    assert all(np.array_equal(array, cut[name]) for name, array in arrays_of(small).items())
    silent = build_model(spec).eval()
    with torch.no_grad():
        for name, parameter in silent.named_parameters():
            mask = torch.zeros_like(parameter)
            places = [
                torch.as_tensor(np.arange(size))
                if axis not in channel_map.parameters[name].axes
                else torch.as_tensor(_kept(channel_map, name, axis, kept))
                for axis, size in enumerate(parameter.shape)
            ]
            mask[torch.meshgrid(*places, indexing="ij")] = 1
            parameter *= mask
        inputs = torch.randn(3, *spec.input_shape, generator=torch.Generator().manual_seed(1))
        np.testing.assert_allclose(small(inputs), silent(inputs), atol=1e-5)


def _kept(channel_map, name: str, axis: int, kept) -> np.ndarray:
    """The indices of an axis that the sub-model keeps."""
    found, start = [], 0
    for segment in channel_map.parameters[name].axes[axis]:
        channels = range(segment.channels)
        if segment.group:
            channels = kept.indices(segment.group, segment.channels)
        repeat = segment.repeat
        found += [start + channel * repeat + place for channel in channels for place in range(repeat)]
        start += segment.channels * repeat
    return np.array(found)


def test_the_exported_graph_computes_what_torch_does(spec: ModelSpec) -> None:
    module = build_model(spec, seed=2).eval()
    data = fill(graph(spec.name), module, spec.input_shape).SerializeToString()
    inputs = np.random.default_rng(0).standard_normal((4, *spec.input_shape), dtype=np.float32)
    (outputs,) = onnxruntime.InferenceSession(data).run(None, {"input": inputs})
    with torch.no_grad():
        np.testing.assert_allclose(outputs, module(torch.from_numpy(inputs)), atol=1e-5)


@pytest.mark.parametrize("ratio", [0.7, slow(0.0)])
def test_a_training_step_can_be_drawn_at_every_width(spec: ModelSpec, ratio: float) -> None:
    module = build_model(spec)
    channel_map = trace_channels(module, spec.input_shape)
    kept = prefix_spec(group_ratios(entry(spec.name), ratio, channel_map), channel_map)
    # It is compared with torch before it is returned.
    assert draw_step(compact(module, kept, channel_map), spec.input_shape)


def waves(path: Path, count: int = 300) -> Path:
    """Noisy sines of three frequencies."""
    random = np.random.default_rng(0)
    labels = np.arange(count) % 3
    time = np.arange(48) / 48
    phases = random.uniform(0, 2 * np.pi, (count, 1))
    signals = np.sin(2 * np.pi * (2 + 3 * labels[:, None]) * time + phases)
    signals += 0.3 * random.standard_normal(signals.shape)
    np.savez(path, images=signals[:, None].astype(np.float32), labels=labels)
    return path


@pytest.mark.parametrize("name", [slow("cnn-1d"), slow("tcn")])
def test_every_tier_learns_to_tell_frequencies_apart(tmp_path: Path, name: str) -> None:
    settings = {
        "model.name": name,
        "data.source": f"npz:{waves(tmp_path / 'waves.npz')}",
        "num-clients": 5,
        "rounds": 5,
        "local-epochs": 3,
        "batch-size": 16,
        "optimizer": "adam",
        "learning-rate": 0.005,
        "federation.evaluate-every": 5,
        "workers": 1,
    }
    config = load_config("attending", [f"{key}={value}" for key, value in settings.items()])
    with in_process():
        simulate(config, out=tmp_path / "run", watcher=Quiet(), export=False)
    last = history(tmp_path / "run")[-1]
    assert min(last["tier_accuracy"].values()) > 0.8


def test_a_recurrent_network_of_a_user_is_trained_whole() -> None:
    spec = ModelSpec(name=f"{__name__}:recurrent", input_shape=(5, 3), num_classes=2)
    channel_map = trace_channels(build_model(spec), spec.input_shape)
    assert not channel_map.groups


def test_a_network_that_branches_on_its_input_says_what_it_may_not_do() -> None:
    spec = ModelSpec(name=f"{__name__}:deciding", input_shape=(5, 3), num_classes=2)
    with pytest.raises(ConfigError, match=r"cannot be traced .* not branch or loop on values of tensors"):
        trace_channels(build_model(spec), spec.input_shape)


@pytest.mark.parametrize(("first", "followed"), [(0, True), (1, False)])
def test_places_of_other_axes_keep_the_channels_and_a_part_of_them_pins_them(
    first: int, followed: bool
) -> None:
    class Picking(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = torch.nn.Conv1d(2, 6, 1), torch.nn.Linear(6 - first, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            channels = slice(None) if first == 0 else slice(first, None)
            return self.head(torch.relu(self.conv(x))[:, channels, -1])

    assert bool(trace_channels(Picking(), (2, 8)).groups) == followed


def recurrent(input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = torch.nn.GRU(input_shape[-1], 4, batch_first=True)
            self.head = torch.nn.Linear(4, num_classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states, _ = self.gru(x)
            return self.head(states[:, -1])

    return Recurrent()


def deciding(input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    class Deciding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(15, num_classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x.flatten(1)) if x.sum() > 0 else self.head(-x.flatten(1))

    return Deciding()
