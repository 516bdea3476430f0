"""Micro-batches when memory is short: the same result as whole batches, or a refusal with its reason."""

import json
import resource
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.local import LocalData
from edge_client.pruning.surgery import arrays_of
from edge_client.system.hardware.memory import Memory, memory
from edge_client.system.process_memory import is_shortage
from edge_client.training import training_device
from edge_client.training.cost_model import network_cost
from edge_client.training.loop import train
from edge_client.training.results import TrainingResult
from edge_client.training.step_capture import Recorder
from edge_client.training.torch_trainer import MARGIN, ModuleJob, micro_batch
from schemas.errors import PeerError, Reason
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import ChannelMap, SubModelSpec
from tests.edge_client.system.hardware.trees import GROUP, PI, tree
from tests.forked import forked_python

SHAPE = (1, 8, 8)
UNMAPPED = ChannelMap(groups={}, parameters={})


def network(*, normalised: bool = False) -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8) if normalised else nn.Identity()
    return nn.Sequential(nn.Conv2d(1, 8, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


def examples(count: int) -> LabelledData:
    rng = np.random.default_rng(0)
    return make_labelled_data(rng.integers(0, 255, (count, *SHAPE)).astype(np.uint8), np.arange(count) % 10)


def plan(**words: object) -> TrainingPlan:
    return TrainingPlan(**{"learning_rate": 0.1, "batch_size": 16, "local_epochs": 2, **words})


def with_free(free: int | None) -> Memory:
    return Memory(physical=10**9, available=free, limit=None, free=free)


def needed(module: nn.Module, batch: int, count: int) -> int:
    cost = network_cost(module, SHAPE)
    total = cost.training(plan(), examples=count, batch=batch, pixel_bytes=0).total
    return round(MARGIN * (total - cost.parameters)) + 1


def outcome(
    words: dict[str, object], micro_batch: int | None
) -> tuple[dict[str, np.ndarray], TrainingResult]:
    module = network()
    # 40 examples: the last batch of an epoch has 8, and a batch of 16 in parts of 6 ends with a part of 4.
    result = train(module, examples(40), plan(**words), micro_batch=micro_batch, recorder=Recorder())
    return arrays_of(module), result


@pytest.mark.parametrize("micro_batch", [1, 6])
@pytest.mark.parametrize(
    "words",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"optimizer": "adam", "learning_rate": 0.001},
        {"objectives": (Component(name="prox", options={"mu": 0.1}),)},
        {"objectives": (Component(name="scaffold"),)},
        {"objectives": (Component(name="attentive", options={"layers": ("0",)}),)},
    ],
)
def test_micro_batches_train_like_whole_batches(words: dict[str, object], micro_batch: int) -> None:
    whole, all_at_once = outcome(words, None)
    parts, in_parts = outcome(words, micro_batch)
    for name, array in whole.items():
        np.testing.assert_allclose(parts[name], array, rtol=0, atol=2e-5)
    assert in_parts.metrics.steps == all_at_once.metrics.steps == 6
    assert in_parts.metrics.train_loss == pytest.approx(all_at_once.metrics.train_loss, abs=1e-4)
    for group, arrays in all_at_once.groups.items():
        for name, array in arrays.items():
            np.testing.assert_allclose(in_parts.groups[group][name], array, rtol=0, atol=2e-5)


def test_batches_stay_whole_if_memory_suffices() -> None:
    module = network()
    assert micro_batch(module, SHAPE, plan(), examples=40, free=10**9) is None
    assert micro_batch(module, SHAPE, plan(), examples=40, free=None) is None
    exactly = needed(module, 16, 40)
    assert micro_batch(module, SHAPE, plan(), examples=40, free=exactly) is None


def test_a_batch_is_split_into_as_few_parts_as_possible() -> None:
    module = network()
    # 16 examples in 1, 2, 3, ... parts are 16, 8, 6, 4, ... at once.
    for size in (8, 6, 4, 1):
        free = needed(module, size, 40)
        assert micro_batch(module, SHAPE, plan(), examples=40, free=free) == size


def test_fewer_examples_than_a_batch_are_one_batch() -> None:
    module = network()
    free = needed(module, 5, 5)
    assert micro_batch(module, SHAPE, plan(), examples=5, free=free) is None


def test_training_that_cannot_fit_is_refused_with_figures() -> None:
    with pytest.raises(PeerError, match=r"training needs [\d.]+ MB more, 0 MB are free") as refused:
        micro_batch(network(), SHAPE, plan(), examples=40, free=1000)
    assert refused.value.reason == Reason.NO_MEMORY


@pytest.mark.parametrize("objectives", [(), (Component(name="mix"),)])
def test_batches_whose_examples_interact_are_not_split(objectives: tuple[Component, ...]) -> None:
    module = network(normalised=not objectives)
    half = needed(module, 8, 40)
    with pytest.raises(PeerError, match="batches of 16") as refused:
        micro_batch(module, SHAPE, plan(objectives=objectives), examples=40, free=half)
    assert refused.value.reason == Reason.NO_MEMORY


def test_the_limit_of_a_control_group_applies(tmp_path: Path) -> None:
    module = network()
    root = tree(tmp_path, PI, {f"sys/fs/cgroup/{GROUP}/memory.max": str(10**8 + needed(module, 8, 40))})
    # 100 MB of the group are in use.
    assert micro_batch(module, SHAPE, plan(), examples=40, free=memory(root).free) == 8


def job(module: nn.Module) -> ModuleJob:
    """A training job with 40 examples."""
    task: Any = SimpleNamespace(
        model=SimpleNamespace(input_shape=SHAPE), spec=SubModelSpec(), trained=None, adapters=None
    )
    data = LocalData(examples(40), examples(0))
    board, nothing = Path("/"), lambda *_: False
    return ModuleJob(
        task=task,
        plan=plan(),
        module=module,
        data=data,
        received={},
        kept={},
        channel_map=UNMAPPED,
        board=board,
        on_epoch=nothing,
        should_stop=nothing,
    )


@pytest.mark.parametrize("kept", [False, True])
def test_freed_memory_is_returned_before_a_batch_is_split(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, given = network(), list[bool]()
    short, enough = (with_free(needed(module, size, 40)) for size in (4, 16))
    monkeypatch.setattr(training_device, "give_back", lambda: given.append(True))
    monkeypatch.setattr(training_device, "memory", lambda _: enough if kept and given else short)
    assert job(module).micro_batch == (None if kept else 4)
    assert given == [True]


def test_freed_memory_is_not_returned_if_memory_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_device, "give_back", pytest.fail)
    monkeypatch.setattr(training_device, "memory", lambda _: with_free(10**9))
    assert job(network()).micro_batch is None


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_a_memory_shortage_is_recognised_by_its_error(error: BaseException) -> None:
    assert is_shortage(error)
    assert not is_shortage(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_under_a_real_limit_a_task_fails_with_its_reason_and_the_process_continues() -> None:
    """With 200 MB of free address space, a task of 10 GB is refused, before it begins or by torch."""
    child = subprocess.run(
        [*forked_python(), "-m", "tests.edge_client.agent.under_a_limit"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    found = json.loads(child.stdout.splitlines()[-1])
    assert found["free_mb"] <= 200
    assert found["too_large"]["reason"] == found["by_surprise"]["reason"] == "no-memory"
    assert "MB are free" in found["too_large"]["detail"]
    assert "alloc" in found["by_surprise"]["detail"]
    assert 1 <= found["in_parts"] < 1024
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
