"""The smallest network with something to prune: 5 channels between 2 inputs and 2 classes.

hidden.weight [5, 2], hidden.bias [5]     the target layer, channels on axis 0
out.weight    [2, 5], out.bias    [2]     its consumer, channels on axis 1
"""

import numpy as np

from edge_client.models.registry import ModelEntry
from edge_client.pruning.index_sets import extract
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import Network, State
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec

CHANNELS = 5
_KEPT = (Segment(channels=CHANNELS, group="hidden"),)
MAP = ChannelMap(
    groups={"hidden": ChannelGroup(channels=CHANNELS, layers=("hidden",))},
    parameters={
        "hidden.weight": ParameterLayout(shape=(CHANNELS, 2), axes={0: _KEPT}),
        "hidden.bias": ParameterLayout(shape=(CHANNELS,), axes={0: _KEPT}),
        "out.weight": ParameterLayout(shape=(2, CHANNELS), axes={1: _KEPT}),
        "out.bias": ParameterLayout(shape=(2,)),
    },
)
NETWORK = Network(ModelEntry(factory="none:none", summary="five channels"), MAP)
RATIOS = (0.6, 0.2, 0.0)
"""Of 5 channels, ceil(3) and ceil(1) are removed: tier 1 keeps 2, tier 2 keeps 4, tier 3 all."""
CLIENTS = [Client(f"c{index}", tier=index % 3 + 1, examples=10 * (index + 1)) for index in range(6)]


def arrays(seed: int) -> dict[str, np.ndarray]:
    """Full arrays of random numbers."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=layout.shape).astype(np.float32) for name, layout in MAP.parameters.items()
    }


def state(seed: int = 0, **more) -> State:
    return State(params=arrays(seed), **more)


def update(
    client: str, delta, *, spec: SubModelSpec | None = None, examples: int = 10, **groups
) -> ClientUpdate:
    """A client's update: the full `delta`, cut down to its sub-model."""
    spec = spec or SubModelSpec()
    return ClientUpdate(client, spec, {"model": extract(delta, spec, MAP), **groups}, examples)
