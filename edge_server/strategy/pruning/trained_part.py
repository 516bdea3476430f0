"""Which arrays of a network devices train (`[training] train`, `[tiers] train`); the others are frozen.

A frozen array is sent once, takes no gradient and is never sent back. A normalisation keeps its running
statistics unless they are among the trained arrays: measured on few examples, they would shift what the
frozen layers were trained with.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate

from edge_server.strategy.aggregation.updates import is_statistic
from edge_server.strategy.pruning.own_parts import normalisation_layers
from schemas.errors import ConfigError, nearest
from schemas.submodel import ChannelMap

ALL, LAST = "all", "last-"
Names = frozenset[str]


@dataclass(frozen=True)
class TrainedParts:
    """The names of the trained arrays of each tier, the weakest first; None for all."""

    tiers: tuple[Names | None, ...] = (None,)

    def of(self, tier: int) -> Names | None:
        """Those of a tier, counted from 1; a tier beyond the list counts as the last one."""
        return self.tiers[min(max(tier, 1), len(self.tiers)) - 1]

    def in_order(self, tier: int, channel_map: ChannelMap) -> tuple[str, ...] | None:
        """Those of a tier in the network's order."""
        names = self.of(tier)
        return None if names is None else tuple(name for name in channel_map.parameters if name in names)

    def cut(self, channel_map: ChannelMap) -> ChannelMap:
        """Where the channels are in the arrays that any tier trains."""
        frozen = self.frozen(channel_map)
        return channel_map.of_parameters([name for name in channel_map.parameters if name not in frozen])

    def in_words(self, channel_map: ChannelMap) -> str:
        """What devices train, for the user; empty if everything."""
        if not any(self.tiers):
            return ""
        sizes = {name: math.prod(layout.shape) for name, layout in channel_map.parameters.items()}
        trained = [sum(sizes[name] for name in (sizes if names is None else names)) for names in self.tiers]
        counts = " / ".join(f"{count:,}" for count in trained)
        by_tier = " (by tier)" if len(trained) > 1 else ""
        return f"devices train {counts} of {sum(sizes.values()):,} numbers of the network{by_tier}"

    def frozen(self, channel_map: ChannelMap) -> Names:
        """The arrays that no tier trains."""
        if None in self.tiers:
            return frozenset()
        return frozenset(channel_map.parameters).difference(*(names or () for names in self.tiers))


ALL_TRAINED = TrainedParts()


def find_trained_parts(
    statements: Sequence[Sequence[str]], channel_map: ChannelMap, head: Callable[[], str]
) -> TrainedParts:
    """The trained arrays by the statements of one tier after another, or of all tiers.

    A statement has "all", "head" (the output layer, whose name is `head()`), "norms" (scales and shifts of
    normalisations), "biases", "last-N" (the last N blocks and what follows them; a block is what the network
    numbers, such as `layer3.1`, or a layer if it numbers nothing), and globs of arrays, layers or blocks.
    Statistics are trained with "all", or by a glob that names them. Raises `ConfigError` for an item that
    matches nothing.
    """
    return TrainedParts(tuple(_trained(items, channel_map, head) for items in statements))


def _trained(items: Sequence[str], channel_map: ChannelMap, head: Callable[[], str]) -> Names | None:
    if ALL in items:
        return None
    trained = frozenset(name for item in items for name in _matched(item, channel_map, head))
    if all(map(is_statistic, trained)):
        raise ConfigError(
            f"{', '.join(items)} trains no weight",
            key="[training] train",
            remedy='name an array that is learned, "head" for instance',
        )
    return None if trained == channel_map.parameters.keys() else trained


def _matched(item: str, channel_map: ChannelMap, head: Callable[[], str]) -> list[str]:
    weights = [name for name in channel_map.parameters if not is_statistic(name)]
    if item == "head":
        return _of_layers(weights, {head()})
    if item == "norms":
        return _of_layers(weights, set(normalisation_layers(channel_map)))
    if item == "biases":
        found = [name for name in weights if name.rpartition(".")[2] == "bias"]
    elif item.startswith(LAST) and item.removeprefix(LAST).isdecimal():
        return [*_last(int(item.removeprefix(LAST)), weights), *_of_layers(weights, {head()})]
    else:
        names = channel_map.parameters if "running_" in item else weights
        found = [name for name in names if any(fnmatchcase(part, item) for part in _prefixes(name))]
    if not found:
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in weights))
        raise ConfigError(
            f"'{item}' matches no array{nearest(item, ['all', 'head', 'norms', 'biases', *layers])}",
            key="[training] train",
            remedy=f"name layers: {', '.join(layers[-3:])} are the last",
        )
    return found


def _last(count: int, weights: Sequence[str]) -> list[str]:
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
