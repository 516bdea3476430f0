"""MATLAB files as recordings with several signals, as of bearings; needs scipy and h5py (the extra `mat`).

A folder has a sub-folder of files for each class. MATLAB writes version 7.3 as HDF5, which h5py reads.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data import said_once, source_options
from edge_client.data.tables.file_table import LABEL, Recording, RecordingTable
from edge_client.data.tables.jsonl_table import flat
from edge_client.data.tables.table import Table
from schemas.errors import ConfigError

HDF5 = b"\x89HDF\r\n\x1a\n"
NUMBER = re.compile(r"^[Xx]\d+_?")  # what MATLAB makes of a name with a number first: X097_DE_time
Array = NDArray[Any]


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file or folder, and its options; `ConfigError` for labels of files that have none."""
    if LABEL in source_options.names_in(options, "label") and (path.is_file() or any(path.glob("*.mat"))):
        raise ConfigError(
            "the label of a file is its folder", place=path, remedy="make a sub-folder for each class"
        )

    def label(file: Path) -> str:
        """The sub-folder of a file."""
        (folder, *below) = file.relative_to(path).parts if file != path else ("",)
        return folder if below else ""

    table = RecordingTable(path, (".mat",), read_mat, label)
    return table, table.options(options)


def read_mat(path: Path) -> Recording:
    """The signals of a file: its arrays of the greatest length, and single numbers, which stay constant."""
    try:
        with path.open("rb") as file:
            is_hdf5 = HDF5 in file.read(1024)
        values = _read_hdf5(path) if is_hdf5 else _read_matlab(path)
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[mat]'"
        raise ConfigError(f"{path} needs {error.name}, which is not installed", remedy=remedy) from error
    except (OSError, ValueError, TypeError, LookupError, NotImplementedError, zlib.error) as error:
        raise ConfigError(f"{path} is not a MATLAB file, or is broken", quoted=error) from error
    # HDF5 lists names in their order; so do we, whatever the version.
    arrays = {name: np.squeeze(value) for name, value in sorted(values.items()) if value.dtype.kind in "biuf"}
    length = max((max(array.shape) for array in arrays.values() if array.ndim in (1, 2)), default=0)
    signals = dict[str, Array]()
    for whole, array in arrays.items():
        for name, signal in _signals(NUMBER.sub("", whole) or whole, array, length):
            if name in signals:
                raise ConfigError(
                    f"{path} has two signals '{name}', the second in {whole}", remedy="remove one"
                )
            signals[name] = signal
    if not signals:
        raise ConfigError(f"{path} has no arrays of numbers: {', '.join(values) or 'it is empty'}")
    return Recording(signals, {})


def _signals(name: str, array: Array, length: int) -> Iterator[tuple[str, Array]]:
    """The signals of an array: one, or those of the columns of a matrix; none if its length is another."""
    if array.size == 1:
        yield name, np.full(length, array)
    elif array.shape == (length,):
        yield name, array
    elif array.ndim == 2 and length in array.shape:
        columns = array.T if array.shape[0] == length else array
        yield from ((f"{name}.{place}", column) for place, column in enumerate(columns))
    else:
        said_once.say_once(
            f"{name} of {array.shape} is left out: it has not the length of the longest signal, {length}"
        )


def _read_matlab(path: Path) -> dict[str, Array]:
    """The variables of versions 4 to 7.2, and the fields of structures as `structure.field`."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        values = loadmat(path, simplify_cells=True)
    except MatReadError as error:
        raise ValueError(str(error)) from error
    return {name: np.asarray(value) for name, value in flat(values).items() if not name.startswith("__")}


def _read_hdf5(path: Path) -> dict[str, Array]:
    """The same of version 7.3, which has axes in the opposite order, and what it refers to in `#` groups."""
    import h5py

    values = dict[str, Array]()
    with h5py.File(path) as file:

        def take(name: str, item: Any) -> None:
            text = item.attrs.get("MATLAB_class", b"double")
            if isinstance(item, h5py.Dataset) and name[0] != "#" and text != b"char":
                values[name.replace("/", ".")] = np.asarray(item[()]).T

        file.visititems(take)
    return values
