"""The state of a run in one file, except for the model, which has a file of its own.

Components keep plain values only (mappings, lists, numbers, strings, arrays), so any strategy's state can be
saved. The file lists the model's parameters by name, in the state's order.
"""

from dataclasses import fields, replace
from pathlib import Path

from edge_client.storage.file_recycling import Spares
from edge_client.storage.state_file import NotPlainFile, read_plain, write_plain
from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore, store_arrays
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError, PeerError
from schemas.tensors.blobs import FileGroups, FlatGroups, Groups
from schemas.tensors.files import digest_of_tensors

_MODEL = "params"


def save_checkpoint(path: Path, state: State, *, durable: bool = True, spares: Spares | None = None) -> None:
    """Write the state at `path` atomically; raises `InvariantError` for values that are not plain."""
    values = {field.name: getattr(state, field.name) for field in fields(State)}
    write_plain(path, {**values, _MODEL: list(state.params)}, durable=durable, spares=spares)


def load_checkpoint(path: Path, model: Groups, *, keep: NewArrayStore = MemoryArrays) -> State:
    """Read a state back bit for bit, with the parameters of `model`; `keep` as in `close`.

    Raises `ConfigError` for a file that is no checkpoint, and for a model that does not belong to it.
    """
    try:
        values = read_plain(path)
        state = State(**{**values, _MODEL: {name: model["model"][name] for name in values[_MODEL]}})
        optimizer = _store_groups(state.server_optimizer, keep)
        return replace(state, groups=_store_groups(state.groups, keep), server_optimizer=optimizer)
    except (NotPlainFile, TypeError) as error:
        raise ConfigError(f"{path} is not a checkpoint of this program: {error}") from error
    except (OSError, PeerError, KeyError) as error:
        raise ConfigError(f"{path}: its model cannot be read: {error}") from error


def load_state(
    checkpoint: Path, model: Path, sha256: str | None = None, *, keep: NewArrayStore = MemoryArrays
) -> State:
    """The state of a checkpoint with the model from the file `model`; `keep` as in `close`.

    Raises `ConfigError` if a file is missing or damaged, or the model's digest is not `sha256`.
    """
    state = load_checkpoint(checkpoint, FileGroups(model), keep=keep)
    if sha256 not in (None, digest_of_tensors(FlatGroups({"model": state.params}))):
        raise ConfigError(f"{model} is not the model that round {state.round} ended with: put that back")
    return state


def _store_groups(groups: Groups, keep: NewArrayStore) -> Groups:
    return {name: store_arrays(arrays, keep) for name, arrays in groups.items()}
