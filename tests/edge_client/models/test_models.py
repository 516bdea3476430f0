"""The shipped networks, their registry, and building one from its name."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from edge_client.models.build import build_blank, build_model
from edge_client.models.registry import MODELS, entry
from edge_client.pruning.surgery import parameter_count
from schemas.errors import ConfigError
from schemas.values import ModelSpec

# Weights and biases by hand for the small networks: two-nn 832 + 51,264 + 1,606,144 + 5,130 = 1,663,370;
# mlp 157,000 + 40,200 + 2,010 = 199,210; a norm of 64 channels has 64 scales and 64 shifts, and there
# are two. resnet20: stem 464, stages 14,016, 51,648 and 205,696, linear layer 650. resnet56 is from the
# paper's table 4. vit-tiny is counted in test_vit_tiny.py. cnn-1d: 256 + 14,400 + 41,024 + 650;
# tcn: 64 + 4 * 3,104 + 330.
# Two colours less are 2 * 8 * 9 = 144 weights less in the stem of mobilenet-v2-quarter.
SIZES = [
    ("two-nn", (1, 28, 28), 1_663_370),
    ("mlp", (1, 28, 28), 199_210),
    ("cnn", (3, 32, 32), 1_756_426),
    ("cnn", (1, 28, 28), 1_384_586),
    ("cnn-batch", (3, 32, 32), 1_756_426 + 256),
    ("cnn-group", (3, 32, 32), 1_756_426 + 256),
    ("resnet20", (3, 32, 32), 272_474),
    ("resnet20-group", (3, 32, 32), 272_474),
    ("resnet56", (3, 32, 32), 591_322),
    ("mobilenet-v2", (3, 32, 32), 2_236_682),
    ("mobilenet-v2-quarter", (3, 32, 32), 250_922),
    ("mobilenet-v2-quarter", (1, 28, 28), 250_778),
    ("vit-tiny", (1, 28, 28), 138_890),
    ("cnn-1d", (1, 40), 56_330),
    ("tcn", (1, 40), 12_810),
]


def spec(name: str, shape: tuple[int, ...] = (1, 28, 28), classes: int = 10) -> ModelSpec:
    return ModelSpec(name=name, input_shape=shape, num_classes=classes)


@pytest.mark.parametrize(("name", "shape", "parameters"), SIZES)
def test_a_network_has_its_published_size_and_returns_class_scores(name, shape, parameters):
    module = build_model(spec(name, shape)).eval()
    assert parameter_count(module) == parameters
    assert module(torch.zeros(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize(
    "name",
    [
        "two-nn",
        "mlp",
        "cnn",
        "cnn-batch",
        "cnn-group",
        "resnet20",
        "mobilenet-v2",
        "mobilenet-v2-quarter",
        "vit-tiny",
    ],
)
def test_a_network_supports_other_image_sizes_and_class_counts(name):
    module = build_model(spec(name, (2, 9, 13), 3)).eval()
    assert module(torch.zeros(2, 2, 9, 13)).shape == (2, 3)


def test_an_autoencoder_has_an_output_for_each_number_of_its_input():
    # 12 * 64 + 64, 64 * 3 + 3, 3 * 64 + 64, 64 * 12 + 12
    module = build_model(spec("autoencoder", (3, 4), 12)).eval()
    assert parameter_count(module) == 832 + 195 + 256 + 780
    assert module(torch.zeros(2, 3, 4)).shape == (2, 12)
    with pytest.raises(ConfigError, match=r"repeats the 12 numbers .* not 10: set \[model\] task"):
        build_model(spec("autoencoder", (12,), 10))


@pytest.mark.parametrize("name", ["cnn-1d", "tcn"])
def test_networks_for_signals_refuse_pictures(name):
    with pytest.raises(ConfigError, match=r"\[channels, length\]"):
        build_model(spec(name))


def test_an_output_of_a_causal_network_depends_on_the_past_alone():
    module = build_model(spec("tcn", (2, 20), 3)).eval()
    features = torch.nn.Sequential(module.stem, module.blocks)
    x = torch.randn(1, 2, 20, generator=torch.Generator().manual_seed(0))
    later = x.clone()
    later[:, :, 10:] += 1
    before, after = features(x), features(later)
    assert torch.equal(before[:, :, :10], after[:, :, :10])
    assert not torch.equal(before[:, :, 10:], after[:, :, 10:])


def test_weights_are_determined_by_the_seed():
    first, same, other = (build_model(spec("mlp"), seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["linear1.weight"], other["linear1.weight"])


@pytest.mark.parametrize("name", ["cnn-batch", "cnn-group"])
def test_normalisation_leaves_the_initial_weights_of_the_other_layers_as_they_are(name):
    plain, normalised = build_model(spec("cnn")).state_dict(), build_model(spec(name)).state_dict()
    assert all(torch.equal(normalised.pop(key), tensor) for key, tensor in plain.items())
    assert {key.partition(".")[0] for key in normalised} == {"norm1", "norm2"}


def test_group_normalisation_makes_each_pair_of_channels_even_before_the_relu():
    module = build_model(spec("cnn-group", (1, 8, 8)))
    normed = module.norm1(module.conv1(torch.rand(3, 1, 8, 8))).reshape(3, 32, -1)
    torch.testing.assert_close(normed.mean(-1), torch.zeros(3, 32), atol=1e-5, rtol=0)
    # The 1e-5 that keeps the division finite counts where the deviation is small.
    torch.testing.assert_close(normed.std(-1, unbiased=False), torch.ones(3, 32), atol=0.02, rtol=0)


@pytest.mark.parametrize(("name", "shape", "parameters"), SIZES)
def test_a_blank_network_differs_only_in_its_random_parameters(name, shape, parameters):
    drawn, blank = build_model(spec(name, shape)), build_blank(spec(name, shape))
    assert parameter_count(blank) == parameters
    assert [n for n, _ in blank.named_modules()] == [n for n, _ in drawn.named_modules()]
    buffers = dict(blank.named_buffers())
    assert all(torch.equal(buffers.pop(n), buffer) for n, buffer in drawn.named_buffers())
    assert not buffers
    blank.load_state_dict(drawn.state_dict())
    images = torch.rand(2, *shape)
    assert torch.equal(blank.eval()(images), drawn.eval()(images))


def test_random_buffers_are_initialised_in_a_blank_network(monkeypatch):
    class Projected(nn.Linear):
        def __init__(self, shape, classes):
            super().__init__(shape[-1], classes)
            self.register_buffer("seen", torch.empty(3).uniform_(), persistent=False)

    monkeypatch.setattr("edge_client.models.build.users_function", lambda *_, **__: Projected)
    drawn, blank = build_model(spec("mlp")), build_blank(spec("mlp"))
    assert blank.seen.min() > 0
    assert drawn.seen.shape == blank.seen.shape


def test_building_does_not_change_the_global_random_state():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    build_model(spec("mlp"), seed=3)
    assert torch.equal(torch.rand(3), expected)


def test_the_registry_needs_no_torch():
    code = "import sys, edge_client.models.registry as r; assert r.MODELS and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_users_own_factory_is_found_and_may_be_pruned_everywhere():
    assert entry("torch.nn:Linear").targets == ("*",)
    assert isinstance(build_model(spec("tests.edge_client.models.test_models:own")), nn.Flatten)


def own(input_shape, num_classes):
    return nn.Flatten()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("two_nn", "did you mean 'two-nn'"),
        ("no_such_package_here:net", "PYTHONPATH"),
        ("math:net", "has no function 'net'"),
        ("math:hypot", "factory"),
        ("builtins:print", "return a torch.nn.Module"),
        (":", "package.module:factory"),
    ],
)
def test_a_name_that_cannot_be_built_is_refused_with_a_remedy(name, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build_model(spec(name))


def test_an_input_that_is_too_small_is_refused():
    with pytest.raises(ConfigError, match="sides of 4 or more"):
        build_model(spec("two-nn", (1, 3, 3)))


def test_every_entry_names_targets_and_a_summary():
    assert all(item.targets and item.summary for item in MODELS.values())
