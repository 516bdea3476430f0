"""Training on another device gives the processor's update; what the device cannot do, the processor does."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.agent.settings import TaskContext
from edge_client.models.build import build_model
from edge_client.pruning.surgery import arrays_of
from edge_client.system.hardware.memory import memory
from edge_client.training import torch_trainer, training_device
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.choice import make_trainer
from edge_client.training.loop import train
from edge_client.training.objectives.registry import OBJECTIVES
from edge_client.training.results import TrainingResult, TrainingStopped
from edge_client.training.torch_trainer import TorchTrainer
from edge_client.training.trainer import no_memory
from edge_client.training.training_device import TrainingDevice
from schemas.messages import Update
from schemas.strategy import TrainingPlan
from schemas.tensors.arrays import Groups
from schemas.values import Accelerator
from tests.edge_client.system.hardware.trees import PI, tree
from tests.edge_client.training.objectives.test_objective_contract import CHANNELS, SPEC, digits, once, plan
from tests.edge_client.training.stand_in_device import CARD, TORCH_CARD, Card, OnCard, aten
from tests.edge_client.training.step_graphs.running.test_trainer import assert_alike, trained
from tests.integration.bench import Bench

ON_CARD = TrainingDevice("card:0")


@pytest.fixture(autouse=True)
def _torch_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in does not say how much memory is free, and torch's settings are restored."""
    monkeypatch.setattr(training_device, "FREE_BYTES", dict.fromkeys(("card:0", "cpu"), lambda _: None))
    cudnn, fills = torch.backends.cudnn, torch.utils.deterministic.fill_uninitialized_memory
    before = cudnn.deterministic, cudnn.allow_tf32
    yield
    cudnn.deterministic, cudnn.allow_tf32 = before
    torch.utils.deterministic.fill_uninitialized_memory = fills
    torch._C._set_deterministic_algorithms(False)


def received_by(name: str, first: TrainingResult) -> Groups:
    """Every group that an objective may receive, with the network's shapes and non-zero values."""
    arrays = arrays_of(build_model(SPEC, seed=1))
    groups: dict[str, Any] = {
        **{group: {n: a * 0.1 for n, a in held.items()} for group, held in first.groups.items()},
        "last-step": {n: np.full_like(a, 0.01) for n, a in arrays.items()},
        "overlap": {n: a > 0 for n, a in arrays_of(build_model(SPEC, seed=2)).items()},
        "widths": {},
    }
    return {group: groups[group] for group in OBJECTIVES[name].receives}


def second_round(
    name: str, *, on_card: bool, checkpoint: EpochCheckpoint | None = None, epochs: int = 2
) -> tuple[dict[str, np.ndarray], TrainingResult]:
    _, first = once(name)
    module, done = build_model(SPEC, seed=1), list[object]()
    with Card():
        if on_card:
            module.to(CARD)
        result = train(
            module,
            digits(),
            plan(name, local_epochs=2, momentum=0.9),
            received=received_by(name, first),
            kept=first.kept,
            channel_map=CHANNELS,
            checkpoint=checkpoint,
            on_epoch=done.append,
            should_stop=lambda: len(done) == epochs,
        )
        assert all(isinstance(weight, OnCard) == on_card for weight in module.parameters())
        return arrays_of(module), result


def assert_same(
    ours: tuple[dict[str, np.ndarray], TrainingResult], theirs: tuple[dict[str, np.ndarray], TrainingResult]
) -> None:
    (mine, my_result), (others, result) = ours, theirs
    pairs = [(mine, others)]
    for my_groups, groups in ((my_result.groups, result.groups), (my_result.kept, result.kept)):
        assert my_groups.keys() == groups.keys()
        pairs += [(my_groups[name], groups[name]) for name in groups]
    for one, other in pairs:
        for name, array in other.items():
            np.testing.assert_allclose(one[name], array, rtol=1e-5, atol=1e-6)
    assert my_result.metrics.train_loss == pytest.approx(result.metrics.train_loss, rel=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_trains_on_a_device_as_on_the_processor(name: str) -> None:
    assert_same(second_round(name, on_card=True), second_round(name, on_card=False))


@pytest.mark.parametrize("begun_on_card", [True, False])
@pytest.mark.parametrize("name", ["attentive", "output-energy", "scaffold"])
def test_a_checkpoint_goes_on_on_another_device(name: str, begun_on_card: bool, tmp_path: Path) -> None:
    def checkpoint() -> EpochCheckpoint:
        return EpochCheckpoint(tmp_path / "epochs", "", interval_s=0)

    with pytest.raises(TrainingStopped):
        second_round(name, on_card=begun_on_card, checkpoint=checkpoint(), epochs=1)
    values = checkpoint().load_values()
    assert values is not None
    assert all(type(array) is np.ndarray for array in values["module"].values())
    resumed = second_round(name, on_card=not begun_on_card, checkpoint=checkpoint())
    assert_same(resumed, second_round(name, on_card=False))


PLAIN = ("model.name=two-nn", "local-epochs=1")
NORMALISED = ("model.name=cnn-batch", "local-epochs=1")
FROZEN = (*NORMALISED, 'training.train=["linear2", "head"]')
LOW_RANK = ("model.name=two-nn", "local-epochs=2", "training.train=lora", "training.rank=3")


def answers(
    folder: Path, words: tuple[str, ...], card: Card | None = None
) -> tuple[TaskContext, Update, Update]:
    """The weak device's place, its update from a training on a card, and the processor's."""
    bench = Bench(folder, "fedavg", "batch-size=8", *words)
    name, task = next(iter(bench.tasks(1, 1).items()))
    place = bench.places[name]
    theirs = trained(task, place, TorchTrainer())
    with card or Card():
        ours = trained(task, place, TorchTrainer(device=ON_CARD))
    return place, ours, theirs


@pytest.mark.parametrize("words", [PLAIN, FROZEN, LOW_RANK])
def test_a_whole_task_on_a_device_ends_in_the_processors_update(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    place, ours, theirs = answers(tmp_path, words)
    assert (ours.metrics.trained_on, theirs.metrics.trained_on) == ("card:0", "")
    assert_alike(place, ours, theirs)
    assert torch.are_deterministic_algorithms_enabled()


def test_dropout_takes_the_processors_masks() -> None:
    def refuse(func: Any, args: tuple[Any, ...]) -> None:
        assert "bernoulli" not in str(func)

    def trained_weights(card: bool) -> dict[str, np.ndarray]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
        with Card(refuse):
            train(module.to(CARD) if card else module, digits(), TrainingPlan(batch_size=8, local_epochs=2))
            # The layer is as it was.
            assert "forward" not in vars(module[1])
            return arrays_of(module)

    there, here = trained_weights(True), trained_weights(False)
    for name, array in here.items():
        np.testing.assert_allclose(there[name], array, rtol=1e-5, atol=1e-6)


class Small:
    """A card without the memory for a convolution or a product of more than so many examples."""

    def __init__(self, examples: int) -> None:
        self.examples, self.sizes = examples, list[int]()

    def __call__(self, func: Any, args: tuple[Any, ...]) -> None:
        if func is aten.convolution.default and torch.is_grad_enabled():
            self.sizes.append(len(args[0]))
            if len(args[0]) > self.examples:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_device_with_too_little_memory_trains_in_smaller_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small, returned = Small(2), TORCH_CARD.returned
    place, ours, theirs = answers(tmp_path, ("model.name=cnn", "local-epochs=1"), Card(small))
    assert ours.metrics.trained_on == "card:0 has too little memory: batches of 2"
    assert [size for size in small.sizes if size > 2] == [8, 4]
    assert TORCH_CARD.returned == returned + 2
    assert "card:0 has too little memory: batches of 4" in caplog.text
    assert_alike(place, ours, theirs)


@pytest.mark.parametrize("words", [NORMALISED, ("model.name=cnn", "local-epochs=1")])
def test_the_processor_trains_where_no_batch_is_small_enough(words: tuple[str, ...], tmp_path: Path) -> None:
    place, ours, theirs = answers(tmp_path, words, Card(Small(0)))
    assert ours.metrics.trained_on == "card:0 has too little memory: the processor trains"
    assert_alike(place, ours, theirs)


@pytest.mark.parametrize("error", [no_memory(1000, 0, 8), torch.OutOfMemoryError("CUDA out of memory")])
def test_the_processor_trains_what_the_estimate_does_not_fit_or_cannot_be_made_for(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimate(*_: Any, free: int | None, **__: Any) -> None:
        if free is not None:
            raise error

    monkeypatch.setattr(torch_trainer, "micro_batch", estimate)
    monkeypatch.setattr(training_device, "FREE_BYTES", {"card:0": lambda _: 0, "cpu": lambda _: None})
    _, ours, _ = answers(tmp_path, PLAIN)
    assert ours.metrics.trained_on == "card:0 has too little memory: the processor trains"


def test_the_processor_takes_the_place_of_a_device_without_a_kernel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(func: Any, args: tuple[Any, ...]) -> None:
        if func is aten.addmm.default:
            raise NotImplementedError("'aten::addmm' is not\n implemented for the card")

    place, ours, theirs = answers(tmp_path, PLAIN, Card(refuse))
    assert ours.metrics.trained_on == (
        "card:0 failed: 'aten::addmm' is not implemented for the card: the processor trains"
    )
    assert "card:0 failed" in caplog.text
    assert_alike(place, ours, theirs)


def test_a_training_that_is_stopped_is_not_begun_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *PLAIN)
    name, task = next(iter(bench.tasks(1, 1).items()))
    with Card(), pytest.raises(TrainingStopped):
        trained(task, bench.places[name], TorchTrainer(device=ON_CARD), should_stop=lambda: True)


def test_the_free_memory_of_a_card_counts_what_torch_keeps_for_reuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    root = tree(tmp_path, PI)
    card = SimpleNamespace(
        memory_reserved=lambda: 300,
        memory_allocated=lambda: 100,
        mem_get_info=lambda: (5000, 9000),
        get_device_properties=lambda _: SimpleNamespace(name="L4", total_memory=9000, is_integrated=False),
    )
    monkeypatch.setattr(torch, "cuda", card)
    assert TrainingDevice("cuda").describe(root) == Accelerator(
        kind="cuda", name="L4", memory_bytes=9000, free_bytes=5200
    )
    # A Jetson's GPU shares the board's memory, of which the driver takes what can be reclaimed for used.
    card.get_device_properties = lambda _: SimpleNamespace(name="", total_memory=0, is_integrated=True)
    board = memory(root).free
    assert board is not None
    assert TrainingDevice("cuda").free_bytes(root) == board + 200
    apple = SimpleNamespace(recommended_max_memory=lambda: 9000, current_allocated_memory=lambda: 4000)
    monkeypatch.setattr(torch, "mps", apple)
    assert TrainingDevice("mps").free_bytes(root) == 5000
    assert TrainingDevice("cpu").free_bytes(root) == board


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_card_that_is_gone_leaves_its_task_to_the_processor(tmp_path: Path) -> None:
    bench, trainer = Bench(tmp_path, "fedavg", *PLAIN), make_trainer("torch", accelerator="cuda")
    bench.places = {name: replace(place, trainer=trainer) for name, place in bench.places.items()}
    record, updates = bench.round(1)
    why = "cuda failed: Torch not compiled with CUDA enabled: the processor trains"
    assert record.trained_on == dict.fromkeys(bench.places, why)
    assert all(update.metrics.steps > 0 for update in updates.values())
