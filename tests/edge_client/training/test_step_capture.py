"""Recorded steps are bit-identical to plain ones; networks that cannot be recorded are trained plainly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.models.build import build_model
from edge_client.models.frozen_part import find_split
from edge_client.models.modes import training_only
from edge_client.training import step_capture
from edge_client.training.evaluation import loss_of
from edge_client.training.loop import train
from edge_client.training.optimizers import Sgd, fused_sgd
from edge_client.training.step_capture import Examples, Recorder, Recording
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec, Preprocessing
from tests.edge_client.networks import Net
from tests.slow import slow

SHAPE = (1, 12, 12)
NAMES = tuple("0123456789")


def normalised() -> nn.Module:
    """A network with changing buffers and random numbers."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(100, 10),
    )


def named(name: str) -> Callable[[], nn.Module]:
    """A shipped network."""
    return lambda: build_model(ModelSpec(name=name, input_shape=SHAPE, num_classes=10), seed=0)


def examples(count: int) -> LabelledData:
    """Random images and labels."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, *SHAPE), dtype=np.uint8)
    return LabelledData(images, rng.integers(0, 10, count), NAMES, Preprocessing())


def plan(**changes: object) -> TrainingPlan:
    """A plan whose epochs have three batches of ten and one of five."""
    return TrainingPlan(local_epochs=2, batch_size=10, learning_rate=0.05, seed=7).model_copy(update=changes)


def trained(
    module: nn.Module, how: TrainingPlan, recorder: Recorder | None
) -> tuple[dict[str, Tensor], float | None]:
    """The trained arrays, and the loss."""
    result = train(module, examples(35), how, recorder=recorder)
    return module.state_dict(), result.metrics.train_loss


class Counting:
    """Records the results of the recorder's comparisons."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outcomes: list[bool] = []
        compare = step_capture.RecordedSteps.gives_the_bits

        def counted(*given: Any, **how: Any) -> bool:
            self.outcomes.append(compare(*given, **how))
            return self.outcomes[-1]

        monkeypatch.setattr(step_capture.RecordedSteps, "gives_the_bits", counted)


NETWORKS = {
    **{name: named(name) for name in ("mlp", "cnn", "cnn-batch", "cnn-group", "two-nn")},
    "normalised": normalised,
}
PLANS = {
    "sgd": plan(),
    "decay": plan(momentum=0.5, weight_decay=0.01),
    "momentum": plan(momentum=0.9),
    "adam": plan(optimizer="adam", learning_rate=0.001),
    "warmed": plan(momentum=0.9, warm_up_steps=5),
    "sharp": plan(momentum=0.9, sam_radius=0.1, local_epochs=3),
}
QUICK = {("mlp", "sharp"), ("mlp", "warmed"), ("cnn-batch", "momentum")} | {
    ("normalised", optimizer) for optimizer in ("momentum", "adam")
}
"""Dense layers, convolutions and running statistics, and optimizers with buffers and random numbers."""


@pytest.mark.parametrize(
    ("make", "how"),
    [
        (pytest.param if (network, optimizer) in QUICK else slow)(
            NETWORKS[network], PLANS[optimizer], id=f"{network}-{optimizer}"
        )
        for network in NETWORKS
        for optimizer in PLANS
    ],
)
def test_recorded_steps_are_bit_identical_to_plain_ones(
    make: Callable[[], nn.Module], how: TrainingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, recorder, module = Counting(monkeypatch), Recorder(), make()
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    plain, loss = trained(make(), how, None)
    for _ in range(2):
        module.load_state_dict(start)
        played, its_loss = trained(module, how, recorder)
        assert its_loss == loss
        assert all(torch.equal(played[name], plain[name]) for name in plain)
    # Batches of ten and of five each have passes and, if recorded, a descent; the second run reuses them.
    # The matrix of `normalised` has 1,000 numbers, which is not a multiple of 16.
    descends = how.momentum > 0 and how.weight_decay == 0 and make is not normalised
    if how.sam_radius:
        # A sharpness-aware step has passes alone; the plain epoch after it adds its own.
        assert len(compared.outcomes) == 6 if descends else 4
        compared.outcomes = compared.outcomes[2:]
    if not descends:
        assert compared.outcomes == [True, True]
        return
    assert compared.outcomes[::2] == [True, True]
    assert len(compared.outcomes) == 4
    if rounds_like_the_optimizer(module, how.momentum):
        assert compared.outcomes[1::2] == [True, True]


def rounds_like_the_optimizer(module: nn.Module, momentum: float) -> bool:
    """Whether a product of matrices that is added to a buffer has the bits of the optimizer's kernel here.

    The libraries that multiply matrices round the buffer's part once or twice, depending on the processor.
    """
    draws = torch.Generator().manual_seed(0)

    def alike(rows: int, columns: int, batch: int) -> bool:
        left, right = torch.randn(rows, batch, generator=draws), torch.randn(batch, columns, generator=draws)
        buffer, weight = torch.randn(rows, columns, generator=draws), torch.zeros(rows, columns)
        added, moved = torch.addmm(buffer, left, right, beta=momentum), buffer.clone()
        fused_sgd([weight], [left @ right], [moved], 0.05, momentum)
        return torch.equal(added, moved)

    shapes = [weight.shape for weight in module.parameters() if weight.dim() == 2]
    return all(alike(*shape, batch) for shape in shapes for batch in (10, 5))


@pytest.mark.parametrize(
    ("how", "moved"),
    [
        # The matrices 200 x 144, 200 x 200 and 10 x 200; the gradients of biases are sums.
        (plan(momentum=0.5), (0, 2, 4)),
        (plan(), ()),
        (plan(momentum=0.5, weight_decay=0.01), ()),
        (plan(optimizer="adam"), ()),
    ],
)
def test_a_descent_with_momentum_includes_matrix_products(how: TrainingPlan, moved: tuple[int, ...]) -> None:
    module, recorder = named("mlp")(), Recorder()
    trained(module, how, recorder)
    made = recorder.recordings[module].values()
    assert [recording is not None and tuple(recording.moves) for recording in made] == [moved, moved]


class Alternating(nn.Module):
    """A network that behaves differently from step to step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(144, 10), 0

    def forward(self, x: Tensor) -> Tensor:
        """Double the outputs in every other call."""
        self.calls += 1
        return self.layer(x.flatten(1)) * (1 + self.calls % 2)  # type: ignore[no-any-return]


def alternating() -> nn.Module:
    """An `Alternating` network with fixed initial weights."""
    torch.manual_seed(0)
    return Alternating()


def hooked() -> nn.Module:
    """A network of known layers with a forward hook."""
    module, seen = named("mlp")(), [0]

    def double_every_other(part: nn.Module, given: object, outputs: Tensor) -> Tensor:
        seen[0] += 1
        return outputs * (1 + seen[0] % 2)

    module.register_forward_hook(double_every_other)
    return module


def test_a_step_is_recorded_once_its_kind_was_repeated_often() -> None:
    module, recorder, recorded = named("mlp")(), Recorder(after=5), []
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    plain, loss = trained(named("mlp")(), plan(), None)
    for _ in range(3):
        module.load_state_dict(start)
        same, its_loss = trained(module, plan(), recorder)
        assert its_loss == loss
        assert all(torch.equal(same[name], plain[name]) for name in plain)
        recorded.append([shape[0] for shape, _ in recorder.recordings[module]])
    # Each training has six batches of ten and two of five.
    assert recorded == [[10], [10], [10, 5]]


@pytest.mark.parametrize("make", [alternating, hooked])
def test_a_network_with_its_own_python_code_is_trained_plainly(make: Callable[[], nn.Module]) -> None:
    plain, loss = trained(make(), plan(), None)
    same, its_loss = trained(make(), plan(), Recorder())
    assert its_loss == loss
    assert all(torch.equal(same[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    ("how", "off", "outcomes"),
    [
        (plan(), "all", [False] * 2),
        (plan(optimizer="adam"), "all", [False] * 2),
        # Only the passes are correct and replayed.
        (plan(momentum=0.5), "descents", [True, False] * 2),
    ],
)
def test_a_recording_with_different_results_is_not_used(
    how: TrainingPlan, off: str, outcomes: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = step_capture.compile_graph

    def slightly_off(*given: object, **named: bool) -> Recording:
        made = compiled(*given, **named)  # type: ignore[arg-type]

        def play(*tensors: Tensor) -> list[Tensor]:
            loss, *gradients = made.play(*tensors)
            if made.moves:
                tensors[0].add_(1e-7)
            return [loss, *(gradient + 1e-7 for gradient in gradients)]

        return made if off == "descents" and not made.moves else replace(made, play=play)

    monkeypatch.setattr(step_capture, "compile_graph", slightly_off)
    compared = Counting(monkeypatch)
    plain, loss = trained(named("mlp")(), how, None)
    same, its_loss = trained(named("mlp")(), how, Recorder())
    assert compared.outcomes == outcomes
    assert its_loss == loss
    assert all(torch.equal(same[name], plain[name]) for name in plain)


def test_a_step_that_cannot_be_recorded_runs_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(step_capture, "record_passes", broken)
    plain, _ = trained(named("mlp")(), plan(), None)
    same, _ = trained(named("mlp")(), plan(), Recorder())
    assert all(torch.equal(same[name], plain[name]) for name in plain)


def test_recording_a_step_of_the_rest_of_a_network_leaves_its_tensors_alone() -> None:
    def forward(net: Any, x: Tensor) -> Any:
        """Another code in training, so that what follows the frozen layer has two graphs."""
        return net.last(net.first(x)) * 2 if net.training else net.last(net.first(x))

    module = Net(forward, first=nn.Linear(4, 6), last=nn.Linear(6, 3))
    parts = find_split(module, ("last.weight", "last.bias"), (4,))
    optimizer = Sgd(parts.rest.parameters(), TrainingPlan(learning_rate=0.1))
    loss = loss_of("classification")

    def plain(examples: Examples) -> Tensor:
        optimizer.zero_grad()
        mean = loss(parts.rest(examples.inputs), examples.labels)
        mean.backward()
        optimizer.step()
        return mean.detach()

    examples = Examples(torch.ones(2, parts.width), torch.tensor([0, 1]))
    parts.rest.train()
    with training_only(module, ("last.weight", "last.bias")):
        step = Recorder().steps(parts.rest, optimizer, plain, loss)
        assert all(type(step(examples)) is Tensor for _ in range(3))
    assert all(type(tensor) is nn.Parameter for tensor in parts.rest.parameters())
