"""Try one provider: `python -m edge_client.inference.providers.trial_process`.

A `TrialJob` is the question, a `ProviderTrial` the answer. A provider that crashes takes this process alone.
"""

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import Inputs, Labels, Pixels
from edge_client.inference.benchmark import make_noise, time_runs
from edge_client.inference.onnx_model import LoadedModel, load_model, reason_of
from edge_client.inference.providers.choice import ProviderTrial
from edge_client.inference.providers.loading import BATCH, GIVEN, split_prefix, step_place
from edge_client.inference.providers.session import NotTaken, open_session
from edge_client.inference.providers.table import PROVIDERS, Provider
from edge_client.inference.providers.trial import TrialJob
from edge_client.system.child_process import answer
from edge_client.system.process_memory import resident_bytes
from edge_client.training.step_graphs.running import arena

SECONDS = 0.5  # for timing the CPU and the provider, in turns
MIN_RUNS, MAX_RUNS = 3, 400
FASTEST = 10  # per cent of the runs: other work on the board delays many, and most those with more threads
ANSWERS_S = 1.0  # for the CPU's answers on held-out examples, of which there are at least
MIN_EXAMPLES = 8
STEPS, RATE = 20, 0.01  # of a training, and their learning rate
SMALLEST = 1e-12
PROBES = (1, 2, 7)  # random inputs of a batch, as an export is tried with; and one of the device's batch


Run = Callable[[], object]


class Subject(Protocol):
    """What is tried: something that the CPU runs, and that a provider may run."""

    def run(self) -> object:
        """One run on the CPU."""

    def open(self, row: Provider) -> Run:
        """A run on a provider; raises whatever the provider does."""

    def compare(self, trial: ProviderTrial) -> ProviderTrial:
        """The trial with what differs, of the provider that was opened last."""


def try_provider(job: TrialJob) -> ProviderTrial:
    """The trial's figures; what goes wrong with the provider is a failure, not an error."""
    row, data = PROVIDERS[job.provider], Path(job.model).read_bytes()
    if hashlib.sha256(data).hexdigest() != job.digest:
        return ProviderTrial(provider=row.name, failure="was not tried: the file has changed since")
    subject = SUBJECTS[job.subject](job, data)
    before, start = resident_bytes(), time.perf_counter()
    try:
        run = subject.open(row)
        loaded = time.perf_counter()
        run()
        warm, memory = time.perf_counter(), resident_bytes() - before
        trial = ProviderTrial(
            provider=row.name,
            load_s=loaded - start,
            warm_up_ms=(warm - loaded) * 1e3,
            memory_bytes=max(0, memory),
        )
        trial = subject.compare(trial)
        if trial.failure:
            return trial
        taken = time_runs([subject.run, run], SECONDS, least=MIN_RUNS, most=MAX_RUNS)
        cpu_ms, ms = (float(np.percentile(times, FASTEST)) * 1e3 for times in taken)
    except Exception as error:  # a provider's are of any kind
        return ProviderTrial(provider=row.name, failure=f"cannot run it: {reason_of(error)}")
    return trial.model_copy(update={"cpu_ms": cpu_ms, "ms": ms})


class ModelSubject:
    """A served model: random inputs of the device's batch are run."""

    def __init__(self, job: TrialJob, data: bytes) -> None:
        self._job, self._data = job, data
        self._cpu = load_model(Path(job.model), threads=job.threads, data=data)
        self._inputs = make_noise(self._cpu, job.batch)
        self.run = partial(self._cpu.run, self._inputs)

    def open(self, row: Provider) -> Run:
        job = self._job
        session = open_session(self._data, threads=job.threads, row=row, engines=job.engines)
        self._fast = replace(self._cpu, session=session)
        return partial(self._fast.run, self._inputs)

    def compare(self, trial: ProviderTrial) -> ProviderTrial:
        return _compare_answers(trial, self._job, self._cpu, self._fast)


class StepSubject:
    """A training step: a batch is run, and the CPU's gradients change the arrays of both."""

    def __init__(self, job: TrialJob, data: bytes) -> None:
        assert job.examples is not None
        with np.load(job.examples, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        self._job, self._data = job, data
        self._batch = split_prefix(arrays, BATCH)
        self._given = split_prefix(arrays, GIVEN)
        self._cpu = arena.StepSession(data, self._given, threads=job.threads or 0)
        self.run = partial(self._cpu.run, self._batch)

    def open(self, row: Provider) -> Run:
        job = self._job
        place = step_place(row, job.batch, threads=job.threads, engines=job.engines, on_failure=_refuse)
        self._fast = arena.StepSession(self._data, self._given, threads=job.threads or 0, place=place)
        return partial(self._fast.run, self._batch)

    def compare(self, trial: ProviderTrial) -> ProviderTrial:
        """Compare losses, gradients and running statistics over `STEPS` steps of gradient descent."""
        cosine, difference, loss_difference = 1.0, 0.0, 0.0
        for _ in range(STEPS):
            wanted, found = self._cpu.run(self._batch), self._fast.run(self._batch)
            loss_difference = max(loss_difference, abs(found - wanted) / max(abs(wanted), SMALLEST))
            for theirs, ours in (
                (self._cpu.gradients, self._fast.gradients),
                (self._cpu.buffers, self._fast.buffers),
            ):
                if not all(np.isfinite(array).all() for array in ours.values()):
                    return trial.model_copy(update={"failure": "gives numbers that are not finite"})
                length = _length(theirs.values())
                apart = _length(ours[name] - array for name, array in theirs.items())
                difference = max(difference, apart / max(length, SMALLEST))
            cosine = min(cosine, _cosine(self._cpu.gradients, self._fast.gradients))
            for name, gradient in self._cpu.gradients.items():
                self._given[name] -= np.float32(RATE) * gradient
            for name, buffer in self._cpu.buffers.items():
                np.copyto(self._given[name], buffer)
        figures = {"cosine": cosine, "difference": difference, "loss_difference": loss_difference}
        return trial.model_copy(update={"steps": STEPS, **figures})


SUBJECTS: Mapping[str, Callable[[TrialJob, bytes], Subject]] = {"model": ModelSubject, "step": StepSubject}


def _refuse(reason: str) -> None:
    raise NotTaken(reason)


def _length(arrays: Iterable[NDArray[Any]]) -> float:
    return math.sqrt(sum(float(np.vdot(array, array)) for array in arrays))


def _cosine(theirs: Mapping[str, NDArray[Any]], ours: Mapping[str, NDArray[Any]]) -> float:
    product = sum(float(np.vdot(array, ours[name])) for name, array in theirs.items())
    return product / max(_length(theirs.values()) * _length(ours.values()), SMALLEST)


def _compare_answers(
    trial: ProviderTrial, job: TrialJob, cpu: LoadedModel, fast: LoadedModel
) -> ProviderTrial:
    """Compare the answers on held-out examples, or on random inputs where there are none."""
    examples = None if job.examples is None else _read_examples(Path(job.examples), cpu)
    if examples is None or not len(examples[0]):
        sizes = (*PROBES, job.batch)
        probes = [make_noise(cpu, size) for size in sizes]
        pairs = ((cpu.run(inputs), fast.run(inputs)) for inputs in probes)
        return _with_difference(trial, pairs).model_copy(update={"probes": sum(sizes)})
    theirs, ours = (model.answers(*examples) for model in (cpu, fast))
    trial = _with_difference(trial, [(theirs.outputs, ours.outputs)])
    before, after = (cpu.task.measure_answers(answers) for answers in (theirs, ours))
    metric = cpu.task.leading(before)
    lost = metric.worsening(before[metric.name], after[metric.name]) * 100 if before and after else 0.0
    return trial.model_copy(update={"points": round(lost, 6), "examples": len(examples[0])})


def _with_difference(trial: ProviderTrial, pairs: Iterable[tuple[Inputs, Inputs]]) -> ProviderTrial:
    """With the largest difference of the provider's outputs from the CPU's, or what is wrong with them."""
    largest, difference = 0.0, 0.0
    for theirs, ours in pairs:
        if ours.shape != theirs.shape:
            return trial.model_copy(
                update={"failure": f"gives outputs {list(ours.shape)}, the CPU {list(theirs.shape)}"}
            )
        if not np.isfinite(ours).all():
            return trial.model_copy(update={"failure": "gives outputs that are not finite"})
        largest = max(largest, float(np.abs(theirs).max(initial=0)))
        difference = max(difference, float(np.abs(ours - theirs).max(initial=0)))
    relative = difference / largest if largest else difference
    return trial.model_copy(update={"difference": relative})


def _read_examples(path: Path, cpu: LoadedModel) -> tuple[Pixels, Labels]:
    """As many examples as the CPU answers within `ANSWERS_S`."""
    with np.load(path, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    if not len(images):
        return images, labels
    start = time.perf_counter()
    cpu.logits(images[:1])
    count = max(MIN_EXAMPLES, int(ANSWERS_S / max(time.perf_counter() - start, 1e-6)))
    return images[:count], labels[:count]


if __name__ == "__main__":
    sys.exit(answer(TrialJob, try_provider))
