"""The intersection of a round's sub-models, which all devices share (Hermes; Li et al. 2021, MobiCom)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from edge_server.strategy.aggregation.means import overlap
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule
from edge_server.strategy.selection.interface import RoundResult
from schemas.tensors.blobs import Arrays


class Overlap(GroupRule):
    """Downlink only: masks named after the parameters, true where every update of the last round counts.

    The same intersection that the combiner `overlap-mean` averages, after transforms: with
    `fill-with-global` everything is shared. Nothing is sent before round one is closed.
    """

    name: ClassVar[str] = "overlap"
    uplink: ClassVar[bool] = False

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        masks: Mapping[str, Any] = dict(overlap(result.updates))
        return FoldedGroup(masks, result.after)
