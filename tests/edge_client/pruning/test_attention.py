"""The attention module on hand-computed numbers, and its insertion and removal."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.models.build import build_model
from edge_client.pruning.attention import AttentionModule, attach, spatial_groups
from edge_client.pruning.surgery import parameter_count
from schemas.errors import ConfigError, InvariantError
from schemas.values import ModelSpec


def two_nn():
    return build_model(ModelSpec(name="two-nn", input_shape=(1, 8, 8), num_classes=3))


def close(actual, expected):
    torch.testing.assert_close(actual, torch.tensor(expected), rtol=0, atol=2e-4)


def test_attention_of_a_small_map_matches_hand_computation():
    # Two channels of two positions, one group. Eq. 1: average of the first 2, maximum of the second 4.
    # Eq. 2: S = 2*1 + 4*2, 2*3 + 4*4 = 10, 22. Eq. 3: mean 16, deviation 6, so -1, 1.
    # Eq. 4: A_S = 0.26894, 0.73106. X*A_S = (0.26894, 2.19318), (0.53788, 2.92423).
    # Eq. 5: averages 1.23106, 1.73106 and maxima 2.19318, 2.92423, both normalised to -1, 1;
    # A = sigmoid(-2), sigmoid(2) = 0.11920, 0.88080.
    module = AttentionModule(2)
    output = module(torch.tensor([[[1.0, 3.0], [2.0, 4.0]]]))
    close(module.attention, [[0.11920, 0.88080]])
    close(output, [[[0.03206, 0.26143], [0.47377, 2.57566]]])


def test_groups_apply_to_spatial_attention_only():
    # Four channels are two groups of two; the second group repeats the first, twice as large. Its similarity
    # is four times larger, normalised the same: A_S as above. Averages are a, b, 2a, 2b over all channels.
    module = AttentionModule(4)
    assert module.groups == 2
    group = torch.tensor([[1.0, 3.0], [2.0, 4.0]])
    module(torch.cat([group, 2 * group])[None])
    means = np.array([1.23106, 1.73106, 2.46212, 3.46212])
    tops = np.array([2.19318, 2.92423, 4.38635, 5.84847])
    total = (means - means.mean()) / means.std() + (tops - tops.mean()) / tops.std()
    close(module.attention, [(1 / (1 + np.exp(-total))).astype(np.float32).tolist()])


def test_an_odd_group_pools_the_smaller_half_by_average():
    # Three channels, one group: channel 0 by average (1), channels 1 and 2 by maximum (2, 0).
    # S = 1*0 + 2*2 + 0, 1*2 + 2*0 + 0 = 4, 2: normalised 1, -1.
    module = AttentionModule(3)
    module.groups = 1
    maps = torch.tensor([[[0.0, 2.0], [2.0, 0.0], [0.0, -1.0]]])
    close(module.spatial_attention(maps)[0, 0], [0.73106, 0.26894])


def test_the_outputs_of_a_linear_layer_are_maps_of_one_position():
    # One position: the similarity is its own mean, so A_S = 0.5. X*A_S = 1, 3: normalised -1, 1, twice.
    module = AttentionModule(2)
    close(module(torch.tensor([[2.0, 6.0]])), [[2 * 0.5 * 0.11920, 6 * 0.5 * 0.88080]])


@pytest.mark.parametrize(
    ("channels", "groups"),
    [(1, 1), (2, 1), (3, 3), (6, 3), (9, 3), (12, 6), (16, 8), (19, 1), (64, 8), (200, 5)],
)
def test_the_number_of_spatial_groups_divides_the_channels(channels, groups):
    # 200 = 8 * 25 leaves odd groups, 5 * 40 does not.
    assert spatial_groups(channels) == groups


@pytest.mark.parametrize("shape", [(2, 4, 3, 3), (2, 4), (2, 4, 5), (1, 1), (1, 1, 2, 2)])
def test_training_has_finite_gradients_even_on_constant_maps(shape):
    module = AttentionModule(shape[1])
    x = torch.ones(shape, requires_grad=True)
    module(x).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters())


def test_attention_behind_conv2_of_two_nn_adds_its_group_norms_and_nothing_else():
    # A weight and a bias for each of 64 channels in two norms: 256, 0.015% of 1,663,370.
    module = build_model(ModelSpec(name="two-nn", input_shape=(1, 28, 28), num_classes=10))
    with attach(module, ["conv2"]) as attached:
        assert sum(parameter.numel() for parameter in attached.parameters()) == 256
    with attach(module, ["conv1", "conv2", "linear1"]) as attached:
        assert parameter_count(attached.modules) == 2_432


def test_after_removal_the_network_is_exactly_the_plain_one():
    module, x = two_nn(), torch.rand(2, 1, 8, 8)
    names, plain = list(module.state_dict()), module(x)
    with attach(module, ["conv2"]):
        assert list(module.state_dict()) == names
        assert not torch.allclose(module(x), plain)
    assert torch.equal(module(x), plain)
    assert not module.conv2._forward_hooks


def test_attention_learns_with_the_network():
    module, x = two_nn(), torch.rand(4, 1, 8, 8)
    with attach(module, ["conv2", "linear1"]) as attached:
        module(x).square().sum().backward()
        assert all(parameter.grad is not None for parameter in attached.parameters())


def test_the_score_of_a_layer_that_is_used_twice_is_the_mean_of_both():
    """As a head is on each level of a detector; a trial with fewer examples does not count."""
    layer, small, large = nn.Conv2d(1, 4, 3), torch.rand(2, 1, 4, 4), torch.rand(2, 1, 8, 8)
    module = nn.ModuleDict({"layer": layer})
    seen = []
    with attach(module, ["layer"]) as attached:
        for maps in (small, large):
            layer(maps)
            seen.append(attached.take_last()["layer"])
        layer(small[:1])
        layer(small)
        layer(large)
        attached.observe()
        scores = attached.scores()["layer"]
        assert attached.take_last() == {}
    np.testing.assert_allclose(scores, ((seen[0] + seen[1]) / 2).mean(0), rtol=1e-6)
    assert not torch.allclose(seen[0], seen[1])


def test_scores_count_each_example_once():
    module = two_nn()
    small, large = torch.rand(1, 1, 8, 8), torch.rand(3, 1, 8, 8)
    with attach(module, ["conv2"]) as attached:
        for batch in (small, large):
            module(batch)
            attached.observe()
        by_batch = attached.scores()["conv2"]
        attached.reset()
        module(torch.cat([small, large]))
        attached.observe()
        at_once = attached.scores()["conv2"]
    assert by_batch.dtype == np.float32
    assert by_batch.shape == (64,)
    np.testing.assert_allclose(by_batch, at_once, rtol=1e-4)


def test_scores_before_any_batch_are_refused():
    with attach(two_nn(), ["conv2"]) as attached, pytest.raises(InvariantError, match="no batch"):
        attached.scores()


def test_a_layer_inside_a_block_can_be_named():
    module = nn.Sequential(nn.Sequential(nn.Conv2d(1, 4, 1)), nn.Flatten())
    with attach(module, ["0.0"]) as attached:
        module(torch.rand(2, 1, 3, 3))
        attached.observe()
        assert attached.scores()["0.0"].shape == (4,)


def test_a_linear_layer_over_sequences_has_its_channels_last():
    module = nn.Sequential(nn.Linear(3, 4))
    with attach(module, ["0"]) as attached:
        assert module(torch.rand(2, 5, 3)).shape == (2, 5, 4)
        attached.observe()
        assert attached.scores()["0"].shape == (4,)


def test_an_unknown_layer_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'conv2'"):
        attach(two_nn(), ["conv_2"])
