"""Which layers each device keeps for itself: they stay on it, and are in its own model file.

The server sends these layers with the first model and never gets them back; a device trains its own further
in every round (FedPer, Arivazhagan et al. 2019, Algorithm 1; FedBN, Li et al. 2021, section 3). Or a device
trains a whole model of its own besides the shared one, of which the server gets all (Ditto, Li et al. 2021,
Fair and Robust Federated Learning Through Personalization, Algorithm 1).
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, Protocol

import numpy as np

from edge_client.pruning.channel_selection import prefix_spec
from edge_client.system.plugins import Registry
from edge_server.strategy.pruning.interface import Cut, Evidence, Pruner, PrunerTraits, Ratios, random_spec
from schemas.errors import ConfigError
from schemas.strategy import Component
from schemas.submodel import ChannelMap

LayerNames = tuple[str, ...]


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

    def layers(self, channel_map: ChannelMap) -> LayerNames:
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

    def layers(self, channel_map: ChannelMap) -> LayerNames:
        found = units(channel_map)
        if self.count >= len(found):
            raise ConfigError(
                f"the network has {len(found)} layers, and a head of {self.count} leaves none to share",
                key="[strategy] own",
                remedy=f"set count to {max(1, len(found) - 1)} or less",
            )
        return tuple(layer for unit in found[-self.count :] for layer in unit)


@dataclass(frozen=True)
class Normalisation(OwnPart):
    """The normalisation layers with their running statistics (FedBN)."""

    def layers(self, channel_map: ChannelMap) -> LayerNames:
        found = normalisation_layers(channel_map)
        if not found:
            raise ConfigError(
                "the network has no normalisation that a device could keep",
                key="[strategy] own",
                remedy='name another, such as "cnn-batch", or set own = "head"',
            )
        return found


def normalisation_layers(channel_map: ChannelMap) -> LayerNames:
    """The layers with a scale and a shift per channel, and with running statistics if they have any."""
    shapes: dict[str, dict[str, int]] = {}
    for name, layout in channel_map.parameters.items():
        layer, _, own = name.rpartition(".")
        shapes.setdefault(layer, {})[own] = len(layout.shape)
    scaled = {layer: axes.values() for layer, axes in shapes.items() if {"weight", "bias"} <= axes.keys()}
    return tuple(layer for layer, counts in scaled.items() if max(counts) < 2)


@dataclass(frozen=True)
class Named(OwnPart):
    """The layers whose names match one of these patterns."""

    names: tuple[str, ...]

    def layers(self, channel_map: ChannelMap) -> LayerNames:
        known = [layer for unit in units(channel_map) for layer in unit]
        found = tuple(layer for layer in known if any(fnmatchcase(layer, name) for name in self.names))
        if not found or len(found) == len(known):
            which = "every layer matches" if found else "no layer matches"
            names = f"{', '.join(self.names)}: the layers are {', '.join(known)}"
            raise ConfigError(f"[strategy] own: {which} {names}")
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

    def layers(self, channel_map: ChannelMap) -> LayerNames:
        return tuple(layer for unit in units(channel_map) for layer in unit)


OWN_PARTS: Registry[Callable[..., OwnPart]] = Registry(
    "own-part", {"head": Head, "normalisation": Normalisation, "named": Named, "model": OwnModel}
)


# Each device sends back only some of its layers (FedP3; Yi et al. 2024).
#
# FedP3: Federated Personalized and Privacy-friendly Network Pruning under Model Heterogeneity, Algorithm 1.

Unit = tuple[str, ...]  # the names of a layer and of the normalisations that follow it


@PrunerTraits(is_per_client=True)
@dataclass(frozen=True)
class Layers(Pruner):
    """Train a sub-model, send back `layers` of its layers, drawn per client and round, and the final one.

    The paper keeps the layers L_i of a client dense and prunes the others; here a device's tier bounds all
    its layers equally, since it cannot train more, and L_i decides only what is sent back. A layer is sent
    back with all its parameters, and with the normalisation that follows, running statistics included:
    neither is of use without the other. `channels` is the paper's ordered dropout (`index`) or its uniform
    dropout (`random`, the same order of channels for all devices in a round).
    """

    layers: int = 3
    channels: str = "index"

    def __post_init__(self) -> None:
        if self.layers < 0:
            raise ValueError("layers must be at least 0")
        if self.channels not in ("index", "random"):
            raise ValueError(f"channels is 'index' or 'random', not '{self.channels}'")

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """The tier's channels, and the layers to send back, in the network's order."""
        nested = self.channels == "index"
        spec = prefix_spec(ratios, channel_map) if nested else random_spec(ratios, channel_map, evidence.seed)
        return Cut(spec, returned=returned_layers(channel_map, self.layers, evidence.seed, evidence.client))


def returned_layers(channel_map: ChannelMap, count: int, seed: int, client: str) -> Unit:
    """The layers of `count` units drawn by `seed` and `client`, and of the last unit."""
    *others, final = units(channel_map)
    digest = hashlib.sha256(client.encode()).digest()
    random = np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
    drawn = set(random.permutation(len(others))[:count].tolist())
    chosen = [unit for index, unit in enumerate(others) if index in drawn]
    return tuple(layer for unit in (*chosen, final) for layer in unit)


def units(channel_map: ChannelMap) -> list[Unit]:
    """The network's layers in order of registration, normalisations with the layer before them.

    A layer's name is a parameter's name up to the last dot. A layer without a weight of two or more axes
    counts as a normalisation; the first layer is never one.
    """
    axes: dict[str, int] = {}
    for name, layout in channel_map.parameters.items():
        layer = name.rpartition(".")[0]
        axes[layer] = max(axes.get(layer, 0), len(layout.shape))
    found: list[Unit] = []
    for layer, most in axes.items():
        if most < 2 and found:
            found[-1] = (*found[-1], layer)
        else:
            found.append((layer,))
    return found
