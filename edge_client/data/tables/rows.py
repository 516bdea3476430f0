"""The columns of a table as numbers, texts and times, read in blocks of rows.

Numbers are float64 until examples are made of them: a meter's total, less the one before, is right to the
last digit. Besides the arrays that it returns, a read needs the memory of one block of `BLOCK` rows.
"""

import logging
import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from edge_client.data.said_once import say_once
from edge_client.data.tables import values
from edge_client.data.tables.table import Column, Row, Table, TablePlan, TableRows, header_of
from schemas.errors import ConfigError, format_count
from schemas.values import SkippedFiles

BLOCK = 16_384  # rows that are converted at once
NO_VALUE = "has no value: leave such rows out with"

Mask = NDArray[np.bool_]


def read_rows(table: Table, plan: TablePlan) -> TableRows:
    """The planned columns of all rows but broken ones, which have too many or few values, or no numbers.

    Raises `ConfigError` that names file, line, column and remedy for a missing column, for too many broken
    rows, and for a missing value unless the plan fills it.
    """
    as_text = frozenset[str]()
    while True:
        reader = _Reader(table, plan, as_text)
        try:
            with table.open_rows() as rows:
                next(rows)
                while block := list(islice(rows, BLOCK)):
                    reader.add(block)
            return reader.result()
        except _TextLabelError as found:
            # Labels are numbers until one is not: then the file is read once more.
            as_text |= {found.column}


class _TextLabelError(Exception):
    """A column of labels turned out to be of text."""

    def __init__(self, column: str) -> None:
        self.column = column


@dataclass(frozen=True)
class Block:
    """Rows [N] with their numbers, and their texts by column; `broken` has reasons by place in the block."""

    table: Table
    rows: Sequence[int]
    cells: Mapping[str, Sequence[str]]
    broken: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, rows: Sequence[Row], names: Sequence[str]) -> "Block":
        """The block of these rows; a row that is longer or shorter than the header is broken, and empty."""
        width, broken = len(names), dict[int, str]()
        for place, (number, texts) in enumerate(rows):
            if len(texts) != width:
                where = (
                    f"{table.place(number)}: {format_count(len(texts), 'value')} for "
                    f"{format_count(width, 'column')}"
                )
                broken[place] = f"{where}: repair the line"
        empty = ("",) * width
        columns = zip(*(texts if len(texts) == width else empty for _, texts in rows), strict=True)
        cells = dict(zip(names, columns, strict=True))
        return cls(table, [number for number, _ in rows], cells, broken)

    def where(self, place: int, column: str) -> str:
        return f"{self.table.place(self.rows[place])}: column '{column}'"

    def is_whole(self) -> NDArray[np.bool_]:
        whole = np.ones(len(self.rows), bool)
        whole[list(self.broken)] = False
        return whole

    def numbers(self, name: str) -> values.Numbers:
        """A column's numbers [N], NaN where they are missing; rows with anything else are broken."""
        texts = self.cells[name]
        numbers = values.plain_numbers(texts)
        if numbers is None:
            numbers = np.array([self._number(place, name, text) for place, text in enumerate(texts)])
        with np.errstate(over="ignore"):
            too_large = np.isinf(numbers.astype(np.float32))
        for place in np.flatnonzero(too_large).tolist():
            why = "is too large: numbers must be finite in float32; repair the line"
            self.broken.setdefault(place, f"{self.where(place, name)} {why}")
        numbers[too_large] = np.nan
        return numbers

    def texts(self, name: str) -> NDArray[np.str_]:
        """A column's texts [N], "" where one is missing; a row with a text of several lines is broken."""
        texts = [text.strip() for text in self.cells[name]]
        if "\n" in "".join(texts):
            for place in (place for place, text in enumerate(texts) if "\n" in text):
                where = f"{self.where(place, name)} has several lines"
                self.broken.setdefault(place, f"{where}: is a quotation mark missing?")
        return np.array(texts, np.str_)

    def words(self, name: str) -> frozenset[str]:
        """The distinct values of a column in small letters."""
        return frozenset(text.strip().lower() for text in self.cells[name])

    def _number(self, place: int, name: str, text: str) -> float:
        try:
            return values.number_of(text)
        except ValueError:
            pass
        where = self.where(place, name)
        remedy = values.remedy_of(text, name, has_decimal=self.table.has_decimal)
        if values.WITH_COMMA.fullmatch(text.strip()):
            # A question of the whole file, not of a row.
            raise ConfigError(f"{where} is not a number", remedy=remedy, quoted=repr(text))
        self.broken.setdefault(place, f"{where} is not a number: {remedy}")
        return np.nan


class _Reader:
    """What has been read of a table, block by block; labels of `as_text` are not numbers."""

    def __init__(self, table: Table, plan: TablePlan, as_text: frozenset[str]) -> None:
        self._table, self._plan, self._names = table, plan, header_of(table)
        self._labels = tuple(name for name in plan.labels if name not in {*as_text, *plan.numbers})
        self._numbers = tuple(dict.fromkeys([*plan.numbers, *self._labels]))
        self._texts = (*plan.texts, *(name for name in plan.labels if name in as_text))
        for name in (*self._numbers, *self._texts, *plan.times):
            if name not in self._names:
                raise values.missing_column(f"{table.path} has no column '{name}'", name, self._names)
        # Arrays that grow where they are: joining blocks would take the memory of all of them once more.
        self._values = {name: array("d") for name in self._numbers}
        self._parts: dict[str, list[Column]] = {name: [] for name in self._texts}
        self._words = {name: frozenset[str]() for name in self._numbers}
        self._unlabelled, self._text_labels = dict[str, str](), Counter[str]()
        self._last, self._group = dict[str, float](), ""
        self._times = values.Times(plan.time_format)
        self._broken_before: list[NDArray[np.int32]] = []
        self._count, self._broken, self._first_broken = 0, 0, ""

    def add(self, rows: Sequence[Row]) -> None:
        block = Block.of(self._table, rows, self._names)
        numbers = {name: self._convert_column(block, name) for name in self._numbers}
        texts: dict[str, Column] = {name: block.texts(name) for name in self._texts}
        starts = self._starts(texts, len(rows))
        is_whole = block.is_whole()
        is_kept = is_whole.copy()
        for name, column in numbers.items():
            lacks = np.isnan(column) & is_whole
            if name not in self._labels:
                self._fill(block, name, column, starts)
                is_kept &= ~np.isnan(column)
            elif lacks.any() and name not in self._plan.sparse:
                self._unlabelled.setdefault(name, block.where(int(np.argmax(lacks)), name))
                is_kept &= ~lacks
        for name, words in texts.items():
            if name not in self._plan.sparse:
                is_kept &= self._is_given(block, name, words)
        for name in self._plan.times:
            is_kept &= self._is_given(block, name, block.texts(name))
        if self._plan.times:
            moments = zip(*(block.texts(name)[is_kept] for name in self._plan.times), strict=True)
            self._times.add([" ".join(parts) for parts in moments])
        for name, column in numbers.items():
            self._values[name].frombytes(column[is_kept].tobytes())
        for name, words in texts.items():
            self._parts[name].append(words[is_kept])
        self._broken_before.append((self._broken + np.cumsum(~is_whole, dtype=np.int32))[is_kept])
        self._first_broken = self._first_broken or block.broken.get(min(block.broken, default=-1), "")
        self._broken += len(block.broken)
        self._count += len(rows)

    def result(self) -> TableRows:
        """All rows; `ConfigError` if none is left, or too many are broken."""
        rows = TableRows({}, np.concatenate(self._broken_before))
        rows.columns.update((name, np.asarray(values)) for name, values in self._values.items())
        rows.columns.update((name, np.concatenate(parts)) for name, parts in self._parts.items())
        self._values, self._parts = {}, {}
        self._judge_labels(rows.columns)
        if self._plan.times and len(rows):
            rows = self._with_times(rows)
        skipped = self._report_skipped()
        if not len(rows):
            raise ConfigError(
                "every row lacks a value",
                place=self._table.path,
                remedy="fill them, missing=previous or missing=NUMBER",
            )
        for name, words in self._words.items():
            if truths := words & values.TRUTH.keys():
                which = ", ".join(f"{word} is {values.TRUTH[word]:.0f}" for word in sorted(truths))
                say_once(f"{self._table.path}: column '{name}' has truth values: {which}")
        return replace(rows, skipped=skipped)

    def _convert_column(self, block: Block, name: str) -> values.Numbers:
        """A column's numbers; `_TextLabelError` for labels in words, of which truth values are some."""
        if values.plain_numbers(block.cells[name]) is None:
            words = block.words(name)
            if name in self._labels and not self._is_measured(block, name, words):
                raise _TextLabelError(name)
            self._words[name] |= words & (values.MISSING | values.TRUTH.keys())
        return block.numbers(name)

    def _is_measured(self, block: Block, name: str, words: frozenset[str]) -> bool:
        """Whether labels are numbers so far; among fractions a few texts are broken rows, and no classes."""
        numbers = {word for word in words if values.is_number(word) and word not in values.TRUTH}
        if len(numbers) == len(words):
            return True
        self._text_labels[name] += sum(text.strip().lower() not in numbers for text in block.cells[name])
        has_fractions = any(values.number_of(word) % 1 > 0 for word in numbers)
        is_few = self._text_labels[name] <= self._plan.broken * (self._count + len(block.rows))
        return has_fractions and is_few and not words & values.TRUTH.keys()

    def _starts(self, texts: dict[str, Column], count: int) -> Mask:
        """Which rows [count] begin another series."""
        if self._plan.group is None:
            return np.zeros(count, bool)
        groups = [self._group, *texts[self._plan.group].tolist()]
        self._group = groups[-1]
        return np.array([one != other for one, other in pairwise(groups)])

    def _fill(self, block: Block, name: str, column: values.Numbers, starts: Mask) -> None:
        """Put the planned numbers in place of missing ones, NaN in rows to drop."""
        fill, lacking = self._plan.fill, np.flatnonzero(np.isnan(column))
        if fill.how == "number":
            column[lacking] = fill.number
        if fill.how == "previous":
            for place in lacking:
                before = column[place - 1] if place else self._last.get(name, math.nan)
                column[place] = math.nan if starts[place] else before
            self._last[name] = column[-1]
        lacks = np.isnan(column) & block.is_whole()
        if lacks.any() and fill.how != "drop":
            raise ConfigError(
                f"{block.where(int(np.argmax(lacks)), name)} has no value",
                remedy="say what to do with missing=drop, missing=previous or missing=NUMBER",
            )

    def _is_given(self, block: Block, name: str, texts: Column) -> Mask:
        """Which rows have a text; `ConfigError` for one that lacks it unless such rows are dropped."""
        lacks = (texts == "") & block.is_whole()
        if lacks.any() and self._plan.fill.how != "drop":
            where = block.where(int(np.argmax(lacks)), name)
            option = "unlabelled" if name in self._plan.labels else "missing"
            raise ConfigError(f"{where} {NO_VALUE} {option}=drop")
        return np.asarray(texts != "")

    def _with_times(self, rows: TableRows) -> TableRows:
        """The rows with their times; one with a text that is not a time is broken."""
        where = f"{self._table.path}: column '{' and '.join(self._plan.times)}'"
        times, is_local = self._times.seconds(where)
        is_time = ~np.isnan(times)
        self._broken += int((~is_time).sum())
        if is_time.all():
            return replace(rows, times=times, is_local=is_local)
        place = int(np.argmin(is_time))
        self._first_broken = self._first_broken or f"{where} is not a time in row {place + 1}: repair it"
        before = rows.broken_before + np.cumsum(~is_time, dtype=np.int32)
        columns = {name: column[is_time] for name, column in rows.columns.items()}
        return TableRows(columns, before[is_time], times[is_time], is_local)

    def _report_skipped(self) -> SkippedFiles | None:
        """What was left out; `ConfigError` if it is more than the plan allows."""
        if not self._broken:
            return None
        if self._broken > self._plan.broken * self._count:
            raise ConfigError(
                f"{self._broken} of {self._count} rows are broken, more than broken={self._plan.broken:g} "
                f"allows; the first: {self._first_broken}",
                place=self._table.path,
            )
        what = f"{self._table.path}: {format_count(self._broken, 'broken row')} skipped"
        say_once(f"{what}; the first: {self._first_broken}", logging.WARNING)
        return SkippedFiles(files=self._broken, of=self._count, first=self._first_broken[:500], what="rows")

    def _judge_labels(self, columns: dict[str, Column]) -> None:
        """Words alone are text; `ConfigError` for a label that is missing unless such rows are dropped."""
        for name in self._labels:
            missing = self._words[name] & values.MISSING - {""}
            if missing and np.isnan(columns[name]).all():
                raise _TextLabelError(name)
            if missing:
                which = ", ".join(sorted(missing))
                say_once(
                    f"{self._table.path}: column '{name}' has numbers: {which} is taken as a missing one"
                )
            if name in self._unlabelled and self._plan.fill.how != "drop":
                raise ConfigError(f"{self._unlabelled[name]} {NO_VALUE} unlabelled=drop")
