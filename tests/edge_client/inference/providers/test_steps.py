"""Training steps on providers: tried as models are, kept if gradients, losses and time say so."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edge_client.inference.providers.choice import MIN_COSINE, ProviderChoice, ProviderTrial, object_to
from edge_client.inference.providers.loading import BATCH, GIVEN, StepProviders
from edge_client.inference.providers.record import read_choices
from edge_client.inference.providers.table import ANY_PROVIDER, PROVIDERS, ProviderSettings
from edge_client.inference.providers.trial import TrialJob, run_trial
from edge_client.models.graphs.filling import open_on_processor
from edge_client.training.device_speed import REFERENCE_STEP, reference_batch
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.arena import PROCESSOR, StepPlace, StepSession
from edge_client.training.step_graphs.running.graph_file import read_step_graph
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from schemas.messages import Update
from schemas.messages.tasks import STEP
from schemas.tensors.arrays import Arrays
from tests.edge_client.inference.providers import stand_in
from tests.edge_client.inference.providers.conftest import Offer
from tests.edge_client.inference.providers.test_trial import CRASHES, FAST, HANGS, LIES
from tests.edge_client.training.step_graphs.running.test_trainer import TorchFreeBench, assert_alike, trained

OPENVINO = PROVIDERS["openvino"]
DIGEST = hashlib.sha256(REFERENCE_STEP.read_bytes()).hexdigest()


def step() -> tuple[Arrays, Arrays]:
    """The arrays of the reference block, and its batch."""
    graph, rng = read_step_graph(REFERENCE_STEP), np.random.default_rng(0)
    given = {name: rng.random(graph.inputs[name], np.float32) / 50 for name in graph.arrays}
    inputs, labels = reference_batch()
    return given, {names.INPUTS: inputs, names.LABELS: labels}


def choose(folder: Path, *asked: str) -> ProviderChoice | None:
    settings = ProviderSettings(asked) if asked else ANY_PROVIDER
    place = StepProviders(settings, folder, 1)(REFERENCE_STEP, *step())
    choices = read_choices(folder / DIGEST, DIGEST)
    assert [choice.provider for choice in choices[-1:]] == [place.name] or place is PROCESSOR
    return choices[-1] if choices else None


def test_a_provider_with_the_cpus_gradients_runs_steps_and_each_other_has_its_reason(
    tmp_path: Path, offer: Offer
) -> None:
    offer(FAST, LIES, CRASHES)
    choice = choose(tmp_path)
    assert choice is not None
    assert choice.provider == "cuda"
    trials = {trial.provider: trial for trial in choice.trials}
    assert (trials["cuda"].steps, trials["cuda"].difference, trials["cuda"].loss_difference) == (20, 0, 0)
    assert trials["cuda"].cosine == pytest.approx(1, abs=1e-6)
    assert trials["cuda"].speed_up > 1
    assert "gives other gradients: cosine" in trials["xnnpack"].refusal
    assert "signal 11" in trials["acl"].refusal


def test_a_provider_that_hangs_at_a_step_takes_its_own_time_alone(tmp_path: Path, offer: Offer) -> None:
    offer(HANGS)
    given, batch = step()
    examples = tmp_path / "step.npz"
    np.savez(examples, **{GIVEN + n: a for n, a in given.items()}, **{BATCH + n: a for n, a in batch.items()})
    job = TrialJob(
        subject="step",
        provider="qnn",
        model=str(REFERENCE_STEP),
        digest=DIGEST,
        threads=1,
        batch=32,
        examples=str(examples),
        limit_s=4.0,
    )
    assert run_trial(job).failure == "was not done within 4.0 s"


def test_with_the_cpu_alone_nothing_is_tried(tmp_path: Path, offer: Offer) -> None:
    offer()
    assert choose(tmp_path) is None
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"cosine": 0.99, "difference": 0.14}, "gives other gradients: cosine 0.9900, at a distance of 0.14"),
        # In the right direction, and too long.
        ({"difference": 0.1}, "gives other gradients: cosine 1.0000, at a distance of 0.1"),
        ({"loss_difference": 0.02}, "gives other losses: 0.02, at most 0.01 allowed"),
        ({"cosine": MIN_COSINE, "difference": 0.04, "loss_difference": 0.009}, ""),
    ],
)
def test_gradients_and_losses_decide(figures: dict[str, float], reason: str) -> None:
    trial = ProviderTrial(provider="cuda", steps=20, ms=1, cpu_ms=9).model_copy(update=figures)
    assert object_to(trial, False, None).startswith(reason)
    assert bool(object_to(trial, False, None)) == bool(reason)


def test_a_provider_that_fails_in_a_training_leaves_the_same_step_to_the_cpu(
    tmp_path: Path, offer: Offer
) -> None:
    offer(FAST)
    given, batch = step()
    data = REFERENCE_STEP.read_bytes()
    place = StepProviders(ProviderSettings(("cuda",)), tmp_path, 1)(REFERENCE_STEP, given, batch)
    session, plain = (StepSession(data, given, threads=1, place=where) for where in (place, PROCESSOR))
    assert session.place.name == "cuda"
    assert session.run(batch) == plain.run(batch)
    Path(stand_in.flag()).touch()
    # Another batch, as a provider with kept answers would not be asked for the same.
    other = {**batch, names.INPUTS: batch[names.INPUTS] * np.float32(0.5)}
    assert session.run(other) == plain.run(other)
    assert session.place is PROCESSOR
    for name, gradient in plain.gradients.items():
        np.testing.assert_array_equal(session.gradients[name], gradient)
    choice = read_choices(tmp_path / DIGEST, DIGEST)[-1]
    assert (choice.provider, choice.why) == ("cpu", "cuda failed in use: the device is gone")


def test_a_provider_that_cannot_open_the_graph_any_more_leaves_it_to_the_cpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such device")

    given, batch = step()
    place = StepPlace("cuda", fail, batch=len(batch[names.INPUTS]))
    session = StepSession(REFERENCE_STEP.read_bytes(), given, threads=1, place=place)
    assert session.place is PROCESSOR
    assert "cuda failed, the processor trains from now on: no such device" in caplog.text
    assert session.run(batch) > 0


def test_batches_of_another_size_run_on_the_cpu() -> None:
    """A place that compiles for one size, played by the CPU with the size as a fixed shape."""
    given, batch = step()
    opened = list[int]()

    def open_there(data: bytes, options: Any) -> Any:
        opened.append(1)
        return open_on_processor(data, options)

    place = StepPlace("npu", open_there, batch=16)
    session = StepSession(REFERENCE_STEP.read_bytes(), given, threads=1, place=place)
    plain = StepSession(REFERENCE_STEP.read_bytes(), given, threads=1)
    for size in (16, 7, 16):
        part = {name: np.ascontiguousarray(array[:size]) for name, array in batch.items()}
        assert session.run(part) == pytest.approx(plain.run(part), rel=1e-6)
        for name, gradient in plain.gradients.items():
            np.testing.assert_allclose(session.gradients[name], gradient, rtol=1e-5, atol=1e-7)
    assert (session.place, opened) == (place, [1])


def updates(folder: Path, provider: str) -> None:
    """A task's update with steps on a provider is the processor's."""
    bench = TorchFreeBench(folder, "fedavg", "model.name=cnn-batch", "local-epochs=1", "batch-size=8")
    name, task = next(iter(bench.tasks(1, 1).items()))
    assert STEP in task.blobs
    place = bench.places[name]
    places = StepProviders(ProviderSettings((provider,)), folder / "steps", 1)
    found: tuple[Update, Update] = (
        trained(task, place, OnnxTrainer(threads=1, places=places)),
        trained(task, place, OnnxTrainer(threads=1)),
    )
    assert [update.metrics.trained_on for update in found] == [provider, ""]
    assert_alike(place, *found)


def test_a_task_is_trained_on_a_provider(tmp_path: Path, offer: Offer) -> None:
    offer(FAST)
    updates(tmp_path, "cuda")


@pytest.mark.skipif(
    OPENVINO.runtime_name not in onnxruntime.get_available_providers(),
    reason="this onnxruntime has no OpenVINO: make test-providers",
)
def test_a_task_is_trained_with_openvino(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    choice = choose(tmp_path, "openvino")
    assert choice is not None
    (trial,) = choice.trials
    assert trial.steps == 20
    assert trial.failure == ""
    assert trial.cosine > MIN_COSINE
    assert min(trial.ms, trial.cpu_ms, trial.load_s) > 0
    updates(tmp_path, "openvino")
