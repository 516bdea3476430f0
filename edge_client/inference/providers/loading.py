"""Loads models, and opens training steps, on the provider that a trial has chosen, with the CPU beside it."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.inference.onnx_model import LoadedModel, load_model, reason_of
from edge_client.inference.providers import record, session, table
from edge_client.inference.providers.choice import ProviderChoice
from edge_client.inference.providers.trial import Use, engines_folder, settle_provider
from edge_client.security.trusted_key import TrustedKey
from edge_client.training.step_graphs import names
from schemas.errors import ConfigError
from schemas.tensors.arrays import Arrays

if TYPE_CHECKING:
    from edge_client.training.step_graphs.running.arena import StepPlace

log = logging.getLogger(__name__)


def load_on_provider(
    path: Path,
    providers: table.ProviderSettings,
    *,
    threads: int | None = None,
    batch: int = record.SERVED_BATCH,
    trust: TrustedKey | None = None,
    exported_by: str | None = None,
    data: bytes | None = None,
) -> LoadedModel:
    """Load a model on the fastest provider that is right, as `load_model` does on the CPU.

    Where the CPU alone is there, this is `load_model`. A provider that cannot open the model any more leaves
    it to the CPU. Raises `ConfigError` for a provider that is asked for and not there.
    """
    rows = providers.accelerators()
    if not rows:
        return load_model(path, threads=threads, trust=trust, exported_by=exported_by, data=data)
    if data is None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    model = load_model(path, threads=threads, trust=trust, exported_by=exported_by, data=data)
    choice = settle_provider(path, hashlib.sha256(data).hexdigest(), providers, Use(threads, batch))
    row = _row_of(choice, rows)
    return model if choice is None or row is None else _on(row, choice, model, data, threads)


def _row_of(choice: ProviderChoice | None, rows: Sequence[table.Provider]) -> table.Provider | None:
    """The provider that is chosen; None for the CPU."""
    return next((row for row in rows if choice is not None and row.name == choice.provider), None)


def _on(
    row: table.Provider, choice: ProviderChoice, model: LoadedModel, data: bytes, threads: int | None
) -> LoadedModel:
    """The model on the chosen provider; on the CPU if that cannot open it now."""
    runtime = choice.circumstances["onnxruntime"]

    def on_failure(reason: str) -> None:
        record.keep_choice(model.path, choice.with_failure(reason))

    try:
        engines = engines_folder(row, choice.digest, threads=threads, runtime=runtime)
        fast: Any = session.open_session(data, threads=threads, row=row, engines=engines)
    except Exception as error:  # a provider's are of any kind
        log.warning("%s runs %s on the CPU: %s", row.name, model.path.name, reason_of(error))
        on_failure(reason_of(error))
        return model
    guarded = session.GuardedSession(
        row.name, fast, model.session, deadline_s=choice.deadline_s, on_failure=on_failure
    )
    return replace(model, session=guarded)


GIVEN, BATCH = "given:", "batch:"  # prefixes of a step's arrays and of a batch's in the archive of a trial


@dataclass(frozen=True)
class StepProviders:
    """Chooses what runs a step graph among the providers of `settings`; choices are recorded in `folder`."""

    settings: table.ProviderSettings
    folder: Path
    threads: int | None = None

    def __call__(self, graph: Path, given: Arrays, batch: Arrays) -> "StepPlace":
        """What runs the step graph in a file with these arrays, in steps of such a batch."""
        from edge_client.training.step_graphs.running.arena import PROCESSOR

        rows = self.settings.accelerators()
        if not rows:
            return PROCESSOR
        digest = hashlib.sha256(graph.read_bytes()).hexdigest()
        arrays = {GIVEN + name: array for name, array in given.items()}
        arrays |= {BATCH + name: array for name, array in batch.items()}
        use, kept = Use(self.threads, len(batch[names.INPUTS]), arrays), self.folder / digest
        choice = settle_provider(graph, digest, self.settings, use, beside=kept)
        row = _row_of(choice, rows)
        if choice is None or row is None:
            return PROCESSOR

        def on_failure(reason: str) -> None:
            record.keep_choice(kept, choice.with_failure(reason))

        runtime = choice.circumstances["onnxruntime"]
        engines = engines_folder(row, digest, threads=self.threads, runtime=runtime)
        return step_place(row, use.batch, threads=self.threads, engines=engines, on_failure=on_failure)


def step_place(
    row: table.Provider, batch: int, *, threads: int | None, engines: str, on_failure: Callable[[str], None]
) -> "StepPlace":
    """A provider that runs step graphs on batches of that many examples."""
    from edge_client.training.step_graphs.running.arena import StepPlace

    opened = partial(session.open_on, row, threads=threads, engines=engines)
    return StepPlace(row.name, opened, on_failure, batch)


def split_prefix(arrays: Arrays, prefix: str) -> dict[str, Any]:
    """The arrays whose names have the prefix, without it."""
    return {n.removeprefix(prefix): array for n, array in arrays.items() if n.startswith(prefix)}
