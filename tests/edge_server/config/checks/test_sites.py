"""Runs with sites: what gateways cannot add is refused by name."""

import pytest

from edge_server.config.load import load_config
from schemas.errors import ConfigError

BARN = 'federation.sites=["barn"]'


@pytest.mark.parametrize("recipe", ["attending", "fedavg", "fedprox", "heterofl"])
def test_recipes_whose_updates_can_be_added_work_with_sites(recipe):
    assert load_config(recipe, [BARN]).federation.sites == ("barn",)


@pytest.mark.parametrize(
    ("recipe", "words", "named"),
    [
        ("median", [], "combiner 'median' needs each update"),
        ("adafl-scaffold", [], "selection 'attention' and group 'control' need each update"),
        ("dp-fedavg", [], "differential privacy"),
        ("fedavg", ["privacy.secure-aggregation=true"], "secure aggregation"),
        ("fedbuff", [], 'set [clients] mode = "rounds"'),
        ("fedavg", ["object-store.store=embedded"], "leave store out"),
        ("fedavg", ['federation.sites=["barn","barn"]'], "'barn' is named twice"),
    ],
)
def test_what_needs_each_update_is_refused_with_sites(recipe, words, named):
    with pytest.raises(ConfigError) as refused:
        load_config(recipe, [BARN, *words])
    assert named in str(refused.value)
    assert "[federation] sites" in str(refused.value)
