"""What runs a device's step graphs: the provider that a trial has chosen, as for models, or the processor."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edge_client.inference.providers import record, trial
from edge_client.inference.providers.session import open_on
from edge_client.inference.providers.table import Provider, ProviderSettings
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.arena import PROCESSOR, StepPlace
from schemas.tensors.arrays import Arrays

GIVEN, BATCH = "given:", "batch:"  # prefixes of arrays and of a batch's inputs in the archive of a trial


@dataclass(frozen=True)
class StepProviders:
    """Chooses among the providers of `settings`; what is chosen for a graph is recorded in `folder`."""

    settings: ProviderSettings
    folder: Path
    threads: int | None = None

    def __call__(self, graph: Path, given: Arrays, batch: Arrays) -> StepPlace:
        """What runs the step graph in a file with these arrays, in steps of such a batch."""
        rows = self.settings.accelerators()
        if not rows:
            return PROCESSOR
        digest = hashlib.sha256(graph.read_bytes()).hexdigest()
        arrays = {GIVEN + name: array for name, array in given.items()}
        arrays |= {BATCH + name: array for name, array in batch.items()}
        use = trial.Use(self.threads, len(batch[names.INPUTS]), arrays)
        kept = self.folder / digest
        choice = trial.settle_provider(graph, digest, self.settings, use, beside=kept)
        row = next((row for row in rows if choice is not None and row.name == choice.provider), None)
        if choice is None or row is None:
            return PROCESSOR

        def on_failure(reason: str) -> None:
            record.keep_choice(kept, choice.with_failure(reason))

        runtime = choice.circumstances["onnxruntime"]
        engines = trial.engines_folder(row, digest, threads=self.threads, runtime=runtime)
        return step_place(row, use.batch, threads=self.threads, engines=engines, on_failure=on_failure)


def step_place(
    row: Provider, batch: int, *, threads: int | None, engines: str, on_failure: Callable[[str], None]
) -> StepPlace:
    """A provider that runs step graphs on batches of that many examples."""
    return StepPlace(row.name, partial(open_on, row, threads=threads, engines=engines), on_failure, batch)


def split_prefix(arrays: Arrays, prefix: str) -> dict[str, Any]:
    """The arrays whose names have the prefix, without it."""
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
