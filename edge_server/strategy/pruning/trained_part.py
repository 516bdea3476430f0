"""Which arrays of a network devices train (`[training] train`, `[tiers] train`); the others are frozen.

A frozen array is sent once, takes no gradient and is never sent back. A normalisation keeps its running
statistics unless they are among the trained arrays: measured on few examples, they would shift what the
frozen layers were trained with. Of an adapted array a change of low rank is trained.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, chain
from typing import TypeVar

from edge_client.compression.low_rank import factor_size, is_matrix
from edge_client.models.registry import added_to_trunk
from edge_server.strategy.aggregation.updates import is_statistic
from edge_server.strategy.pruning.own_parts import normalisation_layers
from schemas.errors import ConfigError, nearest
from schemas.strategy import Adapters
from schemas.submodel import ChannelMap

ALL, LAST, LORA = "all", "last-", "lora"
Names = frozenset[str]


@dataclass(frozen=True)
class TrainedParts:
    """The names of the trained arrays of each tier, the weakest first; None for all.

    `adapters` are those of them whose change has a low rank, tier by tier.
    """

    tiers: tuple[Names | None, ...] = (None,)
    adapters: tuple[Adapters | None, ...] = (None,)

    def of(self, tier: int) -> Names | None:
        """Those of a tier, counted from 1; a tier beyond the list counts as the last one."""
        return of_tier(self.tiers, tier)

    def adapters_of(self, tier: int) -> Adapters | None:
        return of_tier(self.adapters, tier)

    def in_order(self, tier: int, channel_map: ChannelMap) -> tuple[str, ...] | None:
        """Those of a tier in the network's order."""
        names = self.of(tier)
        return None if names is None else tuple(name for name in channel_map.parameters if name in names)

    def of_any_tier(self, channel_map: ChannelMap) -> tuple[str, ...] | None:
        """Those that any tier trains, in the network's order; None for all."""
        frozen = self.frozen(channel_map)
        return tuple(name for name in channel_map.parameters if name not in frozen) if frozen else None

    def cut(self, channel_map: ChannelMap) -> ChannelMap:
        """Where the channels are in the arrays that any tier trains."""
        trained = self.of_any_tier(channel_map)
        return channel_map if trained is None else channel_map.of_parameters(trained)

    def count_trained(self, channel_map: ChannelMap) -> tuple[int, ...]:
        """How many numbers of the whole network are trained, tier by tier; empty if all are."""
        if not any(self.tiers):
            return ()
        shapes = {name: layout.shape for name, layout in channel_map.parameters.items()}
        tiers = range(1, max(len(self.tiers), len(self.adapters)) + 1)
        return tuple(_numbers(shapes, self.of(tier), self.adapters_of(tier)) for tier in tiers)

    def by_tiers(self, channel_map: ChannelMap) -> dict[str, str]:
        """Of each array that some tiers train and others do not, the first one that the same tiers train."""
        trained = [channel_map.parameters.keys() if names is None else names for names in self.tiers]
        of = {name: tuple(name in names for names in trained) for name in channel_map.parameters}
        firsts = dict[tuple[bool, ...], str]()
        return {
            name: firsts.setdefault(tiers, name)
            for name, tiers in of.items()
            if any(tiers) and not all(tiers)
        }

    def frozen(self, channel_map: ChannelMap) -> Names:
        """The arrays that no tier trains."""
        if None in self.tiers:
            return frozenset()
        return frozenset(channel_map.parameters).difference(*(names or () for names in self.tiers))


ALL_TRAINED = TrainedParts()

T = TypeVar("T")


def of_tier(values: Sequence[T], tier: int) -> T:
    """The value of a tier, counted from 1; a tier beyond the list counts as the last one."""
    return values[min(max(tier, 1), len(values)) - 1]


def _numbers(shapes: Mapping[str, tuple[int, ...]], names: Names | None, adapters: Adapters | None) -> int:
    """How many numbers are trained: of adapted arrays those of the factors."""
    trained = shapes.keys() if names is None else names
    adapted = trained & {*adapters.arrays} if adapters is not None else frozenset[str]()
    rank = adapters.rank if adapters is not None else 0
    whole = sum(math.prod(shapes[name]) for name in trained - adapted)
    return whole + sum(factor_size(shapes[name], rank) for name in adapted)


def find_trained_parts(
    statements: Sequence[Sequence[str]],
    channel_map: ChannelMap,
    head: Callable[[], str],
    *,
    ranks: Sequence[int] = (8,),
    tied: Collection[str] = (),
) -> TrainedParts:
    """The trained arrays by the statements of one tier after another, or of all tiers.

    A statement has "all", "head" (the output layer, whose name is `head()`, or what a detector adds to its
    trunk), "norms" (scales and shifts of normalisations), "biases", "last-N" (the last N blocks before the
    head and what follows them; a block is what the network numbers, such as `layer3.1`, or a layer if it
    numbers nothing), and globs of arrays, layers or blocks.
    Statistics are trained with "all", by a glob that names them, or along with layers that a detector adds.
    "lora" adapts the weights of linear layers and of convolutions of one position by changes of the tier's
    rank, as far as no other item names them; one that is `tied` to another, or has no more numbers than its
    factors, is trained whole.
    "lora:last-4" adapts those of a part. Raises `ConfigError` for an item that matches nothing.
    """
    tiers = range(1, max(len(statements), len(ranks) if any(map(is_lora, chain(*statements))) else 1) + 1)
    found = [
        _names_of(of_tier(statements, tier), channel_map, head, of_tier(ranks, tier), tied) for tier in tiers
    ]
    return TrainedParts(tuple(names for names, _ in found), tuple(adapters for _, adapters in found))


def _names_of(
    items: Sequence[str], channel_map: ChannelMap, head: Callable[[], str], rank: int, tied: Collection[str]
) -> tuple[Names | None, Adapters | None]:
    if ALL in items:
        return None, None
    others = frozenset(
        name for item in items if not is_lora(item) for name in _match_item(item, channel_map, head)
    )
    matrices = [name for item in items if is_lora(item) for name in _matrices(item, channel_map, head)]
    others |= _drawn_statistics(others, channel_map)
    trained, shapes = others.union(matrices), channel_map.parameters
    adapted = tuple(
        name
        for name in dict.fromkeys(matrices)
        if name not in others
        and name not in tied
        and factor_size(shapes[name].shape, rank) < math.prod(shapes[name].shape)
    )
    adapters = Adapters(rank=rank, arrays=adapted) if adapted else None
    if all(map(is_statistic, trained)):
        raise ConfigError(
            f"{', '.join(items)} trains no weight",
            key="[training] train",
            remedy='name an array that is learned, "head" for instance',
        )
    return None if trained == channel_map.parameters.keys() and adapters is None else trained, adapters


def _drawn_statistics(trained: Names, channel_map: ChannelMap) -> Names:
    """The statistics of trained normalisations that a detector adds to its trunk, which nobody measured."""
    drawn = added_to_trunk(channel_map.parameters)
    layers = {name.rpartition(".")[0] for name in trained & drawn}
    return frozenset(name for name in drawn if is_statistic(name) and name.rpartition(".")[0] in layers)


def is_lora(item: str) -> bool:
    """Whether an item asks for changes of low rank, of the whole network or of a part: "lora:last-4"."""
    return item == LORA or item.startswith(f"{LORA}:")


def _matrices(item: str, channel_map: ChannelMap, head: Callable[[], str]) -> list[str]:
    """The weights of linear layers, and of convolutions whose kernel is one position, of an item's part."""
    part = item.removeprefix(LORA).removeprefix(":")
    names = _match_item(part, channel_map, head) if part else [*channel_map.parameters]
    shapes = channel_map.parameters
    found = [name for name in names if name.endswith("weight") and is_matrix(shapes[name].shape)]
    if not found:
        raise ConfigError(
            f"'{item}': there is no linear layer, and no convolution of one position",
            key="[training] train",
            remedy=f"leave out '{item}'",
        )
    return found


def _match_item(item: str, channel_map: ChannelMap, head: Callable[[], str]) -> list[str]:
    weights = [name for name in channel_map.parameters if not is_statistic(name)]
    if item == "head":
        return _head(weights, head)
    if item == "norms":
        return _of_layers(weights, set(normalisation_layers(channel_map)))
    if item == "biases":
        found = [name for name in weights if name.rpartition(".")[2] == "bias"]
    elif item.startswith(LAST) and item.removeprefix(LAST).isdecimal():
        return [*_last(int(item.removeprefix(LAST)), weights), *_head(weights, head)]
    else:
        names = channel_map.parameters if "running_" in item else weights
        found = [name for name in names if any(fnmatchcase(part, item) for part in _prefixes(name))]
    if not found:
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in weights))
        raise ConfigError(
            f"'{item}' matches no array{nearest(item, ['all', 'head', 'norms', 'biases', LORA, *layers])}",
            key="[training] train",
            remedy=f"name layers: {', '.join(layers[-3:])} are the last",
        )
    return found


def _head(weights: Sequence[str], head: Callable[[], str]) -> list[str]:
    added = added_to_trunk(weights)
    return [name for name in weights if name in added] or _of_layers(weights, {head()})


def _last(count: int, weights: Sequence[str]) -> list[str]:
    added = added_to_trunk(weights)
    weights = [name for name in weights if name not in added]
    blocks = [_block(name) for name in weights]
    numbered = list(dict.fromkeys(filter(None, blocks)))
    if not numbered:
        blocks = [name.rpartition(".")[0] for name in weights]
        numbered = list(dict.fromkeys(blocks))
    if not 1 <= count <= len(numbered):
        raise ConfigError(
            f"'{LAST}{count}': the network has {len(numbered)} blocks ({numbered[0]} to {numbered[-1]})",
            key="[training] train",
            remedy=f'set "{LAST}{len(numbered)}" or less',
        )
    return list(weights[blocks.index(numbered[-count]) :])


def _block(name: str) -> str:
    """The shortest part of an array's name that ends with a number; empty without one."""
    return next((part for part in _prefixes(name) if part.rpartition(".")[2].isdecimal()), "")


def _prefixes(name: str) -> Iterable[str]:
    """`layer1.0.conv` has `layer1`, `layer1.0` and `layer1.0.conv`."""
    return accumulate(name.split("."), "{}.{}".format)


def _of_layers(names: Iterable[str], layers: set[str]) -> list[str]:
    return [name for name in names if name.rpartition(".")[0] in layers]
