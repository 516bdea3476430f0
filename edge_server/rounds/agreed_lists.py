"""The federation's list of classes: one name per output of the model, the same for every device.

If neither the federation file nor the server's own data names the classes, the devices available at the first
planning do: the list has every name that one of them states. Without names, classes are numbered. A device
that alone makes a list impossible, as by half a name at the end of its file, does not take part in it.
"""

import contextlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from edge_client.data.classes import (
    complete_names,
    in_order,
    list_names,
    misfit,
    misfit_of_numbers,
    numbers,
    shorten_names,
)
from edge_client.data.columns import column_misfit, completed_by
from edge_client.data.shapes import alike
from schemas.errors import ConfigError
from schemas.values import DataCard, Feature

ALL_NAMES = 1000  # Characters of a list that is shown in full

Cards = Mapping[str, DataCard]


@dataclass(frozen=True)
class ClassList:
    """`count` classes of a model, and their `names` in the order of its outputs (empty until known).

    A count of 0 means that the model is unknown: devices need not agree on anything. With `from_zero` the
    server's own data has labels without names, counted from 0. `measured`: names of numbers.
    """

    count: int = 0
    names: tuple[str, ...] = ()
    from_zero: bool = False
    measured: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the names are not agreed on yet."""
        return bool(self.count) and not self.names


def class_objection(card: DataCard, classes: ClassList) -> str:
    """Why a device with this data card cannot take part; empty if it can, or if only the device knows."""
    if not classes.names:
        return ""
    if card.class_names:
        if classes.measured:
            return misfit_of_numbers(card.class_names, classes.names)
        return misfit(card.class_names, classes.names, named=True)
    # Only the device knows which smaller numbers occur.
    return "" if card.named else misfit((str(card.num_classes - 1),), classes.names, named=False)


def common_classes(cards: Cards, classes: ClassList) -> tuple[str, ...]:
    """The list that devices with these data cards agree on for open classes, if need be without a few.

    Raises `ConfigError` if they name more, spell one differently, or have names too long for any birth.
    """
    try:
        return _list_classes(cards, classes)
    except ConfigError:
        for odd in _odd_devices(cards, classes.count):
            others = {device: card for device, card in cards.items() if device not in odd}
            if any(card.class_names for card in others.values()):
                with contextlib.suppress(ConfigError):
                    return _list_classes(others, classes)
        raise


def _odd_devices(cards: Cards, count: int) -> Iterator[frozenset[str]]:
    """Sets of devices, each of which may be why no list is possible, the likeliest first.

    Each has a name that no other device states: the first part of another name, or one too many.
    """
    owners = Counter(name for card in cards.values() for name in card.class_names)
    alone = {
        device: own
        for device, card in cards.items()
        if (own := [name for name in card.class_names if owners[name] == 1])
    }
    ordered = pairwise(sorted((_plain(name), name) for name in owners))
    parts = {name for (part, name), (whole, _) in ordered if whole != part and whole.startswith(part)}
    yield frozenset(device for device, own in alone.items() if not parts.isdisjoint(own))
    if len(alone) == 1 or sum(stated > 1 for stated in owners.values()) == count:
        yield frozenset(alone)


def _list_classes(cards: Cards, classes: ClassList) -> tuple[str, ...]:
    count = classes.count
    stated = {device: card.class_names for device, card in cards.items() if card.class_names}
    silent = [device for device, card in cards.items() if card.named and not card.class_names]
    if silent and not stated:
        raise ConfigError(
            f"{_which(silent)} could not state the names of all classes", remedy="set [data] classes to them"
        )
    _check_spelling(stated)
    names = in_order(name for own in stated.values() for name in own)
    if len(names) > count:
        raise ConfigError(
            f"devices have {len(names)} classes ({shorten_names(names, ALL_NAMES)}), but [model] "
            f"num-classes is {count}",
            remedy="set [data] classes to those that count",
        )
    return complete_names(names or (() if classes.from_zero else _from_one(cards, count)), count)


def _from_one(cards: Cards, count: int) -> tuple[str, ...]:
    """The names of classes that run from 1; empty unless half of the devices have the last number."""
    last = sum(card.num_classes == count + 1 for card in cards.values())
    return numbers(count + 1)[1:] if last and 2 * last >= len(cards) else ()


def remarks(cards: Cards, classes: ClassList) -> str:
    """What people should know about an agreed list; empty for a list of numbers."""
    stated = {name for card in cards.values() for name in card.class_names}
    if classes.names == numbers(classes.count):
        return ""
    if not stated:
        return f"labels are {classes.names[0]} to {classes.names[-1]}; [data] classes would fix them"
    listed = shorten_names(classes.names, ALL_NAMES)
    notes = [f"{listed}, as the available devices name them; [data] classes would fix them"]
    unnamed = [device for device, card in cards.items() if not card.named]
    if unnamed:
        notes.append(f"the labels of {_which(unnamed)} have no names: 0 is taken for '{classes.names[0]}'")
    if len(stated) < classes.count:
        notes.append(f"only {len(stated)} of [model] num-classes = {classes.count} have names")
    return "; ".join(notes)


def _check_spelling(stated: Mapping[str, Iterable[str]]) -> None:
    """Refuse names that differ only in spelling, unless one device has both."""
    writers: dict[str, dict[str, str]] = {}
    both = {(_plain(name), name) for own in stated.values() for name in _alike(own)}
    for device, own in stated.items():
        for name in own:
            writers.setdefault(_plain(name), {}).setdefault(name, device)
    for plain, found in writers.items():
        if len(found) > 1 and not all((plain, name) in both for name in found):
            ways = " and ".join(f"'{name}' ({device})" for name, device in sorted(found.items()))
            raise ConfigError(
                f"one class is spelled differently: {ways}", remedy="rename one, or set [data] classes"
            )


def _alike(own: Iterable[str]) -> list[str]:
    """A device's names that differ from another of its names only in spelling."""
    by_plain = [(name, _plain(name)) for name in own]
    ways = Counter(plain for _, plain in by_plain)
    return [name for name, plain in by_plain if ways[plain] > 1]


def _plain(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name).casefold().strip()
    return str(int(folded)) if folded.isascii() and folded.isdigit() else folded


def _which(devices: list[str]) -> str:
    return f"the data of {', '.join(devices[:3])}{' and others' if len(devices) > 3 else ''}"


# The federation's columns: which features the model takes, and in which order, the same for every device.
#
# If neither the federation file nor the server's own data names them, the devices available at the first
# planning do: what most of them have is taken. Without names each device's own order counts.

Features = tuple[Feature, ...]


@dataclass(frozen=True)
class ColumnList:
    """The input `shape` of a model, and its `columns` in order (empty until they are known)."""

    shape: tuple[int, ...] = ()
    columns: Features = ()


def column_objection(card: DataCard, columns: ColumnList) -> str:
    """Why a device with this data card cannot take part; empty if it can, or if only the device knows."""
    return column_misfit(card.columns or (), columns.columns) if card.states_columns else ""


def common_columns(cards: Mapping[str, DataCard], known: ColumnList) -> Features:
    """The columns of most devices, in the order of most of those; empty if none names columns for the model.

    Columns that are known get the units and kinds that devices state.
    """
    stated = [
        card.columns or ()
        for _, card in sorted(cards.items())
        if card.states_columns and alike(card.input_shape, known.shape)
    ]
    columns = known.columns or _of_most(stated)
    return completed_by(columns, [own for own in stated if _names(own) == _names(columns)])


def _of_most(stated: list[Features]) -> Features:
    """Of lists that are as frequent the first."""
    if not stated:
        return ()
    # Counters keep the order in which they have first seen a value.
    ((names, _),) = Counter(map(_names, stated)).most_common(1)
    orders = Counter(tuple(f.name for f in own) for own in stated if _names(own) == names)
    ((order, _),) = orders.most_common(1)
    return tuple(Feature(name=name) for name in order)


def _names(columns: Features) -> frozenset[str]:
    return frozenset(feature.name for feature in columns)


def column_remarks(cards: Mapping[str, DataCard], known: ColumnList, agreed: Features) -> str:
    """What people should know about what devices have agreed on; empty if there is nothing."""
    if known.columns:
        return ""
    if agreed:
        names = list_names([feature.in_words() for feature in agreed])
        return f"{names}, as most of the available devices name them; [data] columns would fix them"
    if any(card.columns for card in cards.values()):
        return (
            "no device could state all of its columns: each takes those of its file in their order; with "
            "[data] columns they are compared by name"
        )
    return ""
