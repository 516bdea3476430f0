"""The state of a run as one file.

Whatever pieces keep is plain (mappings, lists, numbers, texts, arrays), so any strategy's state survives.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from edge_client.plain_file import NotPlainFile, read_plain, write_plain
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError


def save_checkpoint(path: Path, state: State, *, durable: bool = True) -> None:
    """Write the state at `path`, all at once; `InvariantError` for a state that is not plain."""
    write_plain(path, {field.name: getattr(state, field.name) for field in fields(State)}, durable=durable)


def load_checkpoint(path: Path) -> State:
    """Read a state back, equal to the bit; `ConfigError` for a file that is none."""
    try:
        return State(**read_plain(path))
    except (NotPlainFile, TypeError) as error:
        raise ConfigError(f"{path} is no checkpoint of this program: {error}") from error
