"""IGFL's group behaviour: the global model's last step (Huang et al. 2021, Algorithm 2, line 2)."""

from edge_server.strategy.aggregation.array_stores import store_arrays
from edge_server.strategy.aggregation.blocks import as_rows, lazy_arrays
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, zeros
from edge_server.strategy.selection.interface import RoundResult
from schemas.tensors.arrays import kind_of
from schemas.tensors.blobs import Array, Arrays


class LastStep(GroupRule):
    """Delta w_ps = w^r - w^(r-1), sent down only; 0 before round one."""

    name = "last-step"
    uplink = False

    def start(self, params: Arrays) -> Arrays:
        """Zeros."""
        return zeros(params)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """The round's step replaces the last one."""

        def rows(name: str, start: int, stop: int) -> Array:
            after, before = as_rows(result.after[name]), as_rows(result.before[name])
            return after[start:stop] - before[start:stop]

        kinds = {name: kind_of(result.after, name) for name in result.after}
        return FoldedGroup(store_arrays(lazy_arrays(kinds, rows), result.keep), result.after)
