"""The rule of one parameter group beside the model (DESIGN.md section 3).

SCAFFOLD's control, IGFL's last step, FedMix's averaged data, FedGH's prototypes: each is a group with a rule
of its own for what every device receives, what it may send back, and what the server makes of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from edge_client.pruning.lazy_slicing import Excerpt
from edge_server.strategy.aggregation.blocks import lazy_arrays
from edge_server.strategy.selection.policies import RoundResult
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import kind_of
from schemas.tensors.blobs import Arrays
from schemas.values import ModelSpec

Shape = tuple[int | None, ...]
"""Of an array that a device may send; None is any number from 1 to `MAX_ROWS`."""
MAX_ROWS = 64


def zeros(params: Arrays) -> Arrays:
    """0 for every number of the model."""
    kinds = {name: kind_of(params, name) for name in params}
    return lazy_arrays(
        kinds, lambda name, start, stop: np.zeros((stop - start, *kinds[name][1][1:]), kinds[name][0])
    )


@dataclass(frozen=True, eq=False)
class FoldedGroup:
    """What the server holds of the group after a round, and the global model (unchanged by most rules)."""

    held: Arrays
    params: Arrays


class GroupRule(Protocol):
    """One group: `held` is what the server has of it, in global coordinates; {} before there is anything.

    `name` is the group's; `downlink` and `uplink` say whether devices receive and send it. Of what they send
    `bounded` are the arrays that bear no parameter's name and are held to the others' norms all the same;
    honest norms spread `spread` times as wide as those of trained weights.
    """

    name: ClassVar[str]
    downlink: ClassVar[bool] = True
    uplink: ClassVar[bool] = True
    bounded: ClassVar[frozenset[str]] = frozenset()
    spread: ClassVar[float] = 1.0

    def start(self, params: Arrays) -> Arrays:
        """What the server holds before round one."""
        return {}

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
        """What a device with this sub-model receives: arrays that bear a parameter's name are cut like it."""
        return Excerpt(held, spec, channel_map)

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        """The arrays that a device sends, by its sub-model's parameter shapes; by default just those."""
        return model

    def check(self, sent: Arrays, examples: int) -> None:
        """Raise `PeerError` for arrays that no device can have measured on so many examples.

        Their shapes are right, and all numbers finite.
        """
        return

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """Take the round's updates in; the result's `after` is the new model as it stands."""
        return FoldedGroup(held, result.after)
