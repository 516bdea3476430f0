"""Labels of devices in messages, and the selectors that choose devices by them."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from schemas.selectors import (
    BUILT_IN,
    EVERY,
    KEY_PATTERN,
    MAX_LABELS,
    VALUE_PATTERN,
    Operator,
    Requirement,
    Where,
    checked_key,
    checked_value,
    parse_label,
    parse_where,
    selectable,
)

LabelKey = Annotated[str, StringConstraints(pattern=KEY_PATTERN)]
LabelValue = Annotated[str, StringConstraints(pattern=VALUE_PATTERN)]
Labels = Annotated[Mapping[LabelKey, LabelValue], Field(max_length=MAX_LABELS)]
"""At most 16 labels, such as `{"site": "barn", "role": "camera"}`."""
