"""The shipped networks, also narrowed, and their graphs, for comparisons with torch."""

from functools import cache, lru_cache

import torch
from torch import nn

from edge_client.inference.export.onnx import find_graph
from edge_client.models.build import build_model
from edge_client.models.registry import MODELS
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import compact
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
IN_COLOUR = ("resnet20", "resnet20-group", "resnet56", "mobilenet-v2", "mobilenet-v2-quarter")


def spec_of(name: str) -> ModelSpec:
    known = MODELS[name]
    if len(known.example_shape) < 3:
        return ModelSpec(name=name, input_shape=known.example_shape, num_classes=known.example_outputs)
    return ModelSpec(name=name, input_shape=COLOUR if name in IN_COLOUR else GREY, num_classes=10)


@lru_cache(maxsize=1)
def network(name: str) -> nn.Module:
    """A network with running statistics unlike those of a new one."""
    spec = spec_of(name)
    module = build_model(spec, seed=3)
    generator = torch.Generator().manual_seed(5)
    for key, buffer in module.named_buffers():
        if key.endswith("running_mean"):
            buffer.normal_(0, 0.1, generator=generator)
        elif key.endswith("running_var"):
            buffer.uniform_(0.7, 1.3, generator=generator)
    return module.eval()


def narrow(module: nn.Module, input_shape: tuple[int, ...]) -> nn.Module:
    """The network with half of the channels of each group that has more than ten."""
    channel_map = trace_channels(module, input_shape)
    kept = {
        name: group.channels // 2 // group.multiple * group.multiple
        for name, group in channel_map.groups.items()
        if group.channels >= 2 * group.multiple and group.channels > 10
    }
    return compact(module, SubModelSpec(kept=kept), channel_map)


@cache
def graph(name: str) -> bytes:
    """The network's graph, which has no weights and therefore few bytes; all test processes draw it once."""
    return find_graph(network(name), spec_of(name).input_shape)
