"""Networks of torchvision and timm by name."""

import socket
import subprocess
import sys

import pytest
import torch
from torch import nn

from edge_client.models.build import build_model, header_of
from edge_client.models.registry import InputRecord, entry, is_ours
from edge_client.models.zoo import input_record, with_colours
from schemas.errors import ConfigError
from schemas.values import ModelSpec
from tests.slow import slow

SMALL = ("torchvision:shufflenet_v2_x0_5", "timm:lcnet_035")


def spec(name: str, shape: tuple[int, ...] = (3, 32, 32), classes: int = 5) -> ModelSpec:
    return ModelSpec(name=name, input_shape=shape, num_classes=classes)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 40, 33)])
def test_a_network_takes_the_pictures_and_classes_that_are_stated(name, shape, monkeypatch):
    def connect(*_):
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(socket.socket, "connect", connect)
    module = build_model(spec(name, shape)).eval()
    assert module(torch.zeros(2, *shape)).shape == (2, 5)


@pytest.mark.parametrize("name", SMALL)
def test_weights_are_drawn_by_the_seed(name):
    first, same, other = (build_model(spec(name), seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        slow("torchvision:vit_b_32", (3, 64, 64)),
        ("timm:tiny_vit_5m_224", (1, 64, 64)),
        ("torchvision:googlenet", (3, 64, 64)),
    ],
)
def test_a_network_of_one_size_is_built_for_the_size_that_is_stated(name, shape):
    module = build_model(spec(name, shape)).eval()
    assert module(torch.zeros(2, *shape)).shape == (2, 5)


def test_an_entry_is_a_librarys_and_may_be_cut_everywhere():
    for name in SMALL:
        assert (entry(name).targets, entry(name).pictures) == (("*",), True)
        assert not is_ours(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("torchvision:mobilenet_v3_smal", "did you mean 'torchvision:mobilenet_v3_small'"),
        ("timm:mobilenetv3_smal_100", "did you mean 'timm:mobilenetv3_small_100'"),
        ("torchvision:fcn_resnet50", "has no network 'fcn_resnet50'"),
        ("timm:qqqqqq", r"has no network 'qqqqqq' among its \d+$"),
        ("timm:resnet18.a1_in1k", r"the network is 'timm:resnet18', and \[model\] from = "),
        ("timm:hf-hub:owner/net", "names no network of timm"),
        ("timm:local-dir:/tmp/net", "names no network of timm"),
        ("torchvision:", "names no network of torchvision"),
    ],
)  # fmt: skip
def test_a_name_that_is_no_network_is_refused_with_the_nearest(name, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build_model(spec(name))


@pytest.mark.parametrize(("name", "shape", "complaint"), [
    ("timm:lcnet_035", (40,), r"images of \(colours, height, width\)"),
    ("torchvision:vit_b_32", (3, 64, 32), "square"),
])  # fmt: skip
def test_an_input_that_a_network_does_not_take_is_refused(name, shape, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build_model(spec(name, shape))


def test_without_timm_its_networks_are_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"needs timm: pip install 'edge-federation\[pretrained\]'"):
        build_model(spec("timm:lcnet_035"))


def test_naming_a_network_imports_no_library():
    code = (
        "import sys; from edge_client.models.registry import entry; entry('timm:lcnet_035');"
        "assert not {'torch', 'torchvision', 'timm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# As torchvision and timm publish them: crops of 224 out of 256 and 232 pixels.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.mark.parametrize(("name", "expected"), [
    ("torchvision:mobilenet_v2.IMAGENET1K_V1", InputRecord((224, 224), *IMAGENET, 224 / 256, "bilinear")),
    ("torchvision:mobilenet_v2", InputRecord((224, 224), *IMAGENET, 224 / 232, "bilinear")),
    ("timm:mobilenetv3_small_100", InputRecord((224, 224), *IMAGENET, 0.875, "bicubic")),
    ("timm:tf_efficientnet_lite1.in1k", InputRecord((240, 240), *HALVES, 0.882, "bicubic")),
])  # fmt: skip
def test_the_inputs_of_weights_are_those_that_the_library_states(name, expected):
    assert input_record(name) == expected


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("torchvision:mobilenet_v2.IMAGENET1K_V3", "did you mean 'IMAGENET1K_V1'"),
        ("timm:lcnet_050.no_such", "timm has no weights 'no_such' of 'lcnet_050'"),
    ],
)
def test_unknown_weights_are_refused(name, complaint):
    with pytest.raises(ConfigError, match=complaint):
        input_record(name)


@pytest.mark.parametrize(("name", "header"), [*zip(SMALL, ("fc", "classifier"), strict=True)])
def test_the_header_is_found_also_if_it_is_a_librarys_linear_layer(name, header):
    assert header_of(spec(name)) == header


def test_a_stem_of_other_colours_keeps_all_else():
    module = nn.Sequential(nn.Conv2d(3, 4, (3, 5), stride=2, padding=1, bias=False), nn.Flatten())
    stem = with_colours(module, 2)[0]
    assert (stem.weight.shape, stem.stride, stem.padding, stem.bias) == ((4, 2, 3, 5), (2, 2), (1, 1), None)


def test_a_network_whose_stem_reads_no_three_colours_is_refused():
    with pytest.raises(ConfigError, match="three colours"):
        with_colours(nn.Sequential(nn.Conv2d(4, 4, 1)), 1)
