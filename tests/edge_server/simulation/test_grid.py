"""The expansion of a sweep's words."""

import pytest

from edge_server.simulation.experiments.cells import expand_grid
from schemas.errors import ConfigError


def test_several_values_give_every_combination_in_order() -> None:
    assert expand_grid(["rounds=3", "learning-rate=0.01,0.1", "batch-size=8, 16"]) == [
        ("rounds=3", "learning-rate=0.01", "batch-size=8"),
        ("rounds=3", "learning-rate=0.01", "batch-size=16"),
        ("rounds=3", "learning-rate=0.1", "batch-size=8"),
        ("rounds=3", "learning-rate=0.1", "batch-size=16"),
    ]
    assert expand_grid([]) == [()]


@pytest.mark.parametrize(
    "word",
    [
        'strategy.uplink=["int8","zstd"]',
        'strategy.weighting={name="fedrad",dynamic=false}',
        'data.source="csv:t.csv?columns=a,b"',
        r'federation.name="a\",b"',
        "federation.name='a,b'",
        "data.source=npz:it's.npz",
    ],
)
def test_commas_in_brackets_and_quotes_belong_to_the_value(word: str) -> None:
    assert expand_grid([word]) == [(word,)]


def test_whole_lists_are_values_of_a_sweep() -> None:
    assert expand_grid(['strategy.uplink=["int8","zstd"],[]']) == [
        ('strategy.uplink=["int8","zstd"]',),
        ("strategy.uplink=[]",),
    ]


@pytest.mark.parametrize(("word", "why"), [("rounds=3,", "missing"), ("rounds=3,3", "twice")])
def test_a_value_that_is_missing_or_there_twice_is_refused(word: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        expand_grid([word])
