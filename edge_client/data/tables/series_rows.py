"""Rows of tables in which one row has a whole series: lists of numbers, as in Parquet or JSON.

Such a row becomes a row for each moment, with its single values repeated, under a first column `ROW` that
numbers the series. So all options of tables work for it, and by default an example is one whole series.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain, groupby, islice, pairwise, takewhile
from operator import itemgetter
from typing import Any

from edge_client.data.tables.table import ROW, Row, Table, header_of
from schemas.errors import ConfigError

# Tables of which each line is one reading (time, name, value), turned into rows with a column for each name.

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
        raise ConfigError(f"every={text} must be a number of seconds above 0", place=source)
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


MAX_LOOK = 100  # rows at the beginning whose first lists tell which columns are series: a list may be missing
Values = tuple[int, Sequence[Any]]  # the values of a row with its number


def text_rows(table: Table, names: Sequence[str], values: Iterable[Values], *, even: bool) -> Iterator[Row]:
    """The header and the rows as texts; if the first rows have lists of numbers, a row for each place.

    The longest lists of a row are its series; any other list stays a text, which is not a number. Series of a
    row must have one length, and with `even` those of all rows; raises `ConfigError` otherwise.
    """
    rows = iter(values)
    first = list(islice(rows, MAX_LOOK))
    series = next(filter(None, (_series(row) for _, row in first)), dict[int, int]())
    yield 0, [ROW, *names] if series else list(names)
    usual = max(series.values(), default=0)
    for number, row in chain(first, rows):
        if not series:
            yield number, [_text(value) for value in row]
            continue
        length = _length(table, (number, row), {names[at]: row[at] for at in series}) or usual
        if even and length != usual:
            raise ConfigError(
                f"a series of {length} values, and of {usual} in the first",
                place=table.place(number),
                remedy="state window=NUMBER, which takes windows out of every series",
            )
        columns = (
            map(_text, value) if at in series and value is not None else [_text(value)] * length
            for at, value in enumerate(row)
        )
        for moment in zip(*columns, strict=True):
            yield number, [str(number), *moment]


def with_windows(table: Table, options: Mapping[str, str]) -> Mapping[str, str]:
    """The options, and where rows have series those for examples of one whole series."""
    if header_of(table)[0] != ROW:
        return options
    with table.open_rows() as rows:
        moments = islice(rows, 1, None)
        first = next(moments)[0]
        length = 1 + sum(1 for _ in takewhile(lambda row: row[0] == first, moments))
    return {"window": str(length), **in_series(options)}


def in_series(options: Mapping[str, str], *, ignore: Iterable[str] = ()) -> dict[str, str]:
    """The options of a table whose column `ROW` tells the series apart, more finely than a stated group."""
    ignored = [name for name in (options.get("ignore"), options.get("group"), *ignore) if name]
    return {**options, "group": ROW, "ignore": ",".join(ignored)}


def _series(row: Sequence[Any]) -> dict[int, int]:
    """The places of the longest lists of numbers, with their length."""
    lengths = {at: len(value) for at, value in enumerate(row) if _is_series(value)}
    return {at: length for at, length in lengths.items() if length == max(lengths.values())}


def _is_series(value: Any) -> bool:
    return (
        isinstance(value, list)
        and value != []
        and all(part is None or isinstance(part, int | float) for part in value)
    )


def _length(table: Table, row: Values, series: Mapping[str, Any]) -> int:
    """The length of a row's series; 0 if all are missing."""
    wrong = next((name for name, value in series.items() if not isinstance(value, list | None)), None)
    if wrong is not None:
        raise ConfigError(f"column '{wrong}' is not a list, as in the first rows", place=table.place(row[0]))
    lengths = {name: len(value) for name, value in series.items() if value is not None}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"'{name}' {length}" for name, length in lengths.items())
        raise ConfigError(f"series of different lengths: {sizes}", place=table.place(row[0]))
    return max(lengths.values(), default=0)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    return str(int(value)) if isinstance(value, bool) else str(value)
