"""Loads a model on the provider that its trial has chosen, with the CPU beside it."""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_client.inference.onnx_model import LoadedModel, load_model, reason_of
from edge_client.inference.providers import record, session, table
from edge_client.inference.providers.choice import ProviderChoice
from edge_client.inference.providers.trial import Use, engines_folder, settle_provider
from edge_client.security.trusted_key import TrustedKey
from schemas.errors import ConfigError

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
    row = next((row for row in rows if choice is not None and row.name == choice.provider), None)
    return model if choice is None or row is None else _on(row, choice, model, data, threads)


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
