"""The federation's list of classes, and the conversion of a source's labels into indices of it.

A source with named classes is matched by name, whatever classes it has and however it numbers them. Labels of
a source without names are numbers: names in a list of numbers, and places, counted from 0, in any other list.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edge_client.data.dataset import LabelledData

Names = tuple[str, ...]

MAX_SHOWN = 130  # largest number of characters of a class list in a message
LONGEST_NAME = 100  # characters of a class's name: a longer one is a text, which stays on the device
BIPOLAR = ("-1", "1")  # two classes as support vector machines number them
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")


def in_classes(data: "LabelledData", names: Sequence[str]) -> "LabelledData":
    """The same examples with labels that are indices into `names`.

    Raises `ConfigError` with both lists if `names` lacks a class of the data, or is shorter than its labels
    require.
    """
    names = tuple(names)
    if data.class_names == names and data.preprocessing.class_names == names:
        return replace(data, named=True)
    if why := misfit(data.own_classes, names, named=data.named):
        raise ConfigError(why)
    if data.labels.ndim == 2:
        data = _in_order(data, names)
    labels = data.labels
    if labels.ndim != 2:
        # Imported here: what a device imports at its start has no use for arrays.
        import numpy as np

        from edge_client.data.tasks.detection import renumber

        # A number that does not occur may have no place.
        places = _places(data.class_names, names, named=data.named)
        moved = np.array([-1 if place is None else place for place in places], np.int64)
        labels = renumber(labels, moved) if data.has_boxes else moved[labels]
    preprocessing = data.preprocessing.model_copy(update={"class_names": names})
    return replace(data, labels=labels, class_names=names, named=True, preprocessing=preprocessing)


def by_number(labels: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], Names]":
    """Indices [N] of classes without names, and the numbers that the classes are called by.

    They run from 0, or from 1 where the least is 1; where there are only -1 and 1, these are two classes.
    """
    least, greatest = (int(labels.min()), int(labels.max())) if labels.size else (0, 0)
    if least == -1 and bool((abs(labels) == 1).all()):
        return (labels + 1) // 2, BIPOLAR
    first = 1 if least == 1 else 0
    return labels - first, numbers(greatest + 1)[first:]


def remark_on_numbers(data: "LabelledData") -> str:
    """What people should know of labels without names that do not run from 0; else empty."""
    if data.named or data.labels.ndim > 1 or data.class_names == numbers(data.num_classes):
        return ""
    return (
        f"labels without names are {data.class_names[0]} to {data.class_names[-1]}, so the classes are "
        f"{list_names(data.class_names)}; in a federation whose classes have names a label is the place in "
        "its list, counted from 0"
    )


def remark_on_gaps(data: "LabelledData") -> str:
    """Which classes of labels without names have no example, yet are outputs of a model; else empty."""
    missing = [name for name in data.class_names if name not in data.own_classes]
    if data.named or data.labels.ndim > 1 or not missing or not len(data):
        return ""
    return (
        f"no example has a label of {list_names(missing)}, yet each of these is a class that the model "
        "learns: "
        "unless other data has examples, number the classes without gaps, or save their names (class_names)"
    )


def _in_order(data: "LabelledData", names: Names) -> "LabelledData":
    """The examples with labels [N, L] in the order of the federation's names, all of which they must have."""
    own = data.class_names if data.named else names
    missing = [name for name in names if name not in own]
    if missing or data.labels.shape[1] != len(names):
        raise ConfigError(
            f"examples with {data.labels.shape[1]} numbers each, {list_names(data.class_names)}: the "
            f"federation learns {list_names(names)}"
        )
    order = [own.index(name) for name in names]
    about, update = data.preprocessing, dict[str, tuple[float, ...]]()
    if about.target_std:
        for key in ("target_mean", "target_std"):
            update[key] = tuple(getattr(about, key)[place] for place in order)
    return replace(data, labels=data.labels[:, order], preprocessing=about.model_copy(update=update))


def misfit(own: Sequence[str], names: Sequence[str], *, named: bool) -> str:
    """Why data with the classes `own` does not fit a federation with the classes `names`; else empty."""
    if not (unknown := unknown_classes(own, names, named=named)):
        return ""
    if named:
        return (
            f"unknown class {shorten_names(unknown, 90)}: the federation knows {list_names(names)}, "
            f"this data has {list_names(own)}; rename it, or add it to [data] classes"
        )
    if are_numbers(names):
        rule, remedy = "such numbers", "or state in [model] num-classes how many there are"
    else:
        rule, remedy = f"0 to {len(names) - 1}", "or save the classes' names with the labels (class_names)"
    what = f"labels up to {own[-1]}" if own[-1] in unknown else f"the label {unknown[0]}"
    return (
        f"{what}, but the federation knows {list_names(names)}: labels without names are {rule}; "
        f"add it to [data] classes, {remedy}"
    )


def unknown_classes(own: Sequence[str], names: Sequence[str], *, named: bool) -> list[str]:
    """Those of the classes `own` that have no place in a federation's or model's `names`."""
    places = _places(own, names, named=named)
    return [name for name, place in zip(own, places, strict=True) if place is None]


def misfit_of_numbers(own: Sequence[str], names: Sequence[str]) -> str:
    """Why labels that are numbers with names do not fit a model that gives other ones; else empty."""
    if set(own) == set(names):
        return ""
    return (
        f"the model gives {list_names(names)}, and this data has {list_names(own)}: state label=, horizon= "
        "and change= of the source as in training"
    )


def _places(own: Sequence[str], names: Sequence[str], *, named: bool) -> list[int | None]:
    """The index in `names` of each class of some data; None for one that has no place there."""
    if named or are_numbers(names):
        index = {name: place for place, name in enumerate(names)}
        return [index.get(name) for name in own]
    values = [int(name) if _WHOLE_NUMBER.fullmatch(name) else -1 for name in own]
    return [value if 0 <= value < len(names) else None for value in values]


def are_numbers(names: Iterable[str]) -> bool:
    return all(map(_WHOLE_NUMBER.fullmatch, names))


def in_order(names: Iterable[str]) -> Names:
    """The distinct names in a fixed order: by number if all are numbers, else sorted."""
    distinct = sorted(set(names))
    if are_numbers(distinct):
        distinct.sort(key=int)
    return tuple(distinct)


def numbers(count: int) -> Names:
    """The names of `count` unnamed classes: their numbers."""
    return tuple(str(number) for number in range(count))


def complete_names(names: Sequence[str], count: int) -> Names:
    """A list of `count` classes that contains all `names`; `names` itself if there are `count` or more.

    If fewer names are all numbers below `count`, each is placed at its number; otherwise missing names are
    `class 7` and so on.
    """
    if len(names) < count and set(names) <= set(numbers(count)):
        return numbers(count)
    return (*names, *(f"class {number}" for number in range(len(names), count)))


def shorten_names(names: Sequence[str], most: int = MAX_SHOWN) -> str:
    """The names with commas, cut to `most` characters but at least one name."""
    room, shown = most, list[str]()
    for name in names:
        word = _word(name)
        room -= len(word) + 2
        if shown and room < 0:
            return f"{', '.join(shown)}, ..."
        shown.append(word)
    return ", ".join(shown) or "none"


def _word(name: str) -> str:
    if len(name) > LONGEST_NAME:
        return f"one of {len(name)} characters"
    return f"'{name}'" if len(name) <= 40 else f"'{name[:37]}...'"


def list_names(names: Sequence[str]) -> str:
    """The names with commas, and how many they are."""
    return f"{shorten_names(names)} ({len(names)})"
