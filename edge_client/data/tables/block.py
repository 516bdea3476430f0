"""One block of a table's rows, whose texts become numbers; broken rows are kept with their reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge_client.data.tables.table import Row, Table
from edge_client.data.tables.values import WITH_COMMA, Numbers, number_of, plain_numbers, remedy_of
from schemas.counted import counted
from schemas.errors import ConfigError


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
        for place, (number, values) in enumerate(rows):
            if len(values) != width:
                where = (
                    f"{table.place(number)}: {counted(len(values), 'value')} for {counted(width, 'column')}"
                )
                broken[place] = f"{where}: repair the line"
        empty = ("",) * width
        columns = zip(*(values if len(values) == width else empty for _, values in rows), strict=True)
        cells = dict(zip(names, columns, strict=True))
        return cls(table, [number for number, _ in rows], cells, broken)

    def where(self, place: int, column: str) -> str:
        return f"{self.table.place(self.rows[place])}: column '{column}'"

    def is_whole(self) -> NDArray[np.bool_]:
        whole = np.ones(len(self.rows), bool)
        whole[list(self.broken)] = False
        return whole

    def numbers(self, name: str) -> Numbers:
        """A column's numbers [N], NaN where they are missing; rows with anything else are broken."""
        texts = self.cells[name]
        numbers = plain_numbers(texts)
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
            return number_of(text)
        except ValueError:
            pass
        where = self.where(place, name)
        remedy = remedy_of(text, name, has_decimal=self.table.has_decimal)
        if WITH_COMMA.fullmatch(text.strip()):
            # A question of the whole file, not of a row.
            raise ConfigError(f"{where} is not a number: {remedy}", quoted=repr(text))
        self.broken.setdefault(place, f"{where} is not a number: {remedy}")
        return np.nan
