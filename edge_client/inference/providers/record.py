"""`MODEL.onnx.providers.json` beside a model: the choices of its provider, the newest last.

A choice holds for the model's digest, a use and its circumstances: a record of an earlier file, driver or
onnxruntime means nothing. Where the folder cannot be written the record lies below `$XDG_CACHE_HOME`.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from edge_client.inference.providers.choice import ProviderChoice
from edge_client.storage.atomic_files import write_synced
from schemas.base import Frozen

log = logging.getLogger(__name__)

SERVED_BATCH = 1  # examples of a request
MAX_CHOICES = 8  # of a file: uses with other threads or batches


class Record(Frozen):
    """The file's content."""

    choices: tuple[ProviderChoice, ...] = ()


def record_path(model: Path) -> Path:
    """The record beside the model; of a link, beside the file that it leads to."""
    path = model.resolve()
    return path.with_name(f"{path.name}.providers.json")


def read_choices(model: Path, digest: str) -> tuple[ProviderChoice, ...]:
    """The choices for the file with that digest, the newest last."""
    for path in _places(model, digest):
        try:
            choices = Record.model_validate_json(path.read_bytes()).choices
        except (OSError, ValidationError):
            continue
        if own := tuple(choice for choice in choices if choice.digest == digest):
            return own
    return ()


def recall_choice(model: Path, wanted: ProviderChoice) -> ProviderChoice | None:
    """The recorded choice for the same file, use and circumstances."""
    fitting = [choice for choice in read_choices(model, wanted.digest) if choice.is_for(wanted)]
    return fitting[-1] if fitting else None


def keep_choice(model: Path, choice: ProviderChoice) -> None:
    """Record the choice in place of an earlier one of the same use; a failure is logged."""
    use = (choice.threads, choice.batch, choice.asked)
    earlier = read_choices(model, choice.digest)
    others = [old for old in earlier if (old.threads, old.batch, old.asked) != use]
    record = Record(choices=(*others, choice)[-MAX_CHOICES:]).model_dump_json(indent=1).encode()
    reason: OSError | RuntimeError | None = None
    for path in _places(model, choice.digest):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_synced(path, record)
            return
        except (OSError, RuntimeError) as error:
            reason = error
    log.warning("the choice of a provider is not kept: %s", reason)


def carry_record(source: Path, target: Path) -> None:
    """Put the record of a model beside its copy; without one there is nothing to carry."""
    try:
        write_synced(record_path(target), record_path(source).read_bytes())
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("the choice of a provider is not kept: %s", error)


def choice_in_use(model: Path, digest: str) -> ProviderChoice | None:
    """The newest choice for serving; None where none was made, because the CPU alone is there."""
    choices = [choice for choice in read_choices(model, digest) if choice.batch == SERVED_BATCH]
    return choices[-1] if choices else None


def _places(model: Path, digest: str) -> Iterator[Path]:
    yield record_path(model)
    try:
        yield cache_folder() / "choices" / f"{digest}.json"
    except RuntimeError:
        return


def cache_folder() -> Path:
    """`edge-federation/providers` below `$XDG_CACHE_HOME`; raises `RuntimeError` without a home directory."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(f"{base}/edge-federation/providers").expanduser()
