"""Detection of objects on the features of any network: `detector:TRUNK`.

One stage without anchors (FCOS, Tian et al. 2019 and 2020): each cell of three grids says which class has its
centre there, where the corners of its box are, and how central the cell is. The features are the last values
of the trunk at each stride, before a convolution widens them for the next: SSDLite (Sandler et al. 2018,
section 6.2) takes the wider ones, six times as many numbers to keep of each picture. Sums from coarse to fine
join them (Lin et al. 2017, Feature Pyramid Networks). The head is the same for all strides but for its
normalisations (RTMDet, Lyu et al. 2022, section 3.2).
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from edge_client.data.tasks.detection import STRIDES, cells
from edge_client.models.frozen_part import Constant, call_constants
from edge_client.models.modes import evaluating
from edge_client.models.registry import image_shape
from edge_client.models.shape_tracer import ShapeTracer
from schemas.errors import ConfigError

WIDTH = 64  # channels of neck and head
BLOCKS = 2
KERNEL = 5  # cells from which a block of the head sees, as RTMDet's
PRIOR = 0.01  # probability of a class in a cell at the start (Lin et al. 2017, Focal Loss, section 3.3)
SIGNS = (-1.0, -1.0, 1.0, 1.0)  # of the distances to a box's left, top, right and bottom
FINER = (1, 2)  # strides of features that are made coarser where a trunk ends there
EXAMPLES = 2  # of a trace


class Detector(nn.Module):
    """From pictures [B, colours, H, W] to [B, (classes + 5) A], for the A cells of `cells`.

    In rows it is [B, classes + 5, A]: the logit of each class, the corners x1, y1, x2, y2 in pixels of the
    input, and the logit of centre-ness. Raises `ConfigError` for a trunk without features.
    """

    centres: Tensor
    steps: Tensor

    def __init__(self, trunk: nn.Module, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        sides = image_shape(input_shape, least=2 * STRIDES[-1])[1:]
        if any(side % STRIDES[-1] for side in sides):
            wider = [-(-side // STRIDES[-1]) * STRIDES[-1] for side in sides]
            raise ConfigError(
                f"a detector takes pictures whose sides are multiples of {STRIDES[-1]}",
                remedy=f"set [model] input-shape = {[input_shape[0], *wider]}",
            )
        graph, features = _find_features(trunk, input_shape)
        self.trunk = _end_with(trunk, graph, [*features.values()])
        self.neck = Neck({stride: node.meta["shape"][1] for stride, node in features.items()})
        self.head = Head(num_classes)
        centres, strides = (torch.from_numpy(each).float() for each in cells(input_shape))
        # Both follow from the input's shape, and do not travel.
        self.register_buffer("centres", centres.T.repeat(2, 1), persistent=False)
        self.register_buffer("steps", torch.tensor(SIGNS)[:, None] * strides, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        classes, distances, centreness = self.head(self.neck(self.trunk(x)))
        corners = functional.softplus(distances) * self.steps + self.centres
        return torch.cat((classes, corners, centreness), 1).flatten(1)


class Neck(nn.Module):
    """Features become `WIDTH` channels at each of `STRIDES`, with the sum of all coarser ones.

    `channels` are those of the features by stride, fine to coarse. A stride without features has a
    convolution of the finer one, or the coarser one alone where there is none.
    """

    def __init__(self, channels: Mapping[int, int]) -> None:
        super().__init__()
        self.strides = tuple(channels)
        self.levels = [stride for stride in STRIDES if stride >= self.strides[0]]
        self.layers = nn.ModuleList()
        finer, width = next(iter(channels.items()))
        for stride in self.levels:
            if stride in channels:
                finer, width = stride, channels[stride]
            self.layers.append(_layer(width, stride // finer))
            finer, width = stride, WIDTH

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        given, maps = {s: features[place] for place, s in enumerate(self.strides)}, [features[0]]
        for stride, layer in zip(self.levels, self.layers, strict=True):
            maps.append(layer(given.get(stride, maps[-1])))
        sums = [maps[-1]]
        for own in reversed(maps[1:-1]):
            sums.append(own + functional.interpolate(sums[-1], scale_factor=2.0))
        while len(sums) < len(STRIDES):
            sums.append(functional.interpolate(sums[-1], scale_factor=2.0))
        return sums[::-1]


class Block(nn.Module):
    """Convolutions by channel and by position, with a normalisation for each of `STRIDES`."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = nn.Conv2d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH, bias=False)
        self.point = nn.Conv2d(WIDTH, WIDTH, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(WIDTH) for _ in STRIDES)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        found = (self.point(self.depth(each)) for each in maps)
        return [torch.relu(norm(each)) for norm, each in zip(self.norms, found, strict=True)]


class Head(nn.Module):
    """Class logits [B, classes, A], distances [B, 4, A] before softplus, centre-ness [B, 1, A]."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.classes = nn.Conv2d(WIDTH, num_classes, 1)
        self.distances = nn.Conv2d(WIDTH, len(SIGNS), 1)
        self.centreness = nn.Conv2d(WIDTH, 1, 1)
        nn.init.normal_(self.classes.weight, std=0.01)
        nn.init.constant_(self.classes.get_parameter("bias"), -math.log((1 - PRIOR) / PRIOR))

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        found, layers = self.blocks(maps), (self.classes, self.distances, self.centreness)
        return tuple(torch.cat([layer(each).flatten(2) for each in found], 2) for layer in layers)


def _layer(channels: int, factor: int) -> nn.Module:
    """A normalised convolution to `WIDTH` channels, with sides a `factor` shorter."""
    kernel = factor + (factor > 1)
    convolution = nn.Conv2d(channels, WIDTH, kernel, stride=factor, padding=factor // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(WIDTH), nn.ReLU())


def _find_features(trunk: nn.Module, input_shape: tuple[int, ...]) -> tuple[fx.Graph, dict[int, fx.Node]]:
    """The trunk's graph, and the last value at each of `STRIDES`, or a finer one if it has none there.

    Raises `ConfigError` for a trunk without any.
    """
    # A layer of a library may have a forward method of its own, and stays a layer.
    tracer = ShapeTracer(torch.zeros(EXAMPLES, *input_shape), is_leaf=lambda layer: not [*layer.children()])
    with evaluating(trunk):
        graph = tracer.graph_of(trunk)
    height, width = input_shape[1:]
    strides = {(height // stride, width // stride): stride for stride in (*FINER, *STRIDES)}
    found: dict[int, fx.Node] = {}
    for node in graph.nodes:
        examples, *rest = node.meta.get("shape", ()) or (0,)
        if node.op != "placeholder" and examples == EXAMPLES and len(rest) == 3:
            found[strides.get((rest[1], rest[2]), 0)] = node
    chosen = {stride: found[stride] for stride in STRIDES if stride in found}
    if not chosen and (finer := [stride for stride in FINER if stride in found]):
        chosen = {finer[-1]: found[finer[-1]]}
    if not chosen:
        raise ConfigError(f"{type(trunk).__name__} has no features of pictures {input_shape} to detect on")
    return graph, {stride: _before_expansion(trunk, node) for stride, node in chosen.items()}


def _before_expansion(trunk: nn.Module, value: fx.Node) -> fx.Node:
    """What a 1 x 1 convolution widens to this value, as in an inverted residual, or the value itself."""
    node = value
    while len(node.all_input_nodes) == 1:
        layer = trunk.get_submodule(str(node.target)) if node.op == "call_module" else None
        (node,) = node.all_input_nodes
        if isinstance(layer, nn.Conv2d):
            widens = layer.kernel_size == (1, 1) and layer.in_channels < layer.out_channels
            return node if widens else value
    return value


def _end_with(trunk: nn.Module, graph: fx.Graph, features: Sequence[fx.Node]) -> nn.Module:
    """The trunk up to these values, which are its outputs."""
    nodes = list(graph.nodes)
    for node in reversed(nodes[max(map(nodes.index, features)) + 1 :]):
        graph.erase_node(node)
    graph.output(tuple(features))
    for name in call_constants(graph, trunk):
        place, _, last = name.rpartition(".")
        owner = trunk.get_submodule(place)
        held = Constant(getattr(owner, last))
        delattr(owner, last)
        setattr(owner, last, held)
    return fx.GraphModule(trunk, graph)
