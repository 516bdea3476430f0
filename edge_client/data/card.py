"""The description of a device's data in its birth message."""

import json
import logging
from typing import TYPE_CHECKING, Any

from edge_client.data.classes import BIPOLAR, LONGEST_NAME
from schemas.values import MAX_CLASS_NAMES, DataCard

if TYPE_CHECKING:
    from edge_client.data.local import LocalData

log = logging.getLogger(__name__)

MAX_BYTES = 2000  # of class names, and of columns, as JSON: a birth has 4 kB, with the profile in it


def card_of(local: "LocalData", *, source: str) -> DataCard:
    """The data card of a device's training part; names that do not fit are omitted with a log line.

    Of columns that do not fit only the first is there.
    """
    data = local.train
    # -1 and 1 are no places in a list of names.
    named = data.named or data.class_names == BIPOLAR
    names = data.class_names if named else ()
    if not fits(names):
        log.warning(
            "the names of %d classes do not fit into what this device says of itself: the federation's file "
            "must state them in [data] classes, or its server have data with these names",
            len(names),
        )
        names = ()
    columns = data.columns
    if _bytes([column.model_dump() for column in columns]) > MAX_BYTES:
        log.warning(
            "the names of %d columns do not fit into what this device says of itself: they are compared if "
            "the federation's file states them in [data] columns, or its server has data with these names",
            len(columns),
        )
        columns = columns[:1]
    return DataCard(
        source=source,
        examples=len(data),
        input_shape=data.input_shape,
        num_classes=data.num_classes if named or data.labels.ndim > 1 else int(data.class_names[-1]) + 1,
        named=named,
        class_names=names,
        new=local.new,
        drift=None if local.alarm is None else local.alarm.finding,
        skipped=data.skipped,
        columns=columns,
    )


def fits(names: tuple[str, ...]) -> bool:
    """Whether these names fit a birth message."""
    if len(names) > MAX_CLASS_NAMES or not all(0 < len(name) <= LONGEST_NAME for name in names):
        return False
    return _bytes(names) <= MAX_BYTES


def _bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
