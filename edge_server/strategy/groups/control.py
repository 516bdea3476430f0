"""SCAFFOLD's server side of the controls (Karimireddy et al. 2020, Algorithm 1, line 17)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.groups.rule import Folded, GroupRule
from edge_server.strategy.policies import RoundResult
from edge_server.strategy.updates import group_of, sources_of
from schemas.blobs import Arrays
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
        total: dict[str, NDArray[np.float64]] = {
            name: np.zeros(array.shape) for name, array in control.items()
        }
        for update in result.updates:
            changes, _ = group_of(update, self.name, result.channel_map)
            for name, change in changes.items():
                total[name] += change
        count = _count(result)
        before = float(held[COUNT][0]) if COUNT in held else count
        after = {n: ((before * array + total[n]) / count).astype(np.float32) for n, array in control.items()}
        return Folded({**after, COUNT: np.array([count], np.float32)}, result.after)


def _count(result: RoundResult) -> int:
    """N: all clients that are known, those who sent included."""
    names = {client.name for client in result.clients}
    return len(names | {source.client for source in sources_of(result.updates)})
