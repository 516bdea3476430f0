"""Examples of one origin stay together in every partition and hold-out."""

import numpy as np
import pytest

from edge_client.data.partition import (
    HELD,
    NEW,
    TRAINED,
    parse_partition,
    partition_indices,
    split_indices,
    units_of,
)
from schemas.errors import ConfigError

ORIGINS = np.repeat(np.arange(20), np.arange(20) % 4 + 1)
LABELS = ORIGINS % 2  # twenty recordings of one to four examples, of two classes in turn


def test_units_are_origins_in_the_order_of_their_first_examples() -> None:
    units = units_of(np.array([1, 1, 0, 1, 0]), np.array([7, 7, 3, 2, 9]))
    assert units.of_examples.tolist() == [0, 0, 1, 2, 3]
    assert units.labels.tolist() == [1, 0, 1, 0]
    assert units.examples(np.array([2, 0])).tolist() == [0, 1, 3]


def test_the_only_origin_of_a_class_is_not_kept_together() -> None:
    units = units_of(np.array([0, 0, 1, 1, 1]), np.array([4, 4, 5, 6, 6]))
    assert units.of_examples.tolist() == [0, 1, 2, 3, 3]
    assert units.labels.tolist() == [0, 0, 1, 1]


def test_nothing_has_no_units() -> None:
    nothing = np.empty(0, np.int64)
    assert len(units_of(nothing, nothing)) == 0


@pytest.mark.parametrize("spec", ["iid", "dirichlet(0.5)", "shards(2)", "blocks"])
def test_a_recording_goes_to_one_client(spec: str) -> None:
    shares = partition_indices(LABELS, parse_partition(spec), count=4, seed=0, origins=ORIGINS)
    assert np.sort(np.concatenate(shares)).tolist() == list(range(len(LABELS)))
    assert sum(len(set(ORIGINS[share].tolist())) for share in shares) == 20


def test_recordings_of_their_own_are_dealt_as_examples_are() -> None:
    labels, partition = np.arange(30) % 3, parse_partition("dirichlet(1)")
    with_origins, without = (
        partition_indices(labels, partition, count=3, seed=4, origins=origins)
        for origins in (np.arange(30), None)
    )
    assert [share.tolist() for share in with_origins] == [share.tolist() for share in without]


def test_more_clients_than_recordings_are_refused() -> None:
    with pytest.raises(ConfigError, match="21 clients are more than 20 recordings"):
        partition_indices(LABELS, parse_partition("iid"), count=21, seed=0, origins=ORIGINS)


@pytest.mark.parametrize("seed", range(5))
def test_a_recording_is_on_one_side_and_each_class_on_both(seed: int) -> None:
    every = np.arange(len(LABELS))
    train, held = split_indices(every, LABELS, fraction=0.2, seed=seed, origins=ORIGINS)
    assert np.sort(np.concatenate([train, held])).tolist() == every.tolist()
    assert set(ORIGINS[train].tolist()).isdisjoint(ORIGINS[held].tolist())
    # Two of ten recordings of each class.
    assert np.bincount(np.unique(ORIGINS[held]) % 2).tolist() == [2, 2]


def test_a_recording_stays_on_the_side_of_most_of_its_examples() -> None:
    # The first was held out and has a new example; of the second one example was held out, two were not.
    origins = np.array([0, 0, 0, 1, 1, 1, 2, 3, 4, 5])
    before = np.array([HELD, HELD, NEW, HELD, TRAINED, TRAINED, TRAINED, TRAINED, TRAINED, TRAINED])
    train, held = split_indices(
        np.arange(10), np.zeros(10, np.int64), fraction=0.2, seed=0, before=before, origins=origins
    )
    assert (held.tolist(), train.tolist()) == ([0, 1, 2], [3, 4, 5, 6, 7, 8, 9])
