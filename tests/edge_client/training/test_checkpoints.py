"""Training that is killed between two epochs and resumed ends with the same bytes."""

import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.sources import load_source
from edge_client.training.checkpoints import INTERVAL_S, EpochCheckpoint, EpochCheckpoints, UnfitCheckpoint
from edge_client.training.loop import train
from edge_client.training.results import EpochReport, TrainingResult, TrainingStopped
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.tensors.chunks import BlobRef, digest_of
from schemas.values import ModelSpec
from tests.forked import forked_python
from tests.groups import encode_groups

DATA = load_source("digits").subset(range(20))


class Everything(nn.Module):
    """A network with dropout, running statistics, a counter and a buffer outside the state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.5))
        self.head = nn.Linear(144, 10)
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, inputs):
        self.seen += 1
        return self.head(self.body(inputs)) * (1 + self.seen / 100)


def network(kind=Everything, seed: int = 1) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind()


def plan(**more) -> TrainingPlan:
    return TrainingPlan(**{"batch_size": 8, "seed": 3, "local_epochs": 3, **more})


def checkpoint(path: Path, key: str = "this", interval_s: float = 0.0, **more) -> EpochCheckpoint:
    return EpochCheckpoint(path / "epochs.safetensors", key, interval_s=interval_s, **more)


def digest(module: nn.Module) -> str:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return digest_of(encode_groups({"all": {name: t.detach().numpy() for name, t in tensors.items()}}))


def stopped_after(
    epoch: int, path: Path, module: nn.Module, how: TrainingPlan, trained: frozenset[str] | None = None
) -> list[EpochReport]:
    """Train until `epoch` epochs are done."""
    reports: list[EpochReport] = []
    with pytest.raises(TrainingStopped):
        train(
            module,
            DATA,
            how,
            trained=trained,
            on_epoch=reports.append,
            should_stop=lambda: len(reports) == epoch,
            checkpoint=checkpoint(path),
        )
    return reports


def without_time(result: TrainingResult):
    return result.metrics.model_copy(update={"seconds": 0.0})


@pytest.mark.parametrize(
    "how",
    [{}, {"momentum": 0.9, "weight_decay": 0.01}, {"optimizer": "adam", "learning_rate": 0.01}],
    ids=["sgd", "momentum", "adam"],
)
@pytest.mark.parametrize("epoch", [1, 2])
def test_resumed_training_ends_with_the_same_bytes(tmp_path, how, epoch):
    whole, first, second = network(), network(), network()
    expected = train(whole, DATA, plan(**how))
    stopped_after(epoch, tmp_path, first, plan(**how))
    reports: list[EpochReport] = []
    result = train(second, DATA, plan(**how), on_epoch=reports.append, checkpoint=checkpoint(tmp_path))
    assert digest(second) == digest(whole)
    assert without_time(result) == without_time(expected)
    assert [report.epoch for report in reports] == list(range(epoch + 1, 4))


def test_a_checkpoint_has_no_frozen_weights_and_resumes_with_the_same_bytes(tmp_path):
    head = frozenset({"head.weight", "head.bias"})
    whole, part = network(), network()
    train(whole, DATA, plan(), trained=head)
    stopped_after(1, tmp_path, part, plan(), trained=head)
    saved = checkpoint(tmp_path).load_values()
    assert {name for name in saved["module"] if "weight" in name} == {"head.weight"}
    resumed = network()
    train(resumed, DATA, plan(), trained=head, checkpoint=checkpoint(tmp_path))
    assert digest(resumed) == digest(whole)


def test_a_kill_after_the_last_epoch_repeats_no_epoch(tmp_path):
    whole, second = network(), network()
    expected = train(whole, DATA, plan(), checkpoint=checkpoint(tmp_path))
    reports: list[EpochReport] = []
    result = train(second, DATA, plan(), on_epoch=reports.append, checkpoint=checkpoint(tmp_path))
    assert reports == []
    assert digest(second) == digest(whole)
    assert without_time(result) == without_time(expected)
    assert result.metrics.seconds > checkpoint(tmp_path).load_values()["seconds"]


def test_resumed_tensors_keep_their_memory_layout(tmp_path):
    def laid_out() -> nn.Module:
        return network().to(memory_format=torch.channels_last)

    how = {"momentum": 0.9}
    whole, second = laid_out(), laid_out()
    train(whole, DATA, plan(**how))
    stopped_after(1, tmp_path, laid_out(), plan(**how))
    train(second, DATA, plan(**how), checkpoint=checkpoint(tmp_path))
    assert digest(second) == digest(whole)


def test_a_checkpoint_of_another_network_is_refused_and_dropped(tmp_path):
    stopped_after(1, tmp_path, network(), plan())

    def other() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    with pytest.raises(UnfitCheckpoint, match="other tensors"):
        train(network(other), DATA, plan(), checkpoint=checkpoint(tmp_path))
    assert train(network(other), DATA, plan(), checkpoint=checkpoint(tmp_path)).metrics.epochs == 3


def test_a_checkpoint_of_other_objectives_is_refused(tmp_path):
    stopped_after(1, tmp_path, network(), plan())
    how = plan(objectives=({"name": "prox"},))
    with pytest.raises(UnfitCheckpoint):
        train(network(), DATA, how, checkpoint=checkpoint(tmp_path))


def test_a_network_that_cannot_be_saved_is_trained_without_checkpoints(tmp_path, caplog):
    class Half(Everything):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("brain", torch.zeros(1, dtype=torch.bfloat16))

    result = train(network(Half), DATA, plan(), checkpoint=checkpoint(tmp_path))
    assert result.metrics.epochs == 3
    assert checkpoint(tmp_path).load_values() is None
    assert "no checkpoint could be written" in caplog.text


# --- the file ---
def test_a_saved_checkpoint_is_loaded(tmp_path):
    assert checkpoint(tmp_path).load_values() is None
    checkpoint(tmp_path).save(lambda: {"a": np.arange(3), "b": {1: (2, None)}})
    values = checkpoint(tmp_path).load_values()
    assert values is not None
    assert values["b"] == {1: (2, None)}
    assert (values["a"] == np.arange(3)).all()


def test_a_checkpoint_of_another_task_is_not_loaded(tmp_path):
    checkpoint(tmp_path).save(dict)
    assert checkpoint(tmp_path, key="that").load_values() is None
    checkpoint(tmp_path).drop()
    assert checkpoint(tmp_path).load_values() is None
    checkpoint(tmp_path).drop()


@pytest.mark.parametrize("content", [b"", b"noise", b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_damaged_checkpoint_is_ignored(tmp_path, content, caplog):
    checkpoint(tmp_path).save(dict)
    (tmp_path / "epochs.safetensors").write_bytes(content)
    assert checkpoint(tmp_path).load_values() is None
    assert "a checkpoint is ignored" in caplog.text


def test_short_epochs_are_not_all_saved(tmp_path):
    now = [100.0]
    saver = checkpoint(tmp_path, interval_s=INTERVAL_S, clock=lambda: now[0])
    saved = []
    for second in range(1, 13):
        now[0] = 100.0 + second
        saver.save(lambda second=second: saved.append(second) or {})
    # Five seconds after the start, and again after five more.
    assert saved == [5, 10]


def test_a_slow_disk_is_written_less_often(tmp_path):
    now = [100.0]
    saver = checkpoint(tmp_path, interval_s=5.0, clock=lambda: now[0])
    saved = []

    def slow():
        saved.append(now[0])
        now[0] += 1.0
        return {}

    for _ in range(50):
        now[0] += 1.0
        saver.save(slow)
    # The save at 105 takes one second, 4 times 0.25 s, so the next one is 4 times 5 s after its end, at 126.
    assert saved == [105.0, 126.0, 147.0]


def test_a_full_disk_keeps_the_last_checkpoint_and_does_not_stop_training(tmp_path, monkeypatch, caplog):
    saver = checkpoint(tmp_path)
    saver.save(lambda: {"epoch": 1})

    def full(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    saver.save(lambda: {"epoch": 2})
    assert saver.load_values() == {"epoch": 1}
    assert "No space left" in caplog.text


TASK = TrainTask(
    federation="home",
    run="run-1",
    round=2,
    attempt=3,
    tier=1,
    ratio=0.5,
    model=ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10),
    training=TrainingPlan(),
    blobs={"state": BlobRef(digest="0" * 64, size=1)},
    deadline_s=600.0,
)


def test_the_checkpoint_of_a_task_does_not_depend_on_its_remaining_time(tmp_path):
    kept = EpochCheckpoints(tmp_path, interval_s=0)
    kept.of(TASK, examples=5).save(dict)
    assert kept.of(TASK.model_copy(update={"deadline_s": 1.0}), examples=5).load_values() == {}
    assert kept.of(TASK, examples=6).load_values() is None
    assert kept.of(TASK.model_copy(update={"ratio": 0.4}), examples=5).load_values() is None
    assert kept.of(TASK.model_copy(update={"attempt": 4}), examples=5).load_values() is None


def test_only_the_checkpoint_of_the_current_task_is_kept(tmp_path):
    kept = EpochCheckpoints(tmp_path / "epochs", interval_s=0)
    kept.keep_only(TASK)
    other = TASK.model_copy(update={"attempt": 4})
    for task in (TASK, other):
        kept.of(task, examples=5).save(dict)
    kept.keep_only(other)
    assert kept.of(TASK, examples=5).load_values() is None
    assert kept.of(other, examples=5).load_values() == {}
    kept.keep_only(None)
    assert list((tmp_path / "epochs").iterdir()) == []


# --- another process ---
SCRIPT = """
import os, signal, sys
from pathlib import Path
import torch
from edge_client.training.loop import train
from tests.edge_client.training.test_checkpoints import DATA, checkpoint, network, plan

def report(done):
    if done.epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)

module = network()
torch.set_num_threads(1)
train(module, DATA, plan(momentum=0.9), on_epoch=report, checkpoint=checkpoint(Path(sys.argv[1])))
"""


def test_another_process_resumes_a_killed_one(tmp_path):
    words = [*forked_python(), "-c", SCRIPT, str(tmp_path)]
    killed = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=Path.cwd())
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert checkpoint(tmp_path).load_values() is not None
    resumed, whole, epochs = network(), network(), []
    train(resumed, DATA, plan(momentum=0.9), on_epoch=epochs.append, checkpoint=checkpoint(tmp_path))
    train(whole, DATA, plan(momentum=0.9))
    assert [done.epoch for done in epochs] == [2, 3]
    assert digest(resumed) == digest(whole)
