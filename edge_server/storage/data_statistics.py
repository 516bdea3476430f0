"""Statistics of all devices' data, as a round has found them."""

from collections.abc import Mapping

from pydantic import Field

from schemas.base import Frozen

Column = tuple[float, ...]


class Distribution(Frozen):
    """Figures of values, one per feature, in the units of the data; the variance is that of a population.

    `histogram` has the counts of equal bins from `low` to `high`; its first and last number count the values
    below and above. The first round of statistics has no histogram.
    """

    count: Column
    mean: Column
    variance: Column
    least: Column
    most: Column
    low: Column = ()
    high: Column = ()
    histogram: tuple[Column, ...] = ()


class DataStatistics(Frozen):
    """What `devices` have answered about their `examples`: features, numbers to learn, examples per class.

    `columns` and `outputs` are the names of features and of numbers to learn, where they have some.
    """

    devices: int
    examples: float
    features: Distribution
    targets: Distribution | None = None
    columns: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    labels: Mapping[str, float] = Field(default_factory=dict)
