"""The federation's columns: which features the model takes, and in which order, the same for every device.

If neither the federation file nor the server's own data names them, the devices available at the first
planning do: what most of them have is taken. Without names each device's own order counts.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from edge_client.data.classes import listed
from edge_client.data.columns import column_misfit, completed_by
from edge_client.data.shapes import alike
from schemas.values import DataCard, Feature

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
        names = listed([feature.in_words() for feature in agreed])
        return f"{names}, as most of the available devices name them; [data] columns would fix them"
    if any(card.columns for card in cards.values()):
        return (
            "no device could state all of its columns: each takes those of its file in their order; with "
            "[data] columns they are compared by name"
        )
    return ""
