"""The federation's list of classes, and the conversion of a source's labels into indices of it.

A source with named classes is matched by name, whatever classes it has and however it numbers them. Labels of
a source without names are indices already.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData

Names = tuple[str, ...]

MOST_SHOWN = 130
"""Largest number of characters of a class list in a message."""
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")


def in_classes(data: "LabelledData", names: Sequence[str]) -> "LabelledData":
    """The same examples with labels that are indices into `names`.

    Raises `ConfigError` with both lists if `names` lacks a class of the data, or is shorter than its labels
    require.
    """
    names = tuple(names)
    if data.class_names == names and data.preprocessing.class_names == names:
        return replace(data, named=True)
    if why := misfit(data.class_names, names, named=data.named):
        raise ConfigError(why)
    if data.labels.ndim > 1:
        data = _in_order(data, names)
    labels = data.labels
    if data.named and data.labels.ndim == 1:
        # Imported here: what a device imports at its start has no use for arrays.
        import numpy as np

        index = {name: place for place, name in enumerate(names)}
        labels = np.array([index[name] for name in data.class_names], np.int64)[labels]
    preprocessing = data.preprocessing.model_copy(update={"class_names": names})
    return replace(data, labels=labels, class_names=names, named=True, preprocessing=preprocessing)


def _in_order(data: "LabelledData", names: Names) -> "LabelledData":
    """The examples with labels [N, L] in the order of the federation's names, all of which they must have."""
    own = data.class_names if data.named else names
    missing = [name for name in names if name not in own]
    if missing or data.labels.shape[1] != len(names):
        raise ConfigError(
            f"examples with {data.labels.shape[1]} numbers each, {listed(data.class_names)}: the federation "
            f"learns {listed(names)}"
        )
    order = [own.index(name) for name in names]
    about, update = data.preprocessing, dict[str, tuple[float, ...]]()
    if about.target_std:
        for key in ("target_mean", "target_std"):
            update[key] = tuple(getattr(about, key)[place] for place in order)
    return replace(data, labels=data.labels[:, order], preprocessing=about.model_copy(update=update))


def misfit(own: Sequence[str], names: Sequence[str], *, named: bool) -> str:
    """Why data with the classes `own` does not fit a federation with the classes `names`; else empty."""
    if not named:
        return beyond(len(own), names)
    known = frozenset(names)
    unknown = [name for name in own if name not in known]
    if not unknown:
        return ""
    return (
        f"unknown class {shortened(unknown, 90)}: the federation knows {listed(names)}, "
        f"this data has {listed(own)}; rename it, or add it to [data] classes"
    )


def beyond(count: int, names: Sequence[str]) -> str:
    """Why labels below `count`, without names, do not fit; empty if they do."""
    if count <= len(names):
        return ""
    return (
        f"labels up to {count - 1}, but the federation knows {listed(names)}: labels without names "
        f"are 0 to {len(names) - 1}"
    )


def in_order(names: Iterable[str]) -> Names:
    """The distinct names in a fixed order: by number if all are numbers, else sorted."""
    distinct = sorted(set(names))
    if all(_WHOLE_NUMBER.fullmatch(name) for name in distinct):
        distinct.sort(key=int)
    return tuple(distinct)


def numbers(count: int) -> Names:
    """The names of `count` unnamed classes: their numbers."""
    return tuple(str(number) for number in range(count))


def completed(names: Sequence[str], count: int) -> Names:
    """A list of `count` classes that contains all `names`; `names` itself if there are `count` or more.

    If fewer names are all numbers below `count`, each is placed at its number; otherwise missing names are
    `class 7` and so on.
    """
    if len(names) < count and set(names) <= set(numbers(count)):
        return numbers(count)
    return (*names, *(f"class {number}" for number in range(len(names), count)))


def shortened(names: Sequence[str], most: int = MOST_SHOWN) -> str:
    """The names with commas, cut to `most` characters but at least one name."""
    room, shown = most, list[str]()
    for name in names:
        word = f"'{name}'" if len(name) <= 40 else f"'{name[:37]}...'"
        room -= len(word) + 2
        if shown and room < 0:
            return f"{', '.join(shown)}, ..."
        shown.append(word)
    return ", ".join(shown) or "none"


def listed(names: Sequence[str]) -> str:
    """The names with commas, and how many they are."""
    return f"{shortened(names)} ({len(names)})"
