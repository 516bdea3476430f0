"""SCAFFOLD's server side of the controls (Karimireddy et al. 2020, Algorithm 1, line 17)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.groups.rule import Folded, GroupRule
from edge_server.strategy.policies import RoundResult
from edge_server.strategy.updates import group_of, sources_of
from schemas.blobs import Arrays


class Control(GroupRule):
    """c <- c + sum_i (c_i+ - c_i) / N over the round's clients, of the N that it could choose from.

    Unlike sub-models: who lacks a coordinate adds nothing to it, and N stays the number of all, so that c is
    the mean of every client's c_i, 0 where a client never trained.
    """

    name = "control"

    def start(self, params: Arrays) -> Arrays:
        """Zero everywhere."""
        return {name: np.zeros_like(array) for name, array in params.items()}

    def fold(self, held: Arrays, result: RoundResult) -> Folded:
        """Add the clients' changes, accumulated in double precision."""
        total: dict[str, NDArray[np.float64]] = {name: np.zeros(array.shape) for name, array in held.items()}
        for update in result.updates:
            changes, _ = group_of(update, self.name, result.channel_map)
            for name, change in changes.items():
                total[name] += change
        count = _count(result)
        after = {name: (array + total[name] / count).astype(np.float32) for name, array in held.items()}
        return Folded(after, result.after)


def _count(result: RoundResult) -> int:
    """N: all clients that are known, those who sent included."""
    names = {client.name for client in result.clients}
    return len(names | {source.client for source in sources_of(result.updates)})
