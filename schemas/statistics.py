"""What a device measures of its own examples in a round of statistics.

Its answer is additive, so that the server only adds answers up. The groups `features` (one row per channel of
an example) and `targets` (one row per number that is learned) have the float64 arrays of `SUMS` [F], and with
bins `histogram` [F, bins + 2], whose first and last column count values outside the range. The group `labels`
has `count` [L], the examples of each class. The answer of a masked cohort also has the group `devices` with
their `count` [1].
"""

from itertools import starmap
from operator import le
from typing import Annotated

from pydantic import Field, model_validator

from schemas.base import Frozen

FEATURES, TARGETS, LABELS, DEVICES = "features", "targets", "labels", "devices"
COUNT, SUM, SQUARES, MIN, MAX, HISTOGRAM = "count", "sum", "squares", "least", "most", "histogram"
SUMS = (COUNT, SUM, SQUARES, MIN, MAX)
MAX_FEATURES = 1024  # a task with the ranges of more features could exceed a message
MAX_BINS = 4096
MIN_EXAMPLES = 5  # a device with fewer examples declines, unless its owner says otherwise

Numbers = Annotated[tuple[float, ...], Field(max_length=MAX_FEATURES)]


class Ranges(Frozen):
    """Per feature: `centre`, around which values are summed, and the range `low` to `high` of a histogram.

    Sums around the mean keep the variance exact for values with a large offset.
    """

    centre: Numbers
    low: Numbers
    high: Numbers

    @model_validator(mode="after")
    def _belong_together(self) -> "Ranges":
        if not len(self.centre) == len(self.low) == len(self.high):
            raise ValueError("centre, low and high are of different features")
        if not all(starmap(le, zip(self.low, self.high, strict=True))):
            raise ValueError("a range ends before it begins")
        return self


class StatisticsRequest(Frozen):
    """Measure all training examples; without `bins` the sums are around 0, and there is no histogram."""

    bins: int = Field(default=0, ge=0, le=MAX_BINS)
    features: Ranges | None = None
    targets: Ranges | None = None
