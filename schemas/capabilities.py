"""What devices can do, as their births state it: every client from 0.1.0 on all that is here.

A later ability is one more word, of which an earlier server takes no notice.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Any


class Capability(StrEnum):
    """One thing that a device can do."""

    PRUNES_FIRST = "prunes_first"  # prunes by its own scores before it trains
    TRAINS_SHARPLY = "trains_sharply"  # knows training plans with `sam_radius`
    MATCHES_NUMBERS = "matches_numbers"  # takes labels without names for names in a list of numbers
    TAKES_FIXED = "takes_fixed"  # knows tasks with the blob `fixed`
    WARMS_UP = "warms_up"  # knows training plans with `warm_up_steps`
    RATES_BY_WIDTH = "rates_by_width"  # knows training plans with `rate_by_width`
    TRAINS_PARTS = "trains_parts"  # knows tasks with `trained` and `frozen`
    ADAPTS = "adapts"  # knows tasks with `adapters`
    RESIZES = "resizes"  # knows a preprocessing with `resizing`
    CHOOSES_DELIVERED = "chooses_delivered"  # chooses among several models that it makes of a delivered one


ALL = frozenset(Capability)
OF_OWN_FIELDS = (
    *(Capability.PRUNES_FIRST, Capability.TRAINS_SHARPLY),
    *(Capability.MATCHES_NUMBERS, Capability.TAKES_FIXED),
)
"""Those for which a birth has a field each; it names all others in its field `can`."""


def birth_fields(can: Collection[Capability] = ALL) -> dict[str, Any]:
    """The fields of a birth that states these capabilities."""
    own = {str(capability): True for capability in OF_OWN_FIELDS if capability in can}
    return {**own, "can": tuple(sorted({*can} - {*OF_OWN_FIELDS}))}
