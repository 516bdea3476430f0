"""Detectors on the features of other networks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.tasks.detection import cells
from edge_client.models.build import build_model
from edge_client.models.detector import Detector
from edge_client.models.fixed_state import drawn_state, fixed_tensors, sent_tensors
from edge_client.models.frozen_part import find_split
from edge_client.models.registry import entry, is_ours, trunk_of
from edge_client.pruning.channel_graph.trace import trace
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import cut_axes
from edge_client.pruning.surgery import compact, parameter_count
from schemas.errors import ConfigError
from schemas.values import ModelSpec

SHAPE, CLASSES, CELLS = (3, 64, 96), 3, 16 * 24 + 8 * 12 + 4 * 6
LEVELS = (0.7, 0.5, 0.3, 0.1, 0.0)
# With a channels of both convolutions of the trunk, w of the neck and of each block of the head: the trunk
# has 75a + a + 25aa + a numbers, the neck aw + 2w + 2 (9ww + 2w), the blocks 2 (25w + ww + 6w), and 8 (w + 1)
# are of 3 classes, 4 distances and centre-ness. Ratios leave 19, 32, 44, 57 and 64 for both.
# Up to its last 96 channels MobileNetV2 has a stem of 29s, a first block of 11s + sb + 2b, and blocks of
# e (i + 13 + o) + 2o for i channels, 6i within and o after it: twice o = 24, then 32, 64 and 96 as often as
# table 2 of Sandler et al. says. Their neck has 24, 32 and 96 for a. Of c channels 3c // 10 to 9c // 10 stay.
SIZES = {
    "cnn": (19_521, 52_008, 95_796, 158_183, 198_216),
    "mobilenet-v2": (60_998, 155_080, 284_998, 458_035, 565_320),
}
"""Parameters of `detector:NAME` by tier."""


def spec(name: str, shape: tuple[int, ...] = SHAPE) -> ModelSpec:
    return ModelSpec(name=f"detector:{name}", input_shape=shape, num_classes=CLASSES)


@pytest.mark.parametrize("trunk", SIZES)
def test_a_sub_model_of_each_tier_has_the_size_that_is_computed_by_hand(trunk):
    module, name = build_model(spec(trunk)), f"detector:{trunk}"
    channel_map = trace(module, SHAPE).channel_map
    for level, size in zip(LEVELS, SIZES[trunk], strict=True):
        ratios = group_ratios(entry(name), level, channel_map)
        smaller = compact(module, prefix_spec(ratios, channel_map), channel_map)
        assert smaller.eval()(torch.zeros(2, *SHAPE)).shape == (2, (CLASSES + 5) * CELLS)
        assert parameter_count(smaller) == size


@pytest.mark.parametrize("trunk", ["mobilenet-v2-quarter", "resnet20"])
def test_a_sub_model_computes_what_the_whole_does_without_the_channels(trunk):
    module = build_model(spec(trunk, (3, 64, 64))).eval()
    channel_map = trace(module, (3, 64, 64)).channel_map
    kept = prefix_spec(group_ratios(entry(f"detector:{trunk}"), 0.5, channel_map), channel_map)
    smaller, pictures = compact(module, kept, channel_map), torch.rand(2, 3, 64, 64)
    assert parameter_count(smaller) < parameter_count(module) / 2
    with torch.no_grad():
        # What reads a channel has it on axis 1.
        for name, tensor in module.named_parameters():
            left = cut_axes(channel_map.parameters[name], kept).get(1)
            if left is not None:
                tensor[:, torch.from_numpy(np.setdiff1d(np.arange(tensor.shape[1]), left))] = 0
        torch.testing.assert_close(smaller(pictures), module(pictures), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("trunk", "strides"),
    [
        ("cnn-batch", (4,)),
        ("vit-tiny", (8,)),
        ("torchvision:shufflenet_v2_x0_5", (4, 8, 16)),
        ("timm:lcnet_035", (4, 8, 16)),
    ],
)
def test_a_detector_takes_features_of_any_trunk_and_leaves_its_classes_out(trunk, strides):
    module = build_model(spec(trunk, (3, 64, 64))).eval()
    assert module.neck.strides == strides
    assert module(torch.zeros(2, 3, 64, 64)).shape == (2, (CLASSES + 5) * 336)
    # Its last layer gave scores of three classes.
    whole = build_model(ModelSpec(name=trunk, input_shape=(3, 64, 64), num_classes=CLASSES))
    last = [name for name, tensor in whole.named_parameters() if len(tensor) == CLASSES]
    own = {name.removeprefix("trunk.") for name, _ in module.named_parameters()}
    assert last
    assert not own.intersection(last)
    assert own.intersection(name for name, _ in whole.named_parameters())
    assert is_ours(trunk) == is_ours(f"detector:{trunk}")


def test_a_new_detector_says_boxes_around_the_cells_and_no_class_with_a_probability_above_a_twentieth():
    outputs = build_model(spec("cnn")).eval()(torch.rand(2, *SHAPE)).detach().reshape(2, CLASSES + 5, CELLS)
    centres = torch.from_numpy(cells(SHAPE)[0]).T
    assert (outputs[:, CLASSES : CLASSES + 2] < centres).all()
    assert (outputs[:, CLASSES + 2 : CLASSES + 4] > centres).all()
    assert torch.sigmoid(outputs[:, :CLASSES]).max() < 0.05
    assert torch.sigmoid(outputs[:, :CLASSES]).mean() == pytest.approx(0.01, abs=0.005)


def test_channels_stay_whole_at_no_operation_of_a_detector():
    module = build_model(spec("cnn"))
    traced = trace(module, SHAPE)
    assert traced.stops == ()
    assert [name for name in traced.channel_map.groups if not name.startswith("trunk.")] == [
        "neck.layers.0.0",
        "head.blocks.0.point",
        "head.blocks.1.point",
    ]


def test_the_cells_of_an_input_do_not_travel():
    module = build_model(spec("timm:lcnet_035", (3, 64, 64)))
    assert not {"centres", "steps"} & sent_tensors(module).keys()
    assert {"centres", "steps"} <= fixed_tensors(module).keys()
    assert not drawn_state(spec("timm:lcnet_035", (3, 64, 64)), module)


class Scaled(nn.Module):
    """A trunk with numbers outside its state."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.register_buffer("scale", torch.full((8, 1, 1), 0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.patches(x) * self.scale)


def test_numbers_outside_a_trunks_state_do_not_travel_and_count():
    trunk, pictures = Scaled(), torch.rand(2, *SHAPE)
    expected = trunk(pictures)
    module = Detector(trunk, SHAPE, CLASSES)
    for each in (module, copy.deepcopy(module)):
        assert [name for name in sent_tensors(each) if name.startswith("trunk.")] == [
            "trunk.patches.weight",
            "trunk.patches.bias",
        ]
        torch.testing.assert_close(each.trunk(pictures)[0], expected)


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [
        ("cnn", (3, 64, 72), r"sides are multiples of 16: set \[model\] input-shape = \[3, 64, 80\]$"),
        ("cnn", (3, 16, 16), "sides of 32 or more"),
        ("cnn-1d", (3, 64), "expected images"),
        ("mlp", SHAPE, "MLP has no features of pictures"),
        ("resnet21", SHAPE, "did you mean 'resnet20'"),
    ],
)  # fmt: skip
def test_a_trunk_or_an_input_without_a_grid_is_refused(name, shape, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build_model(spec(name, shape))


def test_a_network_that_is_no_detector_is_its_own_trunk():
    assert [trunk_of(name) for name in ("detector:timm:lcnet_035", "cnn")] == ["timm:lcnet_035", "cnn"]


@pytest.mark.parametrize("trunk", ["mobilenet-v2", "torchvision:mobilenet_v2"])
def test_features_are_those_before_an_expansion_and_few_enough_to_be_kept(trunk):
    module = build_model(spec(trunk, (3, 64, 64)))
    assert [layer[0].in_channels for layer in module.neck.layers] == [24, 32, 96]
    trained = {name for name in module.state_dict() if name.startswith(("neck", "head"))}
    assert find_split(module, trained, (3, 64, 64)).width == 24 * 16**2 + 32 * 8**2 + 96 * 4**2
