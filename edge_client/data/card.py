"""What a device says of its data in its birth message."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from schemas.values import MAX_CLASS_NAMES, DataCard

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData

log = logging.getLogger(__name__)

MOST_BYTES = 2000
"""Of class names as JSON: a birth has 4 kB, of which its profile takes a part."""
LONGEST_NAME = 100


def card_of(data: LabelledData, *, source: str) -> DataCard:
    """The card of a device's examples; names that do not fit are left out, and the log says so."""
    names = data.class_names if data.named else ()
    if not fits(names):
        log.warning(
            "the names of %d classes do not fit into what this device says of itself: the federation's file "
            "must state them in [data] classes, or its server have data with these names",
            len(names),
        )
        names = ()
    return DataCard(
        source=source,
        examples=len(data),
        input_shape=data.input_shape,
        num_classes=data.num_classes,
        named=data.named,
        class_names=names,
    )


def fits(names: tuple[str, ...]) -> bool:
    """Whether a birth message has room for these names."""
    if len(names) > MAX_CLASS_NAMES or not all(0 < len(name) <= LONGEST_NAME for name in names):
        return False
    return len(json.dumps(names, ensure_ascii=False).encode()) <= MOST_BYTES
