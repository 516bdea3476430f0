"""The state of a run as one file.

Whatever pieces keep is plain (mappings, lists, numbers, texts, arrays), so any strategy's state survives.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from edge_client.plain_file import NotPlainFile, read_plain, write_plain
from edge_client.spares import Spares
from edge_server.strategy.keeping import InMemory, Keep, kept
from edge_server.strategy.strategy import State
from schemas.blobs import Groups
from schemas.errors import ConfigError


def save_checkpoint(path: Path, state: State, *, durable: bool = True, spares: Spares | None = None) -> None:
    """Write the state at `path`, all at once; `InvariantError` for a state that is not plain."""
    values = {field.name: getattr(state, field.name) for field in fields(State)}
    write_plain(path, values, durable=durable, spares=spares)


def load_checkpoint(path: Path, *, keep: Keep = InMemory) -> State:
    """Read a state back, equal to the bit; `ConfigError` for a file that is none. `keep` as in `close`."""
    try:
        state = State(**read_plain(path))
        return replace(
            state,
            groups=_kept(state.groups, keep),
            server_optimizer=_kept(state.server_optimizer, keep),
        )
    except (NotPlainFile, TypeError) as error:
        raise ConfigError(f"{path} is no checkpoint of this program: {error}") from error


def _kept(groups: Groups, keep: Keep) -> Groups:
    return {name: kept(arrays, keep) for name, arrays in groups.items()}
