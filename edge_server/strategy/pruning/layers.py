"""Each device sends back only some of its layers (FedP3; Yi et al. 2024).

FedP3: Federated Personalized and Privacy-friendly Network Pruning under Model Heterogeneity, Algorithm 1.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from edge_client.pruning.channel_selection import prefix_spec
from edge_server.strategy.pruning.interface import Cut, Evidence, Pruner, Ratios, random_spec
from schemas.submodel import ChannelMap

Unit = tuple[str, ...]
"""The names of a layer and of the normalisations that follow it."""


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
