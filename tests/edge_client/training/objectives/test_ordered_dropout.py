"""Ordered dropout: the sub-models of smaller tiers, trained inside a device's own."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of, compact
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.loop import train
from edge_client.training.objectives.base import Batch, LocalObjective, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.results import TrainingStopped
from schemas.errors import ConfigError
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Groups
from schemas.values import ModelSpec
from tests.edge_client.networks import Net
from tests.edge_server.strategy.network import MAP

DATA = load_source("digits").subset(range(40))


def five_channels() -> Net:
    """The network of `MAP`."""
    layers = {"hidden": nn.Linear(2, 5), "out": nn.Linear(5, 2)}
    return Net(lambda net, x: net.out(torch.relu(net.hidden(x))), **layers)


def set_up(
    module: nn.Module, widths: Groups, spec: SubModelSpec | None = None, **options: object
) -> LocalObjective:
    (objective,) = build_objectives((Component(name="ordered-dropout", options=options),))
    received = {"widths": widths}
    context = TrainingContext(
        TrainingPlan(seed=1), received=received, spec=spec or SubModelSpec(), channel_map=MAP
    )
    objective.setup(module, context)
    return objective


def widths(*kept: tuple[int, ...]) -> Groups:
    return {f"{number}/hidden": np.array(channels, np.int32) for number, channels in enumerate(kept)}


def drawn(objective: LocalObjective, module: nn.Module, steps: int) -> list[Tensor]:
    """The outputs of a fixed input in each step."""
    inputs, outputs = torch.tensor([[1.0, 2.0]]), []
    for _ in range(steps):
        outputs.append(objective.network(module, module)(inputs).detach())
        objective.correct()
    return outputs


def test_a_step_runs_one_of_the_widths_with_the_modules_own_weights() -> None:
    torch.manual_seed(0)
    module = five_channels()
    expected = {
        name: compact(module, spec, MAP)(torch.tensor([[1.0, 2.0]])).detach()
        for name, spec in {
            "smallest": SubModelSpec(kept={"hidden": (1, 3)}),
            "middle": SubModelSpec(kept={"hidden": (0, 1, 3)}),
            "own": SubModelSpec(),
        }.items()
    }
    outputs = drawn(set_up(module, widths((1, 3), (0, 1, 3))), module, 300)
    counts = {
        name: sum(torch.allclose(output, wanted) for output in outputs) for name, wanted in expected.items()
    }
    assert sum(counts.values()) == 300
    # Each is drawn with probability 1/3; 60 is more than four deviations (8.2) below 100.
    assert all(60 < count < 140 for count in counts.values())


def test_own_is_the_share_of_steps_in_which_the_device_trains_its_whole_sub_model() -> None:
    torch.manual_seed(0)
    module = five_channels()
    whole = module(torch.tensor([[1.0, 2.0]])).detach()
    outputs = drawn(set_up(module, widths((1, 3)), own=0.8), module, 300)
    assert 205 < sum(torch.allclose(output, whole) for output in outputs) < 275


@pytest.mark.parametrize(("own", "share"), [(1.0, 4 / 5), (0.0, 1 / 5)])
def test_adams_rate_is_by_the_channels_of_the_steps_width(own: float, share: float) -> None:
    # Adam's first step moves every weight with a gradient by its rate.
    torch.manual_seed(0)
    spec = SubModelSpec(kept={"hidden": (0, 1, 2, 3)})
    module = compact(five_channels(), spec, MAP)
    before = arrays_of(module)
    plan = TrainingPlan(
        optimizer="adam",
        learning_rate=1e-4,
        rate_by_width=True,
        objectives=(Component(name="ordered-dropout", options={"own": own}),),
    )
    data = make_labelled_data(np.ones((2, 2), np.float32), np.zeros(2, np.int64), class_names=("a", "b"))
    train(module, data, plan, received={"widths": widths((1,))}, spec=spec, channel_map=MAP)
    assert np.abs(arrays_of(module)["out.bias"] - before["out.bias"]) == pytest.approx(1e-4 / share, rel=1e-3)


def test_gradients_reach_only_the_channels_of_the_width() -> None:
    torch.manual_seed(0)
    module = five_channels()
    objective = set_up(module, widths((1, 3)), own=0.0)
    objective.network(module, module)(torch.ones(4, 2)).square().sum().backward()
    assert module.hidden.bias.grad is not None
    assert module.out.weight.grad is not None
    assert (module.out.weight.grad[:, [0, 2, 4]] == 0).all()
    assert (module.hidden.bias.grad[[0, 2, 4]] == 0).all()
    assert (module.out.bias.grad != 0).all()


def test_a_device_that_holds_a_sub_model_finds_the_channels_in_its_own_coordinates() -> None:
    torch.manual_seed(0)
    full = five_channels()
    own = SubModelSpec(kept={"hidden": (1, 3, 4)})
    module = compact(full, own, MAP)
    # Channels 1 and 4 of the full network are the sub-model's channels 0 and 2.
    objective = set_up(module, widths((0, 2)), own, own=0.0)
    inputs = torch.tensor([[1.0, 2.0]])
    expected = compact(full, SubModelSpec(kept={"hidden": (1, 4)}), MAP)(inputs)
    assert torch.allclose(objective.network(module, module)(inputs), expected)


def test_without_smaller_widths_or_outside_training_the_device_runs_its_own() -> None:
    module = five_channels()
    alone = set_up(module, {})
    assert alone.network(module, module) is module
    looking = set_up(module, widths((1, 3)), own=0.0)
    assert looking.network(module.eval(), module) is module


def test_distillation_adds_the_divergence_of_a_smaller_width_from_the_devices_own() -> None:
    torch.manual_seed(0)
    module = five_channels()
    objective = set_up(module, widths((1, 3)), own=1.0, distil=0.25)
    inputs, labels = torch.tensor([[1.0, 2.0]]), torch.tensor([1])
    outputs = objective.network(module, module)(inputs)
    base = nn.functional.cross_entropy(outputs, labels)
    smaller = compact(module, SubModelSpec(kept={"hidden": (1, 3)}), MAP)(inputs)
    own, other = outputs.detach().softmax(1), smaller.softmax(1)
    divergence = (own * (own.log() - other.log())).sum()
    loss = objective.loss(Batch(module, inputs, labels, outputs), base)
    assert loss.item() == pytest.approx((0.75 * base + 0.25 * divergence).item(), rel=1e-5)


@pytest.mark.parametrize("options", [{"own": 1.5}, {"own": -0.1}, {"distil": 1.0}, {"distil": -1.0}])
def test_shares_out_of_bounds_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="ordered-dropout"):
        build_objectives((Component(name="ordered-dropout", options=options),))


# --- with real networks ---
@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "cnn",
        "cnn-batch",
        "cnn-group",
        "resnet20",
        "resnet20-group",
        "resnet56",
        "mobilenet-v2",
        "vit-tiny",
    ],
)
def test_shipped_networks_train_their_smaller_widths(name: str) -> None:
    """Also networks with batch normalisation and depthwise convolutions."""
    shape = (1, 8, 8) if name == "mlp" else (1, 28, 28)
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=10), seed=1)
    channel_map = trace_channels(module, shape)
    half = {
        f"0/{group}": np.arange(max(entry.multiple, entry.channels // 2 // entry.multiple * entry.multiple))
        for group, entry in channel_map.groups.items()
    }
    data = DATA if name == "mlp" else _pictures(shape)
    before = arrays_of(module)
    result = train(
        module,
        data,
        plan(),
        received={"widths": {place: kept.astype(np.int32) for place, kept in half.items()}},
        channel_map=channel_map,
    )
    after = arrays_of(module)
    assert result.metrics.train_loss is not None
    assert all(np.isfinite(array).all() for array in after.values())
    assert any((after[array] != before[array]).any() for array in after)


def _pictures(shape: tuple[int, ...]) -> LabelledData:
    random = np.random.default_rng(0)
    images = random.normal(size=(8, *shape)).astype(np.float32)
    return LabelledData(images, np.arange(8) % 10, DATA.class_names, DATA.preprocessing)


def plan(**more: object) -> TrainingPlan:
    component = Component(name="ordered-dropout", options={})
    return TrainingPlan(objectives=(component,), batch_size=4, seed=3, **more)  # type: ignore[arg-type]


def test_a_training_that_was_stopped_goes_on_with_the_widths_that_it_would_have_drawn(tmp_path) -> None:
    spec = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10)

    def trained(*, stop_after: int | None = None, folder: str = "whole") -> dict[str, np.ndarray]:
        module = build_model(spec, seed=1)
        channel_map = trace_channels(module, (1, 8, 8))
        half = {
            f"0/{group}": np.arange(entry.channels // 2, dtype=np.int32)
            for group, entry in channel_map.groups.items()
        }
        batches = 0

        def should_stop() -> bool:
            nonlocal batches
            batches += 1
            return stop_after is not None and batches > stop_after

        train(
            module,
            DATA,
            plan(local_epochs=3),
            received={"widths": half},
            channel_map=channel_map,
            should_stop=should_stop,
            checkpoint=EpochCheckpoint(tmp_path / folder, "", interval_s=0),
        )
        return arrays_of(module)

    whole = trained()
    with pytest.raises(TrainingStopped):
        trained(stop_after=15, folder="stopped")
    again = trained(folder="stopped")
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
