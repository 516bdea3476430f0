"""Tries the providers that onnxruntime offers, each in a process of its own, and records the choice.

Nothing is tried where the CPU alone is there, nor twice in the same circumstances.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edge_client.inference.providers.choice import ProviderChoice, ProviderTrial, choose_provider
from edge_client.inference.providers.record import SERVED_BATCH, cache_folder, keep_choice, recall_choice
from edge_client.inference.providers.table import CPU, Provider, ProviderSettings, circumstances
from edge_client.system import child_process
from edge_client.system.hardware.memory import memory
from edge_client.system.hardware.sysfs import ROOT
from schemas.base import Frozen

# Folders in which providers keep what they build for a model, so that the next start is quick.


MAX_FOLDERS = 8  # the ones used last: two slots, two files beside them, with two providers each


def engines_folder(
    row: Provider, digest: str, *, threads: int | None, runtime: str, root: Path = ROOT
) -> str:
    """The folder for a model, a provider with its options and driver, and a version of onnxruntime.

    Empty if the provider keeps nothing, or if there is no place for it.
    """
    if not row.builds_engines:
        return ""
    kind = (digest, row.runtime_name, sorted(row.options(threads, "").items()), row.driver(root), runtime)
    try:
        folder = cache_folder() / "engines" / hashlib.sha256(repr(kind).encode()).hexdigest()[:32]
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        _remove_oldest(folder.parent)
    except (OSError, RuntimeError) as error:
        log.warning("what %s builds is not kept: %s", row.name, error)
        return ""
    return str(folder)


def _remove_oldest(folder: Path) -> None:
    used = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in used[MAX_FOLDERS:]:
        shutil.rmtree(path, ignore_errors=True)


if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData
    from schemas.tensors.arrays import Arrays

log = logging.getLogger(__name__)

TOTAL_S = 10.0
"""For the trials of all providers of a model; each has an equal share of what is left of it."""
STATED_S = 45.0  # where the user names the providers: an engine may take long; systemd's watchdog waits 60 s
TRIAL = "edge_client.inference.providers.trial_process"
MIN_LIMIT_S = 1.0  # a process imports onnxruntime for about half a second
MAX_EXAMPLES, MAX_BYTES = 64, 32_000_000  # of the held-out examples, which the processes read


class TrialJob(Frozen):
    """What the process of a trial is told: to try a model, or a training step.

    `examples` is an archive: raw `images` and their `labels`, or a step's arrays.
    """

    subject: Literal["model", "step"] = "model"
    provider: str
    model: str
    digest: str
    threads: int | None
    batch: int
    engines: str = ""
    examples: str | None = None
    limit_s: float


@dataclass(frozen=True)
class Use:
    """How a model is run: threads, None for onnxruntime's own number, and examples of a run.

    `examples` are held-out examples with labels as the model numbers them; the answers to some are compared.
    Of a training step they are its arrays and a batch, by name.
    """

    threads: int | None = 1
    batch: int = SERVED_BATCH
    examples: "LabelledData | Arrays | None" = None

    @property
    def subject(self) -> Literal["model", "step"]:
        return "step" if isinstance(self.examples, Mapping) else "model"


def settle_provider(
    model: Path,
    digest: str,
    settings: ProviderSettings,
    use: Use,
    *,
    beside: Path | None = None,
) -> ProviderChoice | None:
    """The recorded choice for the model, or one that is tried now; None where the CPU alone is there.

    The record lies beside the model, or `beside` another path. Raises `ConfigError` for a provider that is
    asked for and not there.
    """
    rows = settings.accelerators()
    if not rows:
        return None
    # Imported here: whoever comes here runs models, but this module is imported for its values, too.
    import onnxruntime

    wanted = ProviderChoice(
        digest=digest,
        threads=use.threads or 0,
        batch=use.batch,
        asked=settings.names,
        circumstances=circumstances(rows, onnxruntime.__version__),
        provider=CPU.name,
        why="not tried",
    )
    recalled = recall_choice(beside or model, wanted)
    if recalled is not None:
        return recalled
    start = time.monotonic()
    trials = _try_all(rows, model, wanted, settings, use)
    name, why, judged = choose_provider(trials, is_stated=settings.is_stated, free_bytes=memory().free)
    log.info("%s runs %s: %s (tried in %.1f s)", name, model.name, why, time.monotonic() - start)
    choice = wanted.model_copy(update={"provider": name, "why": why, "trials": judged})
    keep_choice(beside or model, choice)
    return choice


def _try_all(
    rows: Sequence[Provider], model: Path, wanted: ProviderChoice, settings: ProviderSettings, use: Use
) -> list[ProviderTrial]:
    """A trial of each in the time; of those that the user states, up to the first that is right."""
    deadline = time.monotonic() + (STATED_S if settings.is_stated else TOTAL_S)
    trials: list[ProviderTrial] = []
    with _written(use.examples) as examples:
        for number, row in enumerate(rows):
            limit_s = (deadline - time.monotonic()) / (len(rows) - number)
            runtime = wanted.circumstances["onnxruntime"]
            job = TrialJob(
                subject=use.subject,
                provider=row.name,
                model=str(model.resolve()),
                digest=wanted.digest,
                threads=use.threads,
                batch=use.batch,
                engines=engines_folder(row, wanted.digest, threads=use.threads, runtime=runtime),
                examples=examples,
                limit_s=limit_s,
            )
            trials.append(run_trial(job))
            if settings.is_stated and choose_provider(trials, is_stated=True)[0] != CPU.name:
                break
    return trials


@contextlib.contextmanager
def _written(examples: "LabelledData | Arrays | None") -> Iterator[str | None]:
    """The path of an archive with some of the examples while the block lasts; None without any."""
    if examples is None or not len(examples):
        yield None
        return
    # Imported here: a device's start has no use for arrays.
    import numpy as np

    arrays = examples if isinstance(examples, Mapping) else _sample(examples)
    with tempfile.TemporaryDirectory(prefix="edge-provider-") as folder:
        path = Path(folder) / "examples.npz"
        np.savez(path, **dict[str, Any](arrays))
        yield str(path)


def _sample(examples: "LabelledData") -> "Arrays":
    from edge_client.data.dataset import sample

    fitting = max(1, MAX_BYTES // max(1, examples.images[:1].nbytes))
    chosen = sample(examples, min(MAX_EXAMPLES, fitting))
    return {"images": chosen.images, "labels": chosen.labels}


def run_trial(job: TrialJob) -> ProviderTrial:
    """Run the trial's process and wait for its figures, `limit_s` at most."""
    try:
        if job.limit_s < MIN_LIMIT_S:
            raise child_process.NoAnswer("was not tried: the others have taken the time")
        return child_process.ask(TRIAL, job, ProviderTrial, limit_s=job.limit_s)
    except child_process.NoAnswer as reason:
        return ProviderTrial(provider=job.provider, failure=str(reason)[:500])
