"""Plain values in one file: arrays as safetensors tensors, the rest as JSON in the file's header.

Plain values are mappings, lists, tuples, numbers, strings, None and arrays, nested to any depth. Nothing is
unpickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from edge_client.storage.atomic_files import written_aside
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
