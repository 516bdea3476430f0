"""Boards that simulated devices stand for: training speed, memory, link and availability of each.

`board_profiles.toml` holds the figures and their sources.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

from schemas.errors import ConfigError, InvariantError, nearest


@dataclass(frozen=True)
class BoardProfile:
    """One kind of board, as the virtual clock needs it; the head of the TOML file explains the figures."""

    name: str
    summary: str
    source: str
    training_flops: float
    memory_bytes: int
    available_bytes: int
    downlink_bps: float
    uplink_bps: float
    latency_s: float
    online_s: float
    offline_s: float


def _read_profiles() -> dict[str, BoardProfile]:
    text = (resources.files("edge_server.config") / "board_profiles.toml").read_text(encoding="utf-8")
    return {
        name: BoardProfile(name, **{key.replace("-", "_"): value for key, value in figures.items()})
        for name, figures in tomllib.loads(text).items()
    }


PROFILES: Mapping[str, BoardProfile] = MappingProxyType(_read_profiles())
"""Every board by name, the slowest first, and the one with less memory first."""


def profile(name: str) -> BoardProfile:
    """The board of that name; raises `ConfigError` with the nearest one."""
    if name not in PROFILES:
        raise ConfigError(f"no board is called '{name}'{nearest(name, PROFILES)}")
    return PROFILES[name]


def for_tier(tier: int, tiers: int, names: Sequence[str]) -> str:
    """The board of `tier` in 1..`tiers` (1 is the weakest) among `names`, weakest first.

    Tiers are spread evenly from the first to the last board, rounded down to the weaker one.
    """
    if not names or not 1 <= tier <= tiers:
        raise InvariantError(f"tier {tier} of {tiers} has none of {len(names)} boards")
    return names[(tier - 1) * (len(names) - 1) // max(1, tiers - 1)]
