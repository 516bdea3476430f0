"""Partitions of data: every index once, repeatable, and as uneven as configured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_client.data.dataset import make_labelled_data
from edge_client.data.partition import (
    PARTITIONS,
    Partition,
    holdout,
    parse_partition,
    partition_indices,
    share,
    split_indices,
)
from schemas.errors import ConfigError

SPECS = ("iid", "dirichlet(0.1)", "dirichlet(100)", "shards(2)", "paired", "blocks")


@given(
    labels=st.lists(st.integers(0, 4), max_size=60),
    spec=st.sampled_from(SPECS),
    count=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
def test_every_index_once_and_repeatable(labels: list[int], spec: str, count: int, seed: int) -> None:
    array, partition = np.asarray(labels, np.int64), parse_partition(spec)
    if partition.name == "shards" and 2 * count > len(labels):
        with pytest.raises(ConfigError, match="more than"):
            partition_indices(array, partition, count=count, seed=seed)
        return
    if partition.name == "paired" and (count + 1) // 2 > len(set(labels)):
        with pytest.raises(ConfigError, match="more than"):
            partition_indices(array, partition, count=count, seed=seed)
        return
    shares = partition_indices(array, partition, count=count, seed=seed)
    assert len(shares) == count
    assert sorted(np.concatenate(shares)) == list(range(len(labels)))
    again = partition_indices(array, partition, count=count, seed=seed)
    assert all((first == second).all() for first, second in zip(shares, again, strict=True))


def test_seeds_matter() -> None:
    labels = np.arange(100) % 10
    first, second = (partition_indices(labels, Partition("iid"), count=2, seed=seed)[0] for seed in (1, 2))
    assert (first != second).any()


def test_the_global_random_generator_is_not_changed() -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    for spec in SPECS:
        partition_indices(np.arange(100) % 10, parse_partition(spec), count=5, seed=1)
    assert (np.random.get_state()[1] == before).all()  # type: ignore[index]


def test_iid_shares_differ_by_one_at_most() -> None:
    sizes = [
        len(part) for part in partition_indices(np.zeros(11, np.int64), Partition("iid"), count=3, seed=0)
    ]
    assert sorted(sizes) == [3, 4, 4]


def test_shards_by_hand() -> None:
    # Labels 1 0 1 0 sorted (stable): indices 1 3 0 2. Two clients with one shard each: {1, 3} and {0, 2}.
    labels = np.array([1, 0, 1, 0])
    shares = partition_indices(labels, Partition("shards", 1), count=2, seed=0)
    assert sorted(tuple(part) for part in shares) == [(0, 2), (1, 3)]


def test_two_shards_are_two_classes_at_most() -> None:
    # 10 classes of 20, 10 clients with 2 shards each: 20 shards of 10, each within one class.
    labels = np.repeat(np.arange(10), 20)
    for part in partition_indices(labels, Partition("shards", 2), count=10, seed=3):
        assert len(part) == 20
        assert len(np.unique(labels[part])) <= 2


def test_paired_clients_hold_the_same_labels_and_no_other_pair_does() -> None:
    # 5 clients form 3 pairs with labels 0 1, 2 3 and 4 5, 4 examples each; the fifth client has no partner.
    labels = np.repeat(np.arange(6), 4)
    shares = partition_indices(labels, Partition("paired"), count=5, seed=2)
    assert [len(part) for part in shares] == [4, 4, 4, 4, 8]
    assert [
        set(labels[part]) <= set(own)
        for part, own in zip(shares, ([0, 1], [0, 1], [2, 3], [2, 3], [4, 5]), strict=True)
    ] == [True] * 5


def test_blocks_are_contiguous_parts_in_the_order_of_the_source() -> None:
    # 8 examples for 3 clients: 3, 3 and 2, whatever their labels and the seed.
    labels = np.array([2, 0, 1, 0, 2, 1, 1, 0])
    for seed in (0, 1):
        shares = partition_indices(labels, Partition("blocks"), count=3, seed=seed)
        assert [part.tolist() for part in shares] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_blocks_of_data_ordered_by_speaker_are_one_speakers_each() -> None:
    # 3 speakers of 4 examples and 6 clients: two clients per speaker, each with 2 consecutive examples.
    speakers = np.repeat([0, 1, 2], 4)
    shares = partition_indices(np.arange(12) % 2, Partition("blocks"), count=6, seed=0)
    assert [speakers[part].tolist() for part in shares] == [[0, 0], [0, 0], [1, 1], [1, 1], [2, 2], [2, 2]]


def test_small_alpha_is_uneven_and_large_alpha_is_even() -> None:
    labels = np.repeat(np.arange(10), 100)

    def share_of_largest_class(alpha: float) -> float:
        parts = partition_indices(labels, Partition("dirichlet", alpha), count=10, seed=0)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts if len(part)]))

    assert share_of_largest_class(0.1) > 0.4
    # Even shares hold a tenth of each class.
    assert share_of_largest_class(1000) < 0.13


def test_dirichlet_may_leave_a_client_empty() -> None:
    sizes = [
        len(part)
        for part in partition_indices(np.zeros(10, np.int64), Partition("dirichlet", 0.01), count=20, seed=0)
    ]
    assert sum(sizes) == 10
    assert 0 in sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iid", Partition("iid")),
        ("IID", Partition("iid")),
        ("dirichlet(0.1)", Partition("dirichlet", 0.1)),
        (" dirichlet( alpha = 0.1 ) ", Partition("dirichlet", 0.1)),
        ("shards(2)", Partition("shards", 2)),
        ("shards(shards=2)", Partition("shards", 2)),
        ("blocks", Partition("blocks")),
    ],
)
def test_partitions_are_read(text: str, expected: Partition) -> None:
    assert parse_partition(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichle(0.1)", "did you mean 'dirichlet'"),
        ("dirichlet", r"is written dirichlet\(alpha=...\)"),
        ("dirichlet(beta=1)", r"is written dirichlet\(alpha=...\)"),
        ("iid(2)", "is written iid"),
        ("blocks(2)", "is written blocks"),
        ("dirichlet(x)", "'x' is not a number"),
        ("dirichlet(0)", "above 0"),
        ("dirichlet(nan)", "above 0"),
        ("shards(1.5)", "whole"),
        ("dirichlet(0.1", "is not of the form"),
        ("", "is not of the form"),
    ],
)
def test_wrong_partitions_are_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_partition(text)


def test_each_partition_is_named_as_it_is_parsed() -> None:
    for name, (_, number) in PARTITIONS.items():
        assert parse_partition(f"{name}({number}=1)" if number else name).name == name


def test_share_is_one_client_of_the_partition() -> None:
    data = make_labelled_data(np.arange(12, dtype=np.uint8).reshape(12, 1, 1, 1), np.arange(12) % 3)
    shares = [share(data, Partition("iid"), index=index, count=4, seed=5) for index in range(4)]
    assert sorted(int(pixel) for part in shares for pixel in part.images.ravel()) == list(range(12))
    assert all(part.class_names == ("0", "1", "2") for part in shares)
    with pytest.raises(ConfigError, match="client 4 of 4"):
        share(data, Partition("iid"), index=4, count=4, seed=5)
    with pytest.raises(ConfigError, match="among 0 clients"):
        partition_indices(data.labels, Partition("iid"), count=0, seed=0)


@pytest.mark.parametrize(
    ("count", "expected"), [(0, (0, 0)), (1, (1, 0)), (2, (1, 1)), (3, (2, 1)), (10, (8, 2))]
)
def test_holdout_sizes(count: int, expected: tuple[int, int]) -> None:
    data = make_labelled_data(
        np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1), np.zeros(count, np.int64)
    )
    train, held = holdout(data, seed=1)
    assert (len(train), len(held)) == expected
    assert sorted(np.concatenate([train.images, held.images]).ravel()) == list(range(count))


@given(
    labels=st.lists(st.integers(0, 6), min_size=2, max_size=80),
    fraction=st.sampled_from((0.05, 0.2, 0.5, 0.9)),
    seed=st.integers(0, 2**32),
)
def test_every_class_of_two_or_more_has_an_example_on_each_side(
    labels: list[int], fraction: float, seed: int
) -> None:
    array = np.asarray(labels, np.int64)
    train, held = split_indices(np.arange(len(array)), array, fraction=fraction, seed=seed)
    assert sorted([*train, *held]) == list(range(len(array)))
    assert len(train) >= 1 <= len(held)
    classes, sizes = np.unique(array, return_counts=True)
    for label in classes[sizes > 1]:
        assert label in array[train]
        assert label in array[held]
    # Where the bounds of every class allow it, the fraction is kept exactly.
    if (sizes * fraction >= 1).all() and (sizes * (1 - fraction) >= 1).all():
        assert len(held) == round(len(array) * fraction)
    again = split_indices(np.arange(len(array)), array, fraction=fraction, seed=seed)
    assert (again[1] == held).all()


def test_the_hold_out_of_uneven_classes() -> None:
    # 12, 6 and 2 examples: a fifth of 20 is 4, with shares 2.4, 1.2 and 0.4; each class gets at least one.
    labels = np.repeat(np.arange(3), (12, 6, 2))
    _, held = split_indices(np.arange(20), labels, fraction=0.2, seed=0)
    assert np.bincount(labels[held]).tolist() == [2, 1, 1]
    # The only example of a class is trained on if other classes have enough examples to hold out.
    _, held = split_indices(np.arange(11), np.array([0] * 10 + [1]), fraction=0.2, seed=0)
    assert 10 not in held


def test_nothing_held_out_leaves_the_indices_as_they_are() -> None:
    indices = np.array([5, 3, 9])
    train, held = split_indices(indices, np.array([0, 1, 0]), fraction=0, seed=3)
    assert (train.tolist(), held.tolist()) == ([5, 3, 9], [])


def test_holdout_fractions() -> None:
    data = make_labelled_data(np.zeros((10, 1, 1, 1), np.uint8), np.zeros(10, np.int64))
    assert len(holdout(data, fraction=0, seed=0)[1]) == 0
    assert len(holdout(data, fraction=0.99, seed=0)[0]) == 1
    with pytest.raises(ConfigError, match="not within"):
        holdout(data, fraction=1, seed=0)
