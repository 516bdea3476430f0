"""The group rules by name."""

from collections.abc import Callable

from edge_client.system.plugins import Registry
from edge_server.strategy.groups.control import Control
from edge_server.strategy.groups.header import Header
from edge_server.strategy.groups.last_step import LastStep
from edge_server.strategy.groups.mean_data import MeanData
from edge_server.strategy.groups.overlap import Overlap
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.groups.statistics import Statistics
from edge_server.strategy.groups.tier_norms import TierNorms
from edge_server.strategy.groups.widths import Widths

GROUPS: Registry[Callable[..., GroupRule]] = Registry(
    "group",
    {
        "control": Control,
        "header": Header,
        "last-step": LastStep,
        "overlap": Overlap,
        "mean-data": MeanData,
        "statistics": Statistics,
        "tier-norms": TierNorms,
        "widths": Widths,
    },
)
IGNORES_MODELS = frozenset({"header", "last-step", "mean-data", "statistics", "widths"})
"""Rules that combine nothing of the size of a model that devices send."""
TRUSTS = {"control": "what a device adds to the controls within bounds stays in them, round after round"}
"""What each rule takes on trust from devices, in words (see the contract in `test_liars.py`)."""
