"""A device's private state between rounds, such as SCAFFOLD's control variate, and files of plain values.

A round's state is proposed after training and committed when the server has counted the update, so both sides
refer to the same rounds. Arrays named after a parameter are stored in global coordinates, because the next
round may have another sub-model.

Plain values are mappings, lists, tuples, numbers, strings, None and arrays, nested to any depth: arrays are
safetensors tensors of the file, the rest is JSON in its header. Nothing is unpickled.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from edge_client.storage.atomic_files import put_in_place, write_synced, written_aside
from edge_client.storage.file_recycling import Spares, opened_over
from schemas.errors import EdgeError, InvariantError
from schemas.tensors.arrays import AnyArray, GatheredArrays, LazyArrays
from schemas.tensors.files import tensor_file_blocks

Places = dict[str, tuple[Mapping[str, AnyArray], str]]  # the mapping and the name of each tensor
# The single key of a JSON object that stands for an array (its tensor's name) or a tuple (its items).
_ARRAY, _TUPLE = "array", "tuple"


class NotPlainFile(EdgeError):
    """The file is missing, or this program has not written it."""


def write_plain(
    path: Path, values: Mapping[str, Any], *, durable: bool = True, spares: Spares | None = None
) -> None:
    """Write named values to `path` atomically, over one of `spares` if there are any.

    Raises `InvariantError` for values that are not plain.
    """
    places: Places = {}
    tree = {name: _plain(value, name, places) for name, value in values.items()}
    arrays = GatheredArrays(places)
    with written_aside(path, durable=durable, opened=opened_over(spares, arrays)) as file:
        file.writelines(tensor_file_blocks(arrays, {"state": json.dumps(tree)}))


def read_plain(path: Path) -> dict[str, Any]:
    """Read the values back, bit for bit; `NotPlainFile` for any other file."""
    try:
        with safe_open(path, framework="numpy") as file:
            tree = json.loads((file.metadata() or {})["state"])
            return {name: _restore_value(value, file) for name, value in tree.items()}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotPlainFile(f"{path}: {error!r}") from error


def _plain(value: Any, where: str, places: Places) -> Any:
    """The value with its arrays moved to names that start with `where`; lazy arrays stay lazy."""
    if isinstance(value, LazyArrays):
        places |= {f"{where}/{name}": (value, name) for name in value}
        return {"map": [[name, {_ARRAY: f"{where}/{name}"}] for name in value]}
    if isinstance(value, np.ndarray):
        places[where] = ({where: value}, where)
        return {_ARRAY: where}
    if isinstance(value, Mapping):
        return {"map": [[key, _plain(item, f"{where}/{key}", places)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item, f"{where}/{index}", places) for index, item in enumerate(value)]}
    if isinstance(value, list):
        return [_plain(item, f"{where}/{index}", places) for index, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvariantError(f"the state holds a {type(value).__name__} at '{where}', which cannot be kept")


def _restore_value(value: Any, file: Any) -> Any:
    if isinstance(value, list):
        return [_restore_value(item, file) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return file.get_tensor(value[_ARRAY])
    if _TUPLE in value:
        return tuple(_restore_value(item, file) for item in value[_TUPLE])
    return {key: _restore_value(item, file) for key, item in value["map"]}


log = logging.getLogger(__name__)


def note_session(path: Path, number: int) -> None:
    """Store the number of this connection; if that fails, the clock provides the next one."""
    try:
        write_synced(path, str(number).encode())
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


if TYPE_CHECKING:
    from schemas.tensors.arrays import Groups

KEPT_ROUNDS = 2  # a round may be planned again after it was counted, and then starts from the one before


class PrivateState:
    """One folder per run with one file per counted round; a new run removes the others."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._folder, self._durable = folder, durable

    def load_groups(self, run: str, round_number: int) -> "Groups":
        """The groups of the last counted round before `round_number`; empty at the start.

        Arrays are read on access, which must happen before the next commit.
        """
        from schemas.tensors.files import FileGroups

        kept = self.find_file(run, round_number)
        return FileGroups(kept) if kept else {}

    def find_file(self, run: str, round_number: int) -> Path | None:
        earlier = [number for number in self._rounds(run) if number < round_number]
        return self._file(run, earlier[-1]) if earlier else None

    def propose(self, run: str, round_number: int, attempt: int, groups: "Groups") -> None:
        """Store the state that this attempt would leave; without groups nothing is stored."""
        from schemas.tensors.files import FlatGroups, tensor_file_blocks

        if groups:
            path = self._proposal(run, round_number, attempt)
            with written_aside(path, durable=self._durable) as file:
                file.writelines(tensor_file_blocks(FlatGroups(groups)))

    def propose_more(self, run: str, round_number: int, attempt: int, groups: "Groups") -> None:
        """Add groups to those that this attempt has proposed."""
        from schemas.tensors.files import FileGroups

        path = self._proposal(run, round_number, attempt)
        proposed = FileGroups(path) if path.exists() else {}
        self.propose(run, round_number, attempt, {**proposed, **groups})

    def commit(self, run: str, round_number: int, attempt: int) -> None:
        """The server has counted this attempt: keep its proposal, if there is one."""
        proposal = self._proposal(run, round_number, attempt)
        if proposal.exists():
            put_in_place(proposal, self._file(run, round_number), durable=self._durable)
            self._forget(run)

    def discard(self, run: str, round_number: int, attempt: int) -> None:
        """The update was refused: drop the proposal."""
        self._proposal(run, round_number, attempt).unlink(missing_ok=True)

    def _forget(self, run: str) -> None:
        counted = self._rounds(run)
        for old in counted[:-KEPT_ROUNDS]:
            self._file(run, old).unlink()
        # What was proposed for rounds up to this one, and never answered, is not going to count.
        for proposal in (self._folder / run).glob("*.proposed"):
            if int(proposal.stem.partition("-")[0]) <= counted[-1]:
                proposal.unlink()
        for other in self._folder.iterdir():
            if other.name != run:
                for path in other.iterdir():
                    path.unlink()
                other.rmdir()

    def _rounds(self, run: str) -> list[int]:
        return sorted(int(path.stem) for path in (self._folder / run).glob("*.safetensors"))

    def _file(self, run: str, round_number: int) -> Path:
        return self._folder / run / f"{round_number}.safetensors"

    def _proposal(self, run: str, round_number: int, attempt: int) -> Path:
        return self._folder / run / f"{round_number}-{attempt}.proposed"
