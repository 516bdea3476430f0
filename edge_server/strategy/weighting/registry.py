"""Weightings: how much each client's update counts; K clients give K weights that sum to one.

A weighting may learn from round to round, like a policy: `weigh(state, updates) -> [K]` and
`observe(state, result) -> state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edge_server.strategy.aggregation.updates import GlobalUpdate, sources_of
from edge_server.strategy.weighting.fedrad import FedRad
from edge_server.strategy.weighting.igfl import IgflGlobal, IgflSelf, IgflTime
from edge_server.strategy.weighting.interface import WeighedUpdates, Weighting, Weights

__all__ = ["WEIGHTINGS", "WeighedUpdates", "Weighting", "Weights"]


class Examples(Weighting):
    """By number of local examples, |D_k| / |D| (McMahan et al. 2017; ATTENDING, Algorithm 2 line 8)."""

    def weigh(self, state: Any, updates: Sequence[GlobalUpdate]) -> Weights:
        """Weights [K]; equal ones when no client has any example."""
        counts = np.array([source.examples for source in sources_of(updates)], dtype=np.float64)
        if counts.sum() == 0:
            counts = np.ones_like(counts)
        shares: Weights = counts / counts.sum()
        return shares


class Equal(Weighting):
    """All alike, 1 / K (SCAFFOLD, Karimireddy et al. 2020, Algorithm 1, line 16; IGFL, eq. 5).

    Whoever has no example has nothing to say, where anyone has some: its zero would shorten the step.
    """

    def weigh(self, state: Any, updates: Sequence[GlobalUpdate]) -> Weights:
        """Weights [K]."""
        heard = np.array([source.examples > 0 for source in sources_of(updates)], dtype=np.float64)
        if not heard.any():
            heard[:] = 1
        shares: Weights = heard / heard.sum()
        return shares


WEIGHTINGS: dict[str, Callable[..., Weighting]] = {
    "equal": Equal,
    "examples": Examples,
    "fedrad": FedRad,
    "igfl-self": IgflSelf,
    "igfl-global": IgflGlobal,
    "igfl-time": IgflTime,
}
_SHARE = "a device may count max-examples-factor times as much as the usual one"
_LIKENESS = "the larger an update is, within bounds, the more it counts"
TRUSTS = {
    "examples": _SHARE,
    "fedrad": _SHARE,
    "igfl-self": _LIKENESS,
    "igfl-global": _LIKENESS,
    "igfl-time": _LIKENESS,
}
"""What is taken on trust of devices, in words."""
PLAIN = frozenset({"equal", "examples"})
"""Those that go by who sent an update and not by what: nothing is lost where a combiner leaves them aside."""
ALIKE = frozenset({"equal"})
"""Those that tell nothing of clients' data (differential privacy)."""
NEEDS_HELD_OUT = frozenset({"fedrad"})
"""Those that go by what devices measure on data that they hold out."""
