"""The server optimizer's step from the old model to the new one, a few rows at a time.

Steps are element-wise, so besides the two models only one block of the change and of the optimizer's state
is in memory.
"""

from collections.abc import Iterator

import numpy as np

from edge_server.strategy.aggregation.array_stores import ArrayStore, NewArrayStore
from edge_server.strategy.aggregation.blocks import as_rows, row_blocks
from edge_server.strategy.optimizer.optimizers import ServerOptimizer
from schemas.tensors.arrays import rows_of
from schemas.tensors.blobs import Array, Arrays, Groups


def apply_optimizer(
    optimizer: ServerOptimizer, state: Groups, params: Arrays, change: Arrays, *, keep: NewArrayStore
) -> tuple[dict[str, Array], Groups]:
    """The next parameters and the optimizer's next state; the pseudo-gradient is minus the change."""
    after = {name: np.empty_like(array) for name, array in params.items()}
    kept: dict[str, ArrayStore] = {}
    for name, start, stop in _places(params):
        array, made = params[name], rows_of(change, name, start, stop)
        before = {name: as_rows(array)[start:stop]}
        moved, gathered = optimizer.step(_rows(state, name, start, stop), before, {name: -as_rows(made)})
        as_rows(after[name])[start:stop] = moved[name]
        for group, arrays in gathered.items():
            if group not in kept:
                kept[group] = keep()
            for known, rows in arrays.items():
                kept[group].put(known, (rows.dtype, array.shape), start, rows)
    return after, kept


def add_change(params: Arrays, change: Arrays) -> dict[str, Array]:
    """The parameters plus the change."""
    after = {name: np.empty_like(array) for name, array in params.items()}
    for name, start, stop in _places(params):
        made = rows_of(change, name, start, stop)
        rows = as_rows(params[name])[start:stop]
        np.add(rows, as_rows(made), out=as_rows(after[name])[start:stop])
    return after


def clamp_variances(params: Arrays) -> dict[str, Array]:
    """The parameters with running variances of at least 0, which noise or late updates may push below."""
    return {
        name: np.maximum(array, 0) if name.rpartition(".")[2] == "running_var" else array
        for name, array in params.items()
    }


def _places(params: Arrays) -> Iterator[tuple[str, int, int]]:
    """The blocks (name, start, stop) of all parameters."""
    return ((name, start, stop) for name in params for start, stop in row_blocks(params[name].shape))


def _rows(state: Groups, name: str, start: int, stop: int) -> Groups:
    """The state's rows of one parameter; a group without it stays empty."""
    return {
        group: {name: as_rows(rows_of(arrays, name, start, stop))} if name in arrays else {}
        for group, arrays in state.items()
    }
