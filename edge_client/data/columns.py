"""The columns of a table as a network's inputs: what they are called, and in which order it takes them.

Columns are matched by name. Units and kinds must agree where both sides know them.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edge_client.data.classes import list_names, shorten_names
from edge_client.data.said_once import say_once
from schemas.errors import ConfigError
from schemas.values import MAX_COLUMNS, MAX_NAME, MAX_UNIT, Feature, Preprocessing

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData

_WITH_UNIT = re.compile(r"(?P<name>.*\S)\s*(?:\[(?P<square>[^\[\]]{1,40})\]|\((?P<round>[^()]{1,40})\))")
_KINDS = {"number": "numbers", "truth": "truth values"}


def features_of(headers: Iterable[str], units: Mapping[str, str] | None = None) -> tuple[Feature, ...]:
    """The columns with these headers; `units` has those that are known otherwise, by header.

    `temperature [°C]` and `temperature (°C)` are the column `temperature` in °C. Of several that differ in
    such an ending alone (`x [left]`, `x [right]`), the ending belongs to the name. None where there are more
    than can be compared, or one has no name or a very long one.
    """
    headers = tuple(headers)
    if len(headers) > MAX_COLUMNS or not all(0 < len(header) <= MAX_NAME for header in headers):
        return ()
    parts = {header: _name_and_unit(header) for header in headers}
    times = Counter(name for name, _ in parts.values())
    split = {h: (name, unit) if times[name] == 1 else (h, "") for h, (name, unit) in parts.items()}
    known = units or {}
    return tuple(Feature(name=name, unit=known.get(h, unit)[:MAX_UNIT]) for h, (name, unit) in split.items())


def _name_and_unit(header: str) -> tuple[str, str]:
    text = " ".join(header.split())
    match = _WITH_UNIT.fullmatch(text)
    return (text, "") if match is None else (match["name"], (match["square"] or match["round"]).strip())


def in_columns(data: "LabelledData", columns: Sequence[Feature]) -> "LabelledData":
    """The same examples with their features, the axis after the first, in the order of `columns`.

    Examples or `columns` without names stay as they are. Raises `ConfigError` with both lists.
    """
    columns = tuple(columns)
    if not columns or data.columns == columns:
        return data
    if not data.columns:
        say_once(f"the data does not name its columns: they are taken as {list_names(_words(columns))}")
        return data
    if why := column_misfit(data.columns, columns):
        raise ConfigError(why)
    about = arrange_figures(data.preprocessing, columns)
    order = _order(data.columns, columns)
    images = data.images if order == sorted(order) else data.images[:, order]
    return replace(data, images=images, preprocessing=about)


def arrange_figures(about: Preprocessing, columns: Sequence[Feature]) -> Preprocessing:
    """The preprocessing with its figures in the order of `columns`, which have the same names."""
    order, update = _order(about.columns, columns), dict[str, object]()
    for key in ("mean", "std"):
        figures = getattr(about, key)
        if len(figures) == len(order):
            update[key] = tuple(figures[place] for place in order)
    return about.model_copy(update={**update, "columns": tuple(columns)})


def column_misfit(own: Sequence[Feature], columns: Sequence[Feature]) -> str:
    """Why data with the columns `own` does not fit a model of `columns`; empty if it does, or says none."""
    if not own or not columns:
        return ""
    names, wanted = {f.name: f for f in own}, {f.name: f for f in columns}
    unknown, missing = [n for n in names if n not in wanted], [n for n in wanted if n not in names]
    if unknown or missing:
        return _difference(unknown, missing, own, columns)
    return next(filter(None, (_other(feature, wanted[name]) for name, feature in names.items())), "")


def _difference(
    unknown: Sequence[str], missing: Sequence[str], own: Sequence[Feature], columns: Sequence[Feature]
) -> str:
    what = [f"unknown column {shorten_names(unknown)}"] if unknown else []
    what += [f"no column {shorten_names(missing)}"] if missing else []
    return (
        f"{' and '.join(what)}: the model takes {list_names(_words(columns))}, this data has "
        f"{list_names(_words(own))}; rename them, or choose a table's by columns= or ignore="
    )


def _other(own: Feature, wanted: Feature) -> str:
    """Why a column is another one than that of the same name that the model takes."""
    if own.unit and wanted.unit and _plain(own.unit) != _plain(wanted.unit):
        return f"the column '{own.name}' is in {own.unit} here, and the model takes {wanted.unit}: convert it"
    if own.kind and wanted.kind and own.kind != wanted.kind:
        return (
            f"the column '{own.name}' has {_KINDS[own.kind]} here, and the model takes "
            f"{_KINDS[wanted.kind]}: write it in the same way"
        )
    return ""


def _plain(unit: str) -> str:
    """A unit in its usual characters: one sign for degrees Celsius is that of two."""
    return unicodedata.normalize("NFKC", unit).replace(" ", "")


def completed_by(columns: Iterable[Feature], others: Iterable[Sequence[Feature]]) -> tuple[Feature, ...]:
    """The columns, where they have no unit or kind with the one that most of `others` state."""
    stated = Counter(feature for other in others for feature in other)

    def complete_feature(feature: Feature) -> Feature:
        namesakes = {other: times for other, times in stated.items() if other.name == feature.name}
        unit = feature.unit or _most_frequent((other.unit, times) for other, times in namesakes.items())
        kind = feature.kind or _most_frequent((other.kind, times) for other, times in namesakes.items())
        return feature.model_copy(update={"unit": unit, "kind": kind})

    return tuple(map(complete_feature, columns))


def _most_frequent(counted: Iterable[tuple[str, int]]) -> str:
    """The text that is not empty and has the greatest sum, of several the first in the alphabet."""
    sums = Counter[str]()
    for text, times in counted:
        if text:
            sums[text] += times
    return min(sums, key=lambda text: (-sums[text], text), default="")


def _order(own: Sequence[Feature], columns: Sequence[Feature]) -> list[int]:
    places = {feature.name: place for place, feature in enumerate(own)}
    return [places[feature.name] for feature in columns]


def _words(columns: Iterable[Feature]) -> list[str]:
    return [feature.in_words() for feature in columns]
