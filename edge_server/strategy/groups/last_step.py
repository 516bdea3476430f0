"""IGFL's group behaviour: the global model's last step (Huang et al. 2021, Algorithm 2, line 2)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from edge_server.strategy.aggregation.array_stores import store_arrays
from edge_server.strategy.aggregation.blocks import as_rows, lazy_arrays, select_arrays
from edge_server.strategy.aggregation.deltas import as_deltas
from edge_server.strategy.aggregation.means import mean_over_holders
from edge_server.strategy.aggregation.updates import GlobalUpdate, sources_of, to_global
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, zeros
from edge_server.strategy.selection.interface import RoundResult
from schemas.tensors.arrays import kind_of
from schemas.tensors.blobs import Array, Arrays


class LastStep(GroupRule):
    """Delta w_ps = w^r - w^(r-1), sent down only; 0 before round one.

    In a round that reorders channels (ATTENDING's first) that difference is mostly the reordering. Then it
    is instead the weighted mean of the clients' own steps, in the new order, over their holders.
    """

    name = "last-step"
    uplink = False

    def start(self, params: Arrays) -> Arrays:
        """Zeros."""
        return zeros(params)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """The round's step replaces the last one."""
        if _reordered(result):
            return FoldedGroup(store_arrays(_own_steps(result), result.keep), result.after)

        def rows(name: str, start: int, stop: int) -> Array:
            after, before = as_rows(result.after[name]), as_rows(result.before[name])
            return after[start:stop] - before[start:stop]

        kinds = {name: kind_of(result.after, name) for name in result.after}
        return FoldedGroup(store_arrays(lazy_arrays(kinds, rows), result.keep), result.after)


def _reordered(result: RoundResult) -> bool:
    """Whether a client's channels were moved; only updates with attention scores are worth computing."""
    scored = any(source.groups.get("attention") for source in sources_of(result.updates))
    return scored and any(update.order for update in result.updates)


def _own_steps(result: RoundResult) -> Arrays:
    """Means over the holders, 0 where there is no holder, of the shapes P."""
    weights = np.array([result.weights[source.client] for source in sources_of(result.updates)])
    means = mean_over_holders(_as_sent(result), weights)
    return select_arrays(means, result.after)


def _as_sent(result: RoundResult) -> Iterator[GlobalUpdate]:
    """The updates with the values that clients sent, in the new order of channels."""
    for update in result.updates:
        sent = to_global(update.source, result.channel_map)
        delta = as_deltas(sent.delta, result.channel_map).moved(update.order)
        yield replace(update, delta=delta, coverage=sent.coverage.moved(update.order))
