"""Objectives: the order of calls, their effects, and detaching at the end."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of, compact
from edge_client.training.loop import train
from edge_client.training.objectives import registry
from edge_client.training.objectives.base import Batch, LocalObjective, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.results import TrainingStopped, merge_groups
from schemas.errors import ConfigError
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Groups

ATTENTIVE = Component(name="attentive", options={"layers": ("conv2",)})


class TinyNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 8, 3, padding=1)
        self.linear = nn.Linear(8 * 16, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.conv2(torch.relu(self.conv1(inputs))))
        pooled: Tensor = self.linear(nn.functional.max_pool2d(hidden, 2).flatten(1))
        return pooled


def digits(count: int = 64) -> LabelledData:
    return load_source("digits").subset(range(count))


def state(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in module.state_dict().items()}


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return first.keys() == second.keys() and all((first[name] == second[name]).all() for name in first)


def hooks(module: nn.Module) -> int:
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())


class Recorder(LocalObjective):
    """Records its calls; multiplies the loss, then the gradients."""

    def __init__(self, calls: list[str], *, loss: float = 1.0, gradient: float = 1.0) -> None:
        self.calls, self.loss_factor, self.gradient_factor = calls, loss, gradient

    def setup(self, module: nn.Module, context: TrainingContext) -> Iterable[nn.Parameter]:
        self.calls.append(f"setup {sorted(context.received)}")
        self.module = module
        return ()

    def start_epoch(self) -> None:
        self.calls.append("epoch")

    def loss(self, batch: Batch, base: Tensor) -> Tensor:
        self.calls.append(f"loss {tuple(batch.outputs.shape)}")
        return base * self.loss_factor

    def correct(self) -> None:
        self.calls.append("correct")
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(self.gradient_factor)

    def finish(self) -> Groups:
        self.calls.append("finish")
        return {"extra": {"x": np.ones(2, np.float32)}}

    def close(self) -> None:
        self.calls.append("close")


def recorded(monkeypatch: pytest.MonkeyPatch, **options: float) -> tuple[list[str], TrainingPlan]:
    calls: list[str] = []
    monkeypatch.setattr(registry, "OBJECTIVES", {"recorder": lambda: Recorder(calls, **options)})
    return calls, TrainingPlan(objectives=(Component(name="recorder"),))


def test_objectives_are_called_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plan = recorded(monkeypatch)
    received = {"control": {"x": np.zeros(1, np.float32)}}
    result = train(TinyNet(), digits(40), plan, received=received)
    assert calls == [
        "setup ['control']",
        *["epoch", "loss (32, 10)", "correct", "loss (8, 10)", "correct"],
        *["finish", "close"],
    ]
    assert list(result.groups) == ["extra"]


def test_objectives_are_closed_after_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plan = recorded(monkeypatch)
    with pytest.raises(TrainingStopped):
        train(TinyNet(), digits(), plan, should_stop=lambda: True)
    assert calls[-1] == "close"
    assert "finish" not in calls


def test_a_factor_on_the_loss_or_on_the_gradient_is_a_factor_on_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # SGD's step is rate times gradient: halving the loss, the gradient or the rate has the same effect.
    trained = []
    for options in ({"loss": 0.5}, {"gradient": 0.5}, {}):
        _, plan = recorded(monkeypatch, **options)
        rate = 0.05 if not options else 0.1
        module = TinyNet()
        metrics = train(module, digits(32), plan.model_copy(update={"learning_rate": rate})).metrics
        trained.append((module, metrics.train_loss))
    for module, loss in trained[1:]:
        assert loss == trained[0][1]
        torch.testing.assert_close(module.state_dict(), trained[0][0].state_dict())


def test_attentive_training_returns_scores_and_detaches_from_the_network() -> None:
    module = TinyNet()
    before = state(module)
    result = train(module, digits(), TrainingPlan(objectives=(ATTENTIVE,), local_epochs=2))
    scores = result.groups["attention"]
    assert list(scores) == ["conv2"]
    assert scores["conv2"].shape == (8,)
    assert scores["conv2"].dtype == np.float32
    assert np.isfinite(scores["conv2"]).all()
    assert state(module).keys() == before.keys()
    assert not same(state(module), before)
    assert hooks(module) == 0


def test_attentive_training_is_repeatable_and_differs_from_plain_training() -> None:
    plan = TrainingPlan(objectives=(ATTENTIVE,), seed=3)
    first, second, plain = TinyNet(), TinyNet(), TinyNet()
    scores = [train(module, digits(), plan).groups["attention"]["conv2"] for module in (first, second)]
    train(plain, digits(), plan.model_copy(update={"objectives": ()}))
    assert (scores[0] == scores[1]).all()
    assert same(state(first), state(second))
    assert not same(state(first), state(plain))


def test_attention_is_removed_after_errors() -> None:
    module = TinyNet()
    checks: list[int] = []
    with pytest.raises(TrainingStopped):
        train(
            module,
            digits(),
            TrainingPlan(objectives=(ATTENTIVE,)),
            should_stop=lambda: checks.append(1) or len(checks) > 1,  # type: ignore[func-returns-value]
        )
    assert hooks(module) == 0


def test_scores_are_those_of_the_last_epoch() -> None:
    # With a rate near 0, every epoch sees the same network, so sums over two epochs would double.
    scores = [
        train(
            TinyNet(),
            digits(),
            TrainingPlan(objectives=(ATTENTIVE,), learning_rate=1e-12, local_epochs=epochs, batch_size=64),
        ).groups["attention"]["conv2"]
        for epochs in (1, 2)
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4)


def test_without_examples_there_are_no_scores() -> None:
    module = TinyNet()
    assert train(module, digits(0), TrainingPlan(objectives=(ATTENTIVE,))).groups == {}
    assert hooks(module) == 0


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (Component(name="atentive"), "did you mean 'attentive'"),
        (Component(name="attentive"), "needs the option 'layers'"),
        (
            Component(name="attentive", options={"layer": ("conv2",)}),
            "no option 'layer' \\(did you mean 'layers'",
        ),
    ],
)
def test_wrong_objectives_are_refused_with_the_reason(component: Component, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_objectives((component,))


def test_two_objectives_must_not_send_the_same_group() -> None:
    with pytest.raises(ConfigError, match="two objectives send the group 'attention'"):
        merge_groups([{"attention": {}}, {"attention": {}}])


def test_without_epochs_attention_is_measured_and_no_weight_changes() -> None:
    module = TinyNet()
    before = state(module)
    result = train(module, digits(40), TrainingPlan(local_epochs=0, objectives=(ATTENTIVE,)))
    scores = result.groups["attention"]["conv2"]
    assert scores.shape == (8,)
    assert 0 < scores.min() < scores.max() < 1
    assert same(state(module), before)
    assert hooks(module) == 0


# --- FedProx ---
class OneWeight(nn.Module):
    """Logits [w, 0] for every input: two classes, one trainable number and one without effect."""

    def __init__(self, *, frozen: bool = False) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0]))
        self.fixed = nn.Parameter(torch.tensor([3.0]), requires_grad=not frozen)

    def forward(self, inputs: Tensor) -> Tensor:
        logit = self.w.expand(len(inputs), 1)
        return torch.cat([logit, torch.zeros_like(logit)], dim=1)


def prox(**options: float) -> Component:
    return Component(name="prox", options=options)


def moved(module: nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by)


def test_prox_adds_half_mu_times_the_squared_distance_to_the_received_model() -> None:
    module = OneWeight()
    (objective,) = build_objectives((prox(mu=0.5),))
    objective.setup(module, TrainingContext(TrainingPlan()))
    inputs, labels = torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)
    batch = Batch(module, inputs, labels, module(inputs))
    # Both weights at their start: nothing is added. Then both are 2 distances: 0.5 / 2 * (4 + 4) = 2.
    assert objective.loss(batch, torch.tensor(1.5)).item() == 1.5
    moved(module, 2.0)
    loss = objective.loss(batch, torch.tensor(1.5))
    assert loss.item() == 3.5
    loss.backward()
    # The gradient is mu * (w - w_received) = 0.5 * 2.
    assert module.w.grad is not None
    assert module.w.grad.tolist() == [1.0]


def test_prox_ignores_frozen_parameters() -> None:
    module = OneWeight(frozen=True)
    (objective,) = build_objectives((prox(mu=0.5),))
    objective.setup(module, TrainingContext(TrainingPlan()))
    moved(module, 2.0)
    inputs, labels = torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)
    batch = Batch(module, inputs, labels, module(inputs))
    # One of the two weights counts: 0.5 / 2 * 4 = 1.
    assert objective.loss(batch, torch.tensor(0.0)).item() == 1.0


def test_with_mu_zero_prox_is_bit_identical_to_plain_training() -> None:
    for optimizer, momentum in (("sgd", 0.5), ("adam", 0.0)):
        plan = TrainingPlan(optimizer=optimizer, momentum=momentum, local_epochs=3, learning_rate=0.05)
        plain, proximal = TinyNet(), TinyNet()
        first = train(plain, digits(), plan)
        second = train(proximal, digits(), plan.model_copy(update={"objectives": (prox(mu=0.0),)}))
        assert same(state(plain), state(proximal))
        assert first.metrics.train_loss == second.metrics.train_loss


def test_the_first_step_of_prox_equals_that_of_sgd() -> None:
    # The added gradient is mu * (w - w_received), which is 0 at the start of training.
    plan = TrainingPlan(batch_size=64)
    plain, proximal = TinyNet(), TinyNet()
    train(plain, digits(64), plan)
    train(proximal, digits(64), plan.model_copy(update={"objectives": (prox(mu=10.0),)}))
    torch.testing.assert_close(plain.state_dict(), proximal.state_dict())


def test_a_larger_mu_keeps_the_model_closer_to_the_received_one() -> None:
    start = state(TinyNet())
    distances = []
    for mu in (0.0, 0.1, 1.0, 10.0):
        module = TinyNet()
        train(module, digits(), TrainingPlan(local_epochs=5, learning_rate=0.05, objectives=(prox(mu=mu),)))
        end = state(module)
        distances.append(sum(float(np.square(end[name] - start[name]).sum()) for name in start))
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 2 * distances[-1]


def test_the_reported_loss_excludes_the_proximal_term() -> None:
    # With a rate near 0 the network stays the same, and so must the loss, for any mu.
    losses = [
        train(
            TinyNet(), digits(), TrainingPlan(learning_rate=1e-12, local_epochs=2, objectives=components)
        ).metrics.train_loss
        for components in ((), (prox(mu=1e6),))
    ]
    assert losses[0] == pytest.approx(losses[1])


def test_prox_trains_a_compact_sub_model() -> None:
    channel_map = trace_channels(TinyNet(), (1, 8, 8))
    spec = SubModelSpec(kept={"conv2": (1, 6, 3)})
    cut = arrays_of(compact(TinyNet(), spec, channel_map))
    assert cut["conv2.weight"].shape == (3, 4, 3, 3)
    ends = {}
    for mu in (0.0, 100.0):
        module = compact(TinyNet(), spec, channel_map)
        plan = TrainingPlan(local_epochs=3, objectives=(prox(mu=mu),))
        train(module, digits(), plan)
        end = arrays_of(module)
        assert {name: array.shape for name, array in end.items()} == {n: a.shape for n, a in cut.items()}
        ends[mu] = sum(float(np.square(end[name] - cut[name]).sum()) for name in cut)
    assert 0 < ends[100.0] < ends[0.0]


def test_prox_can_be_combined_with_attentive_training() -> None:
    module = TinyNet()
    for components in ((ATTENTIVE, prox()), (prox(), ATTENTIVE)):
        result = train(module, digits(), TrainingPlan(objectives=components))
        assert list(result.groups) == ["attention"]
        assert hooks(module) == 0


@pytest.mark.parametrize("mu", [-0.1, "strong", None])
def test_an_impossible_mu_is_refused(mu: float) -> None:
    with pytest.raises(ConfigError, match="'prox': mu must be a number of at least 0"):
        build_objectives((prox(mu=mu),))
