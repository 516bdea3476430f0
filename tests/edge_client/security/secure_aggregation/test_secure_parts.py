"""Unit tests of secret sharing, quantisation, segments and keys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import expand, extract
from edge_client.security.secure_aggregation import keys
from edge_client.security.secure_aggregation.masked_figures import distinct, join, partition, split
from edge_client.security.secure_aggregation.masks import Scale, most_weight, quantise, weighted_mean
from schemas.errors import ConfigError, PeerError
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_server.security.secure_aggregation.cohorts import CHANNELS, TIERS


def test_the_field_is_a_prime_above_every_secret():
    # Fermat's test with several bases; p - 1 = 2^256 + 296
    assert all(pow(base, keys.PRIME - 1, keys.PRIME) == 1 for base in (2, 3, 5, 7, 11, 13, 17))
    assert keys.PRIME.bit_length() == 257


def test_a_polynomial_calculated_by_hand():
    # 2 shares are needed: f(x) = 5 + 7 x, so f(1) = 12, f(3) = 26; at 0: 12 * 3/2 - 26 * 1/2 = 5
    shares = keys.split((5).to_bytes(32, "big"), 2, [1, 3], (7).to_bytes(48, "big"))
    assert shares == {1: 12, 3: 26}
    assert keys.combine(shares, keys.weights_at_zero([1, 3])) == (5).to_bytes(32, "big")


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 8), st.integers(0, 4), st.randoms())
def test_any_sufficient_set_of_shares_restores_the_secret(secret, needed, spare, random):
    randomness = random.randbytes(keys.random_bytes_needed(needed))
    shares = keys.split(secret, needed, range(1, needed + spare + 1), randomness)
    chosen = dict(random.sample(sorted(shares.items()), needed))
    assert keys.combine(chosen, keys.weights_at_zero(list(chosen))) == secret


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(2, 6), st.randoms())
def test_with_one_share_missing_every_secret_is_possible(secret, needed, random):
    """For every secret there is a polynomial through the known shares, so they reveal nothing."""
    randomness = random.randbytes(keys.random_bytes_needed(needed))
    known = keys.split(secret, needed, range(1, needed), randomness)
    other = int.from_bytes(random.randbytes(32), "big")
    weights = keys.weights_at_zero([*known, needed])
    rest = other - sum(weights[point] * share for point, share in known.items())
    last = rest * pow(weights[needed], -1, keys.PRIME) % keys.PRIME
    assert keys.combine({**known, needed: last}, weights) == other.to_bytes(32, "big")


def test_shares_of_different_secrets_are_refused():
    shares = {1: 0, 2: 1}  # f(x) = x - 1, so f(0) = -1 = 2^256 + 296 in the field
    with pytest.raises(ValueError, match="do not fit"):
        keys.combine(shares, keys.weights_at_zero([1, 2]))


def test_a_share_at_point_zero_is_refused():
    with pytest.raises(ValueError, match="distinct and not 0"):
        keys.split(bytes(32), 1, [0], b"")


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 500),
    st.lists(st.tuples(st.floats(-50, 50, width=32), st.integers(0, 10**6)), min_size=1, max_size=20),
    st.floats(0.01, 100),
)
def test_the_error_of_a_mean_is_at_most_half_a_step_per_holder(spare, numbers, value_range):
    scale = Scale(value_range, most_weight(10**5, len(numbers) + spare), len(numbers) + spare)
    total = np.zeros(2, np.uint32)
    for value, weight in numbers:
        total += quantise(np.array([value], np.float32), weight, scale)
    mean, mass = weighted_mean(total, scale)
    capped = [min(weight, scale.max_weight) for _, weight in numbers]
    clipped = [max(-value_range, min(value_range, float(np.float32(value)))) for value, _ in numbers]
    assert mass == sum(capped)
    if mass:
        plain = sum(w * x for w, x in zip(capped, clipped, strict=True)) / mass
        assert abs(mean[0] - plain) <= len(numbers) / 2 * scale.step / mass * (1 + 1e-9) + 1e-12


def test_the_largest_numbers_of_a_whole_cohort_do_not_overflow():
    scale = Scale(1.0, 1, 3)  # L = floor((2^31 - 1) / 3) = 715827882
    whole = quantise(np.array([1, -1], np.float32), 1, scale)
    assert whole.tolist() == [715827882, 2**32 - 715827882, 1]
    mean, weight = weighted_mean(whole + whole + whole, scale)
    assert (mean.tolist(), weight) == ([1.0, -1.0], 3)


def test_a_device_without_examples_contributes_zeros():
    assert quantise(np.array([3.0], np.float32), 0, Scale(4.0, 10, 3)).tolist() == [0, 0]


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(PeerError, match="not finite"):
        quantise(np.array([np.nan], np.float32), 1, Scale(4.0, 1, 3))


def test_segments_join_to_the_update_that_was_split():
    specs = distinct(TIERS)
    parts, labels = partition(specs, CHANNELS)
    whole = {
        name: np.arange(np.prod(layout.shape), dtype=np.float64).reshape(layout.shape) + 1
        for name, layout in CHANNELS.parameters.items()
    }
    for spec in specs:
        vectors = split(extract(whole, spec, CHANNELS), spec, labels, CHANNELS)
        assert {index: vector.size for index, vector in vectors.items()} == {
            index: part.size for index, part in enumerate(parts) if specs.index(spec) in part.holders
        }
        expected, _ = expand(extract(whole, spec, CHANNELS), spec, CHANNELS)
        joined = join(vectors, labels)
        assert all((joined[name] == expected[name]).all() for name in whole)


def test_individually_chosen_channels_are_refused_with_the_remedy():
    with pytest.raises(ConfigError, match='pruner = "index"'):
        distinct((SubModelSpec(kept={"a": (0, 2)}),))


def test_sealed_shares_can_only_be_opened_with_the_same_key():
    sealed = keys.seal(bytes(32), b"shares")
    assert keys.unseal(bytes(32), sealed) == b"shares"
    with pytest.raises(PeerError, match="cannot be decrypted"):
        keys.unseal(bytes(31) + b"1", sealed)


def test_a_weak_public_key_is_refused():
    with pytest.raises(PeerError, match="public key"):
        keys.agree(bytes(range(32)), bytes(32))


def test_segments_of_the_papers_tiers_contain_what_each_tier_adds():
    module = build_model(ModelSpec(name="two-nn", input_shape=(1, 28, 28), num_classes=10))
    channel_map = trace_channels(module, (1, 28, 28))
    ratios = [group_ratios(entry("two-nn"), level, channel_map) for level in (0.7, 0.5, 0.3, 0.1, 0.0)]
    parts, _ = partition(distinct([prefix_spec(ratio, channel_map) for ratio in ratios]), channel_map)
    # 498,365 parameters at p = 0.7, then 834,922, 1,145,590, 1,482,147 and 1,663,370
    expected = {5: 498_365, 4: 336_557, 3: 310_668, 2: 336_557, 1: 181_223}
    assert {len(part.holders): part.size for part in parts} == expected
