"""Which layers each device keeps for itself: they stay on it, and are in its own model file.

The server sends these layers with the first model and never gets them back; a device trains its own further
in every round (FedPer, Arivazhagan et al. 2019, Algorithm 1; FedBN, Li et al. 2021, section 3). Or a device
trains a whole model of its own besides the shared one, of which the server gets all (Ditto, Li et al. 2021,
Fair and Robust Federated Learning Through Personalization, Algorithm 1).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, Protocol

from edge_client.system.plugins import Registry
from edge_server.strategy.pruning.layers import units
from schemas.errors import ConfigError
from schemas.strategy import Component
from schemas.submodel import ChannelMap

Layers = tuple[str, ...]


class OwnPart(Protocol):
    """Names the layers of a network that stay on each device, and are in its model file.

    One that `needs_header` is for networks whose outputs are those of a linear layer. With `own_model` they
    are those of a second model, which devices train with that objective; else the shared model lacks them.
    """

    needs_header: ClassVar[bool] = False

    @property
    def own_model(self) -> Component | None:
        """The objective of a model of the device's own; None where there is only the shared one."""
        return None

    def layers(self, channel_map: ChannelMap) -> Layers:
        """The layers' names; `ConfigError` if the network has none of the kind, or no other."""
        ...


@dataclass(frozen=True)
class Head(OwnPart):
    """The last `count` layers, with the normalisations that follow them (FedPer's K_P personal layers)."""

    needs_header: ClassVar[bool] = True
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("count must be at least 1")

    def layers(self, channel_map: ChannelMap) -> Layers:
        """The layers that were registered last."""
        found = units(channel_map)
        if self.count >= len(found):
            raise ConfigError(
                f"[strategy] own: the network has {len(found)} layers, and a head of {self.count} "
                f"leaves none to share: set count to {max(1, len(found) - 1)} or less"
            )
        return tuple(layer for unit in found[-self.count :] for layer in unit)


@dataclass(frozen=True)
class Normalisation(OwnPart):
    """The normalisation layers with their running statistics (FedBN)."""

    def layers(self, channel_map: ChannelMap) -> Layers:
        """The layers with a scale and a shift per channel, and with running statistics if they have any."""
        shapes: dict[str, dict[str, int]] = {}
        for name, layout in channel_map.parameters.items():
            layer, _, own = name.rpartition(".")
            shapes.setdefault(layer, {})[own] = len(layout.shape)
        found = tuple(layer for layer, axes in shapes.items() if _is_normalisation(axes))
        if not found:
            raise ConfigError(
                "[strategy] own: the network has no normalisation that a device could keep: name another, "
                'such as "cnn-batch", or set own = "head"'
            )
        return found


def _is_normalisation(axes: Mapping[str, int]) -> bool:
    """Whether a layer with these arrays, by number of axes, has a scale and a shift per channel alone."""
    return {"weight", "bias"} <= axes.keys() and max(axes.values()) < 2


@dataclass(frozen=True)
class Named(OwnPart):
    """The layers whose names match one of these patterns."""

    names: tuple[str, ...]

    def layers(self, channel_map: ChannelMap) -> Layers:
        """The layers that match."""
        known = [layer for unit in units(channel_map) for layer in unit]
        found = tuple(layer for layer in known if any(fnmatchcase(layer, name) for name in self.names))
        if not found or len(found) == len(known):
            which = "every layer matches" if found else "no layer matches"
            raise ConfigError(
                f"[strategy] own: {which} {', '.join(self.names)}: the layers are {', '.join(known)}"
            )
        return found


@dataclass(frozen=True)
class OwnModel(OwnPart):
    """A whole model besides the shared one, pulled towards it by mu / 2 |v - w|^2 (Ditto's lambda is mu)."""

    mu: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.mu < math.inf:
            raise ValueError("mu must be a number of at least 0")

    @property
    def own_model(self) -> Component:
        """The proximal term, which is that of FedProx."""
        return Component(name="prox", options={"mu": self.mu})

    def layers(self, channel_map: ChannelMap) -> Layers:
        return tuple(layer for unit in units(channel_map) for layer in unit)


OWN_PARTS: Registry[Callable[..., OwnPart]] = Registry(
    "own-part", {"head": Head, "normalisation": Normalisation, "named": Named, "model": OwnModel}
)
