"""What `edge-server check` says of adding a recipe's updates in parts."""

import pytest

from edge_server.config.checks.summability import separate, summability
from edge_server.config.load import load_config


@pytest.mark.parametrize("recipe", ["attending", "fedavg", "fedprox", "heterofl", "fedbuff"])
def test_sums_may_be_added_in_parts(recipe):
    config = load_config(recipe)
    assert not separate(config)
    assert config.make_strategy().summed
    assert summability(config).startswith("sums: exact")


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("median", "sums: combiner 'median' needs each update: one process adds them"),
        (
            "adafl-scaffold",
            "sums: selection 'attention' and group 'control' need each update: one process adds them",
        ),
        (
            "dp-fedavg",
            "sums: differential privacy, which clips each update, needs each update: one process adds them",
        ),
    ],
)
def test_what_needs_each_update_is_named(recipe, words):
    config = load_config(recipe)
    assert summability(config) == words
    assert not config.make_strategy().summed
