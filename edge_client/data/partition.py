"""Partitions of a data set among devices, from even to very uneven, and each share's hold-out.

`dirichlet(alpha)` is the LDA partition of ATTENDING (section 4.1): each client gets a part of each class,
drawn from Dirichlet(alpha). `shards(k)` is McMahan et al. 2017, section 3: examples sorted by label are cut
into k shards per client and dealt at random. `paired` is the paired population of IGFL (Huang et al. 2021,
section 5.4): every two clients hold the same labels, which no other pair holds. `blocks` cuts the examples in
the source's order, for data whose order means something: speakers, places, days.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData, Labels
from schemas.errors import ConfigError, nearest

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """A partition: one of `PARTITIONS` by name, with its number if it takes one."""

    name: str
    value: float = 0.0


def _present(labels: Labels) -> Labels:
    """The labels that occur, in ascending order; numpy's `unique` imports 2 MB of masked arrays."""
    return np.flatnonzero(np.bincount(labels))


def _iid(labels: Labels, count: int, value: float, rng: np.random.Generator) -> list[Indices]:
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), count)]


def _dirichlet(labels: Labels, count: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    shares: list[list[Indices]] = [[] for _ in range(count)]
    for label in _present(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(rng.dirichlet(np.full(count, alpha)))[:-1] * len(members)
        for share, part in zip(shares, np.split(members, cuts.astype(np.int64)), strict=True):
            share.append(part)
    return [np.sort(np.concatenate([*share, np.empty(0, np.int64)])) for share in shares]


def _shards(labels: Labels, count: int, per_client: float, rng: np.random.Generator) -> list[Indices]:
    total = count * int(per_client)
    if total > len(labels):
        raise ConfigError(f"{total} shards for {count} clients are more than {len(labels)} examples")
    shards = np.array_split(np.argsort(labels, kind="stable"), total)
    dealt = rng.permutation(total).reshape(count, -1)
    return [np.sort(np.concatenate([shards[shard] for shard in row])) for row in dealt]


def _split_in_pairs(labels: Labels, count: int, value: float, rng: np.random.Generator) -> list[Indices]:
    """Labels go to pairs in order; each pair's examples go evenly and at random to its two clients."""
    classes, pairs = _present(labels), -(-count // 2)
    if pairs > len(classes):
        raise ConfigError(f"{count} clients are {pairs} pairs, more than the {len(classes)} labels")
    shares: list[Indices] = []
    for pair, own in enumerate(np.array_split(classes, pairs)):
        members = rng.permutation(np.flatnonzero(np.isin(labels, own)))
        shares += np.array_split(members, min(2, count - 2 * pair))
    return [np.sort(part) for part in shares]


def _blocks(labels: Labels, count: int, value: float, rng: np.random.Generator) -> list[Indices]:
    """Contiguous parts in the source's order; if they cannot be equal, the first have one example more."""
    return np.array_split(np.arange(len(labels)), count)


Deal = Callable[[Labels, int, float, np.random.Generator], list[Indices]]

PARTITIONS: Mapping[str, tuple[Deal, str | None]] = {
    "iid": (_iid, None),
    "dirichlet": (_dirichlet, "alpha"),
    "shards": (_shards, "shards"),
    "paired": (_split_in_pairs, None),
    "blocks": (_blocks, None),
}

_TEXT = re.compile(r"\s*([A-Za-z]+)\s*(?:\(\s*(?:([a-z]+)\s*=\s*)?([^()=]+?)\s*\))?\s*")


def parse_partition(text: str) -> Partition:
    """Parse `iid`, `blocks`, `paired`, `dirichlet(0.1)`, `dirichlet(alpha=0.1)` or `shards(2)`.

    Raises `ConfigError` for anything else.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ConfigError(f"partition {text!r} is not of the form iid, blocks, dirichlet(0.1) or shards(2)")
    name, key, number = match[1].lower(), match[2], match[3]
    if name not in PARTITIONS:
        raise ConfigError(f"unknown partition {name!r}{nearest(name, PARTITIONS)}")
    _, expected = PARTITIONS[name]
    if (number is None) != (expected is None) or key not in (None, expected):
        form = f"{name}({expected}=...)" if expected else name
        raise ConfigError(f"partition {text!r} is written {form}")
    return Partition(name) if number is None else Partition(name, _positive(text, number))


def _positive(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError as error:
        raise ConfigError(f"partition {text!r}: {number!r} is not a number") from error
    if not 0 < value < float("inf"):
        raise ConfigError(f"partition {text!r}: the number must be above 0 and finite")
    if text.strip().lower().startswith("shards") and value != int(value):
        raise ConfigError(f"partition {text!r}: shards per client are whole")
    return value


def partition_indices(
    labels: Labels, partition: Partition, *, count: int, seed: int, origins: Indices | None = None
) -> list[Indices]:
    """`count` sorted index arrays that together contain each of the N indices exactly once.

    Examples of one origin go to one client. A share may be empty. Raises `ConfigError` if the partition is
    impossible.
    """
    if count < 1:
        raise ConfigError(f"cannot share data among {count} clients")
    if origins is not None:
        units = units_of(labels, origins)
        if count > len(units):
            raise ConfigError(
                f"{count} clients are more than {len(units)} recordings", remedy="one goes to one client"
            )
        shares = partition_indices(units.labels, partition, count=count, seed=seed)
        return [units.examples(share) for share in shares]
    deal, _ = PARTITIONS[partition.name]
    return deal(labels, count, partition.value, np.random.default_rng(seed))


def share(data: LabelledData, partition: Partition, *, index: int, count: int, seed: int) -> LabelledData:
    """The share of client `index` of `count`; `ConfigError` if there is no such client."""
    if not 0 <= index < count:
        raise ConfigError(f"client {index} of {count}: the index must be 0 to {count - 1}")
    shares = partition_indices(data.strata, partition, count=count, seed=seed, origins=data.origins)
    return data.subset(shares[index])


HELD, NEW, TRAINED = 0, 1, 2  # the side of an example before its data grew


def holdout(data: LabelledData, *, fraction: float = 0.2, seed: int) -> tuple[LabelledData, LabelledData]:
    """Split into (train, held out) as `split_indices` does."""
    every, origins = np.arange(len(data)), data.origins
    train, held = split_indices(every, data.strata, fraction=fraction, seed=seed, origins=origins)
    return data.subset(train), data.subset(held)


def split_indices(
    indices: Indices,
    labels: Labels,
    *,
    fraction: float,
    seed: int,
    before: Indices | None = None,
    origins: Indices | None = None,
) -> tuple[Indices, Indices]:
    """Split [N] with labels [N] into (train, held out), with the fraction held out of every class.

    A class with at least two examples, and any data with at least two, has one on each side, even if that
    exceeds the fraction. `before` [N], by default all `NEW`, is the earlier side of each example: `HELD`
    stays held out, `TRAINED` stays in training and comes first. With `origins` [N] these are the examples of
    the rule, and all of one are on the side of most of them. Raises `ConfigError` unless 0 <= fraction < 1;
    at 0 nothing is held out.
    """
    if not 0 <= fraction < 1:
        raise ConfigError(f"hold-out fraction {fraction} is not within 0 to 1")
    count = len(indices)
    if count < 2 or fraction == 0:
        return indices[:], indices[:0]
    before = np.full(count, NEW) if before is None else before
    if origins is not None:
        units = units_of(labels, origins)
        sides = units.sides(before - NEW) + NEW
        parts = split_indices(np.arange(len(units)), units.labels, fraction=fraction, seed=seed, before=sides)
        train, held = (indices[units.examples(part)] for part in parts)
        return train, held
    order = np.random.default_rng(seed).permutation(count)
    order = order[np.lexsort((before[order], labels[order]))]
    counts = np.bincount(labels)
    sizes = counts[counts > 0]
    held = _held_of_classes(sizes, min(count - 1, max(1, round(count * fraction))))
    place = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    was = before[order]
    aside = (was == HELD) | ((was == NEW) & (place < np.repeat(held, sizes)))
    return indices[np.sort(order[~aside])], indices[np.sort(order[aside])]


def _held_of_classes(sizes: Indices, total: int) -> Indices:
    """How many examples of each class are held out, `total` in all if the bounds of the classes allow it.

    Largest remainders (Hamilton) decide; a class with one example is used only if no other has more.
    """
    least = (sizes > 1).astype(np.int64)
    most = np.where(sizes > 1, sizes - 1, 0)
    shares = total * sizes / sizes.sum()
    held: Indices = np.clip(np.floor(shares).astype(np.int64), least, most)
    while held.sum() != total:
        step = 1 if held.sum() < total else -1
        open_to = held < most if step > 0 else held > least
        if not open_to.any():
            break
        held[np.argmax(np.where(open_to, step * (shares - held), -np.inf))] += step
    singles = np.flatnonzero(sizes == 1)
    held[singles[: max(0, total - int(held.sum()))]] = 1
    return held


@dataclass(frozen=True, eq=False)
class Units:
    """The unit of each example [N], from 0, and each unit's label [U].

    Examples of one origin, such as the windows of a recording, are a unit that stays together.
    """

    of_examples: Indices
    labels: Indices

    def __len__(self) -> int:
        return len(self.labels)

    def examples(self, units: Indices) -> Indices:
        """The sorted indices of all examples of these units."""
        chosen = np.zeros(len(self), np.bool_)
        chosen[units] = True
        return np.flatnonzero(chosen[self.of_examples])

    def sides(self, sides: Indices) -> Indices:
        """The side of each unit, -1, 0 or 1, that most of its examples [N] are on."""
        return np.sign(np.bincount(self.of_examples, sides, minlength=len(self))).astype(np.int64)


def units_of(labels: Indices, origins: Indices) -> Units:
    """The units of examples [N] with these labels and origins, in the order of their first examples.

    An origin whose class has no other is not kept together: that class would be on one side alone. An origin
    has the label of its first example.
    """
    first = dict[int, int]()
    for place, origin in enumerate(origins.tolist()):
        first.setdefault(origin, place)
    heads = np.fromiter(first.values(), np.int64, len(first))
    alone = np.bincount(labels[heads]) == 1
    keys = np.fromiter((first[origin] for origin in origins.tolist()), np.int64, len(origins))
    keys = np.where(alone[labels[keys]], np.arange(len(keys)), keys)
    is_head = keys == np.arange(len(keys))
    return Units((np.cumsum(is_head) - 1)[keys], labels[is_head])
