"""SCAFFOLD's server side of the controls (Karimireddy et al. 2020, Algorithm 1, line 17)."""

from __future__ import annotations

import numpy as np

from edge_server.strategy.blocks import in_blocks, rows_like
from edge_server.strategy.deltas import part_of
from edge_server.strategy.groups.rule import Folded, GroupRule
from edge_server.strategy.policies import RoundResult
from edge_server.strategy.updates import group_of, sources_of
from schemas.blobs import Array, Arrays
from schemas.submodel import ChannelMap, SubModelSpec

COUNT = "clients"
"""Where the server keeps, beside c, of how many clients it is the mean."""


class Control(GroupRule):
    """c <- c + sum_i (c_i+ - c_i) / N over the round's clients, of the N that are known.

    c is the mean of every client's c_i, 0 where a client never trained: who lacks a coordinate adds nothing
    to it, and where clients have joined, c is first spread over them too.
    """

    name = "control"

    def start(self, params: Arrays) -> Arrays:
        """Zero everywhere."""
        return {name: np.zeros_like(array) for name, array in params.items()}

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
        """c alone, cut to the sub-model."""
        return super().down({n: array for n, array in held.items() if n != COUNT}, spec, channel_map)

    def fold(self, held: Arrays, result: RoundResult) -> Folded:
        """Add the clients' changes, accumulated in double precision."""
        control = {name: array for name, array in held.items() if name != COUNT}
        changes = [group_of(update, self.name, result.channel_map)[0] for update in result.updates]
        count = _count(result)
        before = float(held[COUNT][0]) if COUNT in held else count

        def rows(name: str, start: int, stop: int) -> Array:
            total = np.zeros_like(rows_like(control[name])[start:stop], np.float64)
            for change in changes:
                if name in change:
                    values, place = part_of(change, name, start, stop).in_runs()
                    total[place.index] += values
            mean = (before * rows_like(control[name])[start:stop] + total) / count
            return mean.astype(np.float32)

        kinds = {name: (array.dtype, array.shape) for name, array in control.items()}
        after = dict(in_blocks(kinds, rows))
        return Folded({**after, COUNT: np.array([count], np.float32)}, result.after)


def _count(result: RoundResult) -> int:
    """N: all clients that are known, those who sent included."""
    names = {client.name for client in result.clients}
    return len(names | {source.client for source in sources_of(result.updates)})
