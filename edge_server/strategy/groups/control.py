"""SCAFFOLD's server side of the controls (Karimireddy et al. 2020, Algorithm 1, line 17)."""

import numpy as np

from edge_server.strategy.aggregation.array_stores import store_arrays
from edge_server.strategy.aggregation.blocks import as_rows, lazy_arrays, select_arrays
from edge_server.strategy.aggregation.deltas import delta_rows
from edge_server.strategy.aggregation.updates import group_to_global, sources_of
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, Tiers, zeros
from edge_server.strategy.selection.interface import RoundResult
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import ComputedArrays, rows_of
from schemas.tensors.blobs import Array, Arrays

COUNT = "clients"
"""The server's array for the number of clients that c is the mean of."""


class Control(GroupRule):
    """c <- c + sum_i (c_i+ - c_i) / N over the round's clients, of the N that are known.

    c is the mean of every client's c_i, 0 for a client that never trained: a client adds nothing to
    coordinates that it lacks. If clients have joined, c is first scaled to the new N.
    """

    name = "control"
    spread = 3.0

    def start(self, params: Arrays) -> Arrays:
        """Zeros."""
        return zeros(params)

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap, tiers: Tiers = tuple) -> Arrays:
        """c without its count, cut to the sub-model."""
        return super().down(_control(held), spec, channel_map)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """Add the clients' changes, accumulated in double precision."""
        changes = [group_to_global(update, self.name, result.channel_map)[0] for update in result.updates]
        count = _count(result)
        before = float(held[COUNT][0]) if COUNT in held else count

        def rows(name: str, start: int, stop: int) -> Array:
            control = as_rows(rows_of(held, name, start, stop))
            total = np.zeros_like(control, np.float64)
            for change in changes:
                if name in change:
                    values, place = delta_rows(change, name, start, stop).in_runs()
                    total[place.index] += values
            return ((before * control + total) / count).astype(np.float32)

        control = _control(held)
        after = store_arrays(lazy_arrays({name: control.kind(name) for name in control}, rows), result.keep)
        clients = np.array([count], np.float32)
        after.put(COUNT, (clients.dtype, clients.shape), 0, clients)
        return FoldedGroup(after, result.after)


def _control(held: Arrays) -> ComputedArrays:
    """c without its count."""
    return select_arrays(held, [name for name in held if name != COUNT])


def _count(result: RoundResult) -> int:
    """N: all known clients, and those that sent updates."""
    names = {client.name for client in result.clients}
    return len(names | {source.client for source in sources_of(result.updates)})
