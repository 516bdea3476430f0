"""Try one provider: `python -m edge_client.inference.providers.trial_process`.

A `TrialJob` is the question, a `ProviderTrial` the answer. A provider that crashes takes this process alone.
"""

import hashlib
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from edge_client.data.dataset import Inputs, Labels, Pixels
from edge_client.inference.benchmark import make_noise, time_runs
from edge_client.inference.onnx_model import LoadedModel, load_model, reason_of
from edge_client.inference.providers.choice import ProviderTrial
from edge_client.inference.providers.session import open_session
from edge_client.inference.providers.table import PROVIDERS
from edge_client.inference.providers.trial import TrialJob
from edge_client.system.child_process import answer
from edge_client.system.process_memory import resident_bytes

SECONDS = 0.5  # for timing the CPU and the provider, in turns
MIN_RUNS, MAX_RUNS = 3, 400
FASTEST = 10  # per cent of the runs: other work on the board delays many, and most those with more threads
ANSWERS_S = 1.0  # for the CPU's answers on held-out examples, of which there are at least
MIN_EXAMPLES = 8
PROBES = (1, 2, 7)  # random inputs of a batch, as an export is tried with; and one of the device's batch


def try_provider(job: TrialJob) -> ProviderTrial:
    """The trial's figures; what goes wrong with the provider is a failure, not an error."""
    row, data = PROVIDERS[job.provider], Path(job.model).read_bytes()
    if hashlib.sha256(data).hexdigest() != job.digest:
        return ProviderTrial(provider=row.name, failure="was not tried: the file has changed since")
    cpu = load_model(Path(job.model), threads=job.threads, data=data)
    inputs, before, start = make_noise(cpu, job.batch), resident_bytes(), time.perf_counter()
    try:
        session = open_session(data, threads=job.threads, row=row, engines=job.engines)
        loaded = time.perf_counter()
        fast = replace(cpu, session=session)
        fast.run(inputs)
        warm, memory = time.perf_counter(), resident_bytes() - before
        trial = ProviderTrial(
            provider=row.name,
            load_s=loaded - start,
            warm_up_ms=(warm - loaded) * 1e3,
            memory_bytes=max(0, memory),
        )
        trial = _compare(trial, job, cpu, fast)
        if trial.failure:
            return trial
        runs = [partial(model.run, inputs) for model in (cpu, fast)]
        taken = time_runs(runs, SECONDS, least=MIN_RUNS, most=MAX_RUNS)
        cpu_ms, ms = (float(np.percentile(times, FASTEST)) * 1e3 for times in taken)
    except Exception as error:  # a provider's are of any kind
        return ProviderTrial(provider=row.name, failure=f"cannot run it: {reason_of(error)}")
    return trial.model_copy(update={"cpu_ms": cpu_ms, "ms": ms})


def _compare(trial: ProviderTrial, job: TrialJob, cpu: LoadedModel, fast: LoadedModel) -> ProviderTrial:
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
