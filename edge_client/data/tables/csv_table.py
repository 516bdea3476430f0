"""Tables in CSV files as programs of many countries write them: separators, decimal commas, encodings, gzip.

What is not stated is told by the beginning of the file. A last line without a line end may be half written:
it is left out until the file has stayed the same for a while. Zero bytes, as a power cut leaves them behind,
are no line.
"""

import csv
import gzip
import io
import logging
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from edge_client.data.changes import SETTLED_S, settles_at
from edge_client.data.said_once import say_once
from edge_client.data.tables.table import Row, Table
from edge_client.data.tables.values import plain_numbers
from schemas.errors import ConfigError, format_count

DELIMITERS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
MAX_HEAD = 20  # most lines of remarks before the names of the columns
THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,]\d{3})+")
WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")

_NUMBER = re.compile(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?\s*")
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_SEPARATOR_LINE = re.compile(r"sep=(.)\s*")  # how files for Excel state what is between values

Cells = Sequence[Sequence[str]]


@dataclass(frozen=True)
class CsvForm:
    """The `head` are rows before the names of the columns."""

    delimiter: str = ","
    decimal: str = "."
    head: int = 0

    def in_words(self) -> str:
        """What is unusual about it; empty if nothing is."""
        between = DELIMITERS.get(self.delimiter, repr(self.delimiter))
        unusual = {
            f"{between} between values": self.delimiter != ",",
            "decimal commas": self.decimal == ",",
            f"{format_count(self.head, 'line')} before the names of its columns": self.head > 0,
        }
        return ", ".join(text for text, is_so in unusual.items() if is_so)


def form_of(lines: Sequence[str], *, delimiter: str = "", decimal: str = "") -> CsvForm:
    """The form of a file that begins with these lines; a stated delimiter or decimal sign counts."""
    separator = _SEPARATOR_LINE.fullmatch(lines[0]) if lines else None
    delimiter = delimiter or (separator[1] if separator else _delimiter(lines))
    rows = split(lines, delimiter)
    head = _header(rows[bool(separator) :]) or (0, 0)
    begin = bool(separator) + head[0]
    return CsvForm(delimiter, decimal or _decimal(rows[begin + 1 :], delimiter), begin)


def split(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The values of lines that have some."""
    return [row for row in csv.reader(lines, delimiter=delimiter) if any(row)]


def _delimiter(lines: Sequence[str]) -> str:
    """What makes most columns, equally many in header and most rows, and then most numbers; else a comma."""
    best, most = ",", (1, 0)
    for delimiter in DELIMITERS:
        rows = split(lines, delimiter)
        _, width = _header(rows) or (0, 0)
        made = width, sum(bool(_NUMBER.fullmatch(value)) for row in rows for value in row)
        if made > most and width > 1:
            best, most = delimiter, made
    return best


def _header(rows: Cells) -> tuple[int, int] | None:
    """The place of the row that names the columns, and how many it names; None if no row fits most rows.

    The first row does, or has no name for the rows' names; otherwise it is the first one without numbers.
    """
    if not rows:
        return None
    width, count = Counter(map(len, rows)).most_common(1)[0]
    if 2 * count < len(rows):
        return None
    fits = len(rows[0]) == width
    named = (
        place
        for place, row in enumerate(rows[:MAX_HEAD])
        if len(row) == width and not any(map(_NUMBER.fullmatch, row))
    )
    place = 0 if fits else next(named, None)
    if place is None:
        return (0, width - 1) if len(rows[0]) == width - 1 else None
    return place, width


def _decimal(rows: Cells, delimiter: str) -> str:
    """The sign before decimals: a comma if numbers have only commas, and not between thousands."""
    values = [value.strip() for row in rows for value in row]
    commas = [value for value in values if WITH_COMMA.fullmatch(value)]
    if not commas or any(map(_WITH_POINT.fullmatch, values)):
        return "."
    return "." if delimiter == "," and all(map(THOUSANDS.fullmatch, commas)) else ","


SAMPLE = 65_536  # bytes, and LOOK rows, by which a file is judged
LOOK = 100
BYTE_ORDERS = {b"\xff\xfe": b"\n\0", b"\xfe\xff": b"\0\n"}  # how a file in UTF-16 begins, and its line end
PACKED = b"\x1f\x8b"  # how a file that gzip has packed begins
USUAL = CsvForm()


@dataclass(frozen=True)
class CsvTable(Table):
    """A CSV file, of which the first `size` bytes are read; its first line names the columns.

    A half-written last line is left out until `settles_at`, in seconds since 1970.
    """

    has_decimal = True

    path: Path
    form: CsvForm = USUAL
    encoding: str = "utf-8-sig"
    size: int | None = None
    settles_at: float | None = None

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        """The rows, without empty lines, with the numbers of their lines."""
        with _text_of(self.path, self.encoding, self.size) as file:
            reader = csv.reader(file, delimiter=self.form.delimiter)
            rows = islice((row for row in reader if any(row)), self.form.head, None)
            try:
                yield ((reader.line_num, self._plain(row, reader.line_num)) for row in rows)
            except csv.Error as error:
                raise ConfigError(
                    f"{self.place(reader.line_num)} is not a line of a table: {error}"
                ) from error

    def place(self, number: int) -> str:
        return f"{self.path} line {number}"

    def _plain(self, row: list[str], number: int) -> list[str]:
        """The values with decimal points; none for a row with zero bytes."""
        if "\0" in "".join(row):
            return []
        return [self._with_point(value, number) for value in row] if self.form.decimal == "," else row

    def _with_point(self, value: str, number: int) -> str:
        text = value.strip()
        if THOUSANDS.fullmatch(text) and "." in text:
            raise ConfigError(
                "a number may be a thousand, as the file has decimal commas",
                place=self.place(number),
                remedy="write numbers without points between thousands, or state decimal=.",
                quoted=text,
            )
        return text.replace(",", ".") if WITH_COMMA.fullmatch(text) else value


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    return csv_table(path, options), options


def csv_table(path: Path, options: Mapping[str, str] | None = None) -> CsvTable:
    """The table of a file as it is at the moment, with the stated options or those that its beginning tells.

    Raises `ConfigError` for a file that cannot be read as text, and for wrong options.
    """
    stated = options or {}
    delimiter, decimal = _parse_stated_signs(stated, path)
    with _bytes_of(path, None) as file:
        start = file.read(SAMPLE)
    encoding = stated.get("encoding") or _encoding_of(start)
    size, whole_at = _whole_lines(path, start, encoding)
    with _text_of(path, encoding, size) as text:
        lines = list(islice(text, LOOK))
    if whole_at is not None and len(lines) < 2:
        raise ConfigError(f"{path} has no whole row: its last line has no line end, and may be half written")
    try:
        form = form_of(lines, delimiter=delimiter, decimal=decimal)
    except csv.Error as error:
        raise ConfigError(f"{path} is not a table of text: {error}") from error
    for header in split(lines, form.delimiter)[form.head : form.head + 1]:
        _check_names(path, header, stated)
    if words := form.in_words():
        say_once(f"{path} is read as a table with {words}")
    return CsvTable(path, form, encoding, size, whole_at)


def _parse_stated_signs(options: Mapping[str, str], path: Path) -> tuple[str, str]:
    """Delimiter and decimal sign, each empty if it is not stated."""
    delimiter = options.get("delimiter", "").replace("tab", "\t")
    if "delimiter" in options and (len(delimiter) != 1 or delimiter in '\r\n"'):
        raise ConfigError(f"delimiter={delimiter} must be one character, or tab", place=f"csv:{path}")
    decimal = options.get("decimal", "")
    if "decimal" in options and decimal not in (",", "."):
        raise ConfigError(f"decimal={decimal} must be a comma or a point", place=f"csv:{path}")
    return delimiter, decimal


def _encoding_of(start: bytes) -> str:
    """The encoding of a file that begins like this; without a mark, every other byte of UTF-16 is zero."""
    if start[:2] in BYTE_ORDERS:
        return "utf-16"
    even, odd = start[:64:2], start[1:64:2]
    if odd and all(even) and not any(odd):
        return "utf-16-le"
    return "utf-16-be" if odd and all(odd) and not any(even) else "utf-8-sig"


def _check_names(path: Path, header: Sequence[str], options: Mapping[str, str]) -> None:
    """Refuse a first line of numbers, which is data, unless they count columns, or an option names one."""
    words = [word for name in header for word in name.split()]
    counted = [[str(start + place) for place in range(len(words))] for start in (0, 1)]
    stated = {name.strip() for text in options.values() for name in text.split(",")}
    if words and plain_numbers(words) is not None and words not in counted and not stated.intersection(words):
        raise ConfigError(
            f"{path} begins with numbers",
            remedy="name the columns in its first line; if these are their names, state the inputs "
            "with columns=...",
            quoted=", ".join(words),
        )


@contextmanager
def _bytes_of(path: Path, size: int | None) -> Iterator[BinaryIO]:
    """A file's first `size` bytes, or what gzip has packed in it."""
    try:
        with path.open("rb") as file:
            if file.peek(2)[:2] == PACKED:
                yield gzip.GzipFile(fileobj=file)  # type: ignore[misc]
            else:
                yield io.BufferedReader(_Beginning(file, size))
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def _text_of(path: Path, encoding: str, size: int | None) -> Iterator[io.TextIOWrapper]:
    """The text of a file's first `size` bytes."""
    try:
        with _bytes_of(path, size) as file:
            yield io.TextIOWrapper(file, encoding=encoding, newline="")
    except LookupError as error:
        raise ConfigError(
            f"encoding={encoding} must be one such as utf-8, utf-16, cp1252", place=f"csv:{path}"
        ) from error
    except UnicodeError as error:
        name, remedy = encoding.removesuffix("-sig").upper(), "such as encoding=cp1252 of Windows"
        raise ConfigError(f"{path} is not text in {name}: state another, {remedy}: {error}") from error


class _Beginning(io.RawIOBase):
    """The first `size` bytes of a file, all if it is None."""

    def __init__(self, file: BinaryIO, size: int | None) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._file.read(len(buffer) if self._left is None else min(len(buffer), self._left))
        buffer[: len(part)] = part
        self._left = None if self._left is None else self._left - len(part)
        return len(part)


def _whole_lines(path: Path, start: bytes, encoding: str) -> tuple[int | None, float | None]:
    """The bytes up to the last line end, and when a line behind it counts as whole, if not yet."""
    line_end = _line_end(start, encoding)
    with path.open("rb") as file:
        if file.peek(2)[:2] == PACKED:
            return None, None
        size = os.fstat(file.fileno()).st_size
        end = _place_behind(file, size, lambda part: len(part.rstrip(b"\0"))) if len(line_end) == 1 else size
        whole = _place_behind(file, end, lambda part: _behind_last(part, line_end))
    if end < size:
        say_once(
            f"{path} ends in {size - end} zero bytes, as after a power cut: they are left out",
            logging.WARNING,
        )
        return whole, None
    whole_at = None if whole == end else settles_at(path)
    if whole_at is None:
        return end, None
    say_once(
        f"{path}: the last line has no line end, and may be half written: it is left out until the file has "
        f"stayed the same for {SETTLED_S // 60} minutes"
    )
    return whole, whole_at


def _line_end(start: bytes, encoding: str) -> bytes:
    """What ends the lines of a file that begins like this."""
    if start[:2] in BYTE_ORDERS:
        return BYTE_ORDERS[start[:2]]
    wide = {"utf-16-le": b"\n\0", "utf-16-be": b"\0\n"}.get(encoding.lower())
    return wide or (b"\n" if b"\n" in start else b"\r")


def _behind_last(part: bytes, line_end: bytes) -> int:
    place = part.rfind(line_end)
    return 0 if place < 0 else place + len(line_end)


def _place_behind(file: BinaryIO, end: int, look: Callable[[bytes], int]) -> int:
    """The place behind what `look` finds last in the first `end` bytes; 0 if that is nowhere."""
    while end > 0:
        begin = max(0, end - SAMPLE)
        file.seek(begin)
        if place := look(file.read(end - begin)):
            return begin + place
        end = begin
    return 0
