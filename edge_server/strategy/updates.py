"""One client's update in global coordinates: what aggregation works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge_client.slicing import expand
from schemas.blobs import Arrays, Groups
from schemas.submodel import ChannelMap, SubModelSpec

Coverage = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class ClientUpdate:
    """An update as it came in, in the coordinates of its sub-model; `groups["model"]` is w_k - w."""

    client: str
    spec: SubModelSpec
    groups: Groups
    examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GlobalUpdate:
    """An update in global coordinates, per parameter: its `delta`, and which coordinates the client holds.

    All have the full shape P. `held` are the coordinates that the client trained, `coverage` those that
    count in the mean (a transform may widen it); `delta` is zero, or a transform's value, where not held.
    """

    source: ClientUpdate
    delta: Arrays
    coverage: Coverage
    held: Coverage


def globalised(update: ClientUpdate, channel_map: ChannelMap) -> GlobalUpdate:
    """Put an update back into the coordinates of the full model."""
    delta, coverage = expand(update.groups["model"], update.spec, channel_map)
    return GlobalUpdate(update, delta, coverage, coverage)
