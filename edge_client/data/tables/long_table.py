"""Tables of which each line is one reading (time, name, value), turned into rows with a column for each name.

A row stands for each moment at which something was read. A column keeps its last value until the next one,
and has none before its first. With `every` there is a row at each multiple of these seconds instead.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter

from edge_client.data.tables.table import Row
from schemas.errors import ConfigError

TIME = "time"
Reading = tuple[float, str, str]  # seconds since 1970, name, value: "" where there is none from now on
Moment = tuple[float, Sequence[str]]  # the time and the values of all names


def wide_rows(readings: Iterable[Reading], names: Sequence[str], *, every: float = 0) -> Iterator[list[str]]:
    """The rows [time, a value for each name] of readings in the order of their times."""
    moments = _moments(readings, names)
    for time, values in _at_even_times(moments, every) if every else moments:
        yield [str(time), *values]


def numbered_rows(names: Sequence[str], rows: Iterable[list[str]]) -> Iterator[Row]:
    """The header, then the rows, numbered from 1."""
    return enumerate(chain([[TIME, *names]], rows))


def seconds_of(options: Mapping[str, str], source: object) -> float:
    """The option `every`; 0 where it is not stated."""
    text = options.get("every", "0")
    try:
        every = float(text)
    except ValueError:
        every = math.nan
    if not 0 < every < math.inf and "every" in options:
        raise ConfigError(f"{source}: every={text} must be a number of seconds above 0")
    return every


def _moments(readings: Iterable[Reading], names: Sequence[str]) -> Iterator[Moment]:
    values = dict.fromkeys(names, "")
    for time, together in groupby(readings, key=itemgetter(0)):
        values.update((name, value) for _, name, value in together)
        yield time, list(values.values())


def _at_even_times(moments: Iterable[Moment], every: float) -> Iterator[Moment]:
    """What held at each multiple of `every`, from the first moment to the last."""
    for (time, values), (following, _) in pairwise(chain(moments, [(math.inf, ())])):
        # The last values hold until their own moment.
        stop = math.floor(time / every) + 1 if math.isinf(following) else math.ceil(following / every)
        for step in range(math.ceil(time / every), stop):
            yield step * every, values
