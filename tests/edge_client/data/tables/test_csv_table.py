"""CSV files as programs of many countries write them, and while they are being written."""

import gzip
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.changes import SETTLED_S
from edge_client.data.said_once import say_once
from edge_client.data.sources import load_source
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names

ROWS = [(20.5, 1.25, "busy"), (21.5, -0.5, "free"), (19.0, 1e-3, "busy")]


def written(delimiter: str = ",", decimal: str = ".", end: str = "\n") -> str:
    lines = [["temperature", "delta", "state"], *([str(value) for value in row] for row in ROWS)]
    return end.join([*(delimiter.join(line).replace(".", decimal) for line in lines), ""])


FORMS = {
    "comma": written().encode(),
    "semicolon": written(";").encode(),
    "semicolon and decimal comma": written(";", ",").encode(),
    "tab and decimal comma": written("\t", ",").encode(),
    "bar": written("|").encode(),
    "Windows": written(";", ",", "\r\n").encode("utf-8-sig"),
    "old Macintosh": written(end="\r").encode(),
    "UTF-16": written("\t", ",", "\r\n").encode("utf-16"),
    "UTF-16 of another byte order": b"\xfe\xff" + written().encode("utf-16-be"),
    "UTF-16 without a mark": written().encode("utf-16-le"),
    "UTF-16 of another byte order without a mark": written(";", ",").encode("utf-16-be"),
    "gzip": gzip.compress(written(";", ",").encode()),
    "Grafana's file for Excel": b"sep=;\r\n" + written(";", ".", "\r\n").encode(),
    "quoted": b'"temperature","delta","state"\n"20,5","1,25",busy\n"21,5","-0,5",free\n"19","0,001",busy\n',
    "remarks": ("Logger 7; room A\n\nserial;10168\n" + written(";", ",")).encode(),
    "a remark": ("# exported 2026\n" + written()).encode(),
    "numpy.savetxt": b"# " + written().encode(),
    "a name with a comma": written(";", ",").replace("delta", "delta, K").encode(),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    say_once.cache_clear()
    return tmp_path / "t.csv"


@pytest.mark.parametrize("form", FORMS)
def test_the_same_table_is_read_in_every_form(form: str, path: Path) -> None:
    path.write_bytes(FORMS[form])
    data = load_source(f"csv:{path}?label=state")
    np.testing.assert_array_equal(data.images, np.array([row[:2] for row in ROWS], np.float32))
    assert data.class_names == ("busy", "free")


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_two_columns_with_decimal_commas_are_not_three(delimiter: str, path: Path) -> None:
    path.write_text("x;y\n310,6345;a\n149,4571;b\n".replace(";", delimiter))
    data = load_source(f"csv:{path}?label=y")
    assert data.images[:, 0].tolist() == pytest.approx([310.6345, 149.4571])


def test_what_the_beginning_does_not_tell_is_stated(path: Path) -> None:
    path.write_bytes("Temperatur °C:y\n1,500:a\n2,250:b\n".encode("cp1252"))
    data = load_source(f"csv:{path}?label=y&delimiter=:&decimal=,&encoding=cp1252")
    assert column_names(data) == ("Temperatur °C",)
    assert data.images.tolist() == [[1.5], [2.25]]
    path.write_text("x\n1,5\n3,25\n2,5\n")
    assert load_source(f"csv:{path}?delimiter=;").images.tolist() == [[1.5], [3.25], [2.5]]
    path.write_text("x\ty\n1\ta\n")
    assert load_source(f"csv:{path}?label=y&delimiter=tab").images.tolist() == [[1]]


@pytest.mark.parametrize(
    "text", ["18.25,412.0\n18.5,430.5\n", "  1.5e1   4.1e2\n  1.6e1   4.2e2\n", "1;0\n2;0\n"]
)
def test_a_file_without_names_of_columns_loses_no_row(text: str, path: Path) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"begins with numbers: name the columns in its first line"):
        load_source(f"csv:{path}")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("0,1\n18.25,412.0\n", ""),
        ("1,2\n18.25,412.0\n", ""),
        (",0,1\n0,18.25,412.0\n", ""),
        ("400.5,401.5\n18.25,412.0\n", "?columns=400.5,401.5"),
    ],
)
def test_names_that_are_numbers_count_columns_or_are_stated(text: str, options: str, path: Path) -> None:
    path.write_text(text)
    assert load_source(f"csv:{path}{options}").images.tolist() == [[18.25, 412.0]]


def test_a_file_that_begins_with_zero_bytes_has_no_rows(path: Path) -> None:
    path.write_bytes(b"x,\0y\n1,2\n")
    with pytest.raises(ConfigError, match="has no rows"):
        load_source(f"csv:{path}")


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("x,y\n1,2\n", "delimiter=;;", "delimiter=;; must be one character, or tab"),
        ("x,y\n1,2\n", "decimal=x", "decimal=x must be a comma or a point"),
        ("x,y\n1,2\n", "encoding=utf-9", "encoding=utf-9 must be one such as utf-8"),
        # 1,234 is 1.234 in some countries and 1234 in others.
        ('x,y\n"1,234",2\n', "", "column 'x' is not a number: state decimal=, if the comma is a decimal one"),
        ("x;y\n1,5;2\n2,5;1.234\n", "decimal=,", r"line 3: a number may be a thousand"),
        ("x;y\n1.234,5;2\n" + "2,5;3\n" * 20, "", r"line 2: column 'x' is not a number: state decimal="),
        (
            "x\n1,5\n3,25\n2,5\n",
            "",
            "rows have one value more than there are names: name all columns, or state delim",
        ),
        # Whole numbers alone do not tell what decimals look like.
        ("x,y\n" + "1,2\n" * 200 + '"1,5",2\n', "", "line 202: column 'x' is not a number: state decimal="),
    ],
)
def test_what_may_mean_two_things_is_asked(text: str, options: str, why: str, path: Path) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_source(f"csv:{path}?{options}")


def test_a_packed_file_that_is_cut_off_is_refused(path: Path) -> None:
    path.write_bytes(gzip.compress(written().encode())[:-12])
    with pytest.raises(ConfigError, match="cannot read"):
        load_source(f"csv:{path}?label=state")


HALF_LINES = [b"22.5,1.0,bu", b"22.5,1.0,busy", b"22.5", "22,5;1,0;bu".encode("utf-16-le")]


@pytest.mark.parametrize("half", HALF_LINES)
def test_a_last_line_without_an_end_waits(half: bytes, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    is_wide = b"\0" in half
    path.write_bytes(written(";", ",").encode("utf-16") + half if is_wide else written().encode() + half)
    with caplog.at_level(logging.INFO):
        data = load_source(f"csv:{path}?label=state")
        load_source(f"csv:{path}?label=state")
    assert data.settles_at is not None
    assert (len(data), data.class_names, data.skipped) == (3, ("busy", "free"), None)
    assert sum("the last line has no line end" in text for text in caplog.messages) == 1


def test_it_counts_when_the_file_has_stayed_the_same(path: Path) -> None:
    path.write_text(written() + "22.5,1.0,warm")
    settled = path.stat().st_mtime - SETTLED_S - 1
    os.utime(path, (settled, settled))
    data = load_source(f"csv:{path}?label=state")
    assert data.settles_at is None
    assert data.images[:, 0].tolist() == [20.5, 21.5, 19, 22.5]


def test_a_late_label_without_a_line_end_waits_too(path: Path, tmp_path: Path) -> None:
    path.write_text("id,x\na,1\nb,2\n")
    (tmp_path / "late.csv").write_text("id,state\na,good\nb,go")
    data = load_source(f"csv:{path}?id=id&labels={tmp_path / 'late.csv'}&label=state")
    assert data.settles_at is not None
    assert (data.class_names, data.images.tolist()) == (("good",), [[1]])


def test_a_file_of_half_a_row_says_so(path: Path) -> None:
    path.write_text("x,y\n1,2")
    with pytest.raises(ConfigError, match="has no whole row: its last line has no line end"):
        load_source(f"csv:{path}")


@pytest.mark.parametrize("before", ["", "22.5,1.0,bu"])
@pytest.mark.parametrize("zeros", [1, 4096, 200_000])
def test_zero_bytes_at_the_end_are_left_out(
    before: str, zeros: int, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes((written() + before).encode() + bytes(zeros))
    with caplog.at_level(logging.WARNING):
        data = load_source(f"csv:{path}?label=state")
    assert (len(data), data.class_names, data.settles_at) == (3, ("busy", "free"), None)
    assert f"ends in {zeros} zero bytes" in caplog.text


def test_of_a_line_behind_zero_bytes_nothing_is_learnt(path: Path) -> None:
    path.write_bytes(written().encode() + b"22.5,1.0,bu\0\0\0\0" + written().split("\n", 1)[1].encode() * 5)
    data = load_source(f"csv:{path}?label=state")
    assert data.class_names == ("busy", "free")
    assert data.skipped is not None
    assert (data.skipped.files, data.skipped.of) == (1, 18)


def test_rows_written_during_a_read_are_read_at_the_next(path: Path) -> None:
    from edge_client.data.tables.csv_table import csv_table

    path.write_text(written())
    table = csv_table(path)
    with path.open("a") as file:
        file.write("1.0,2.0,warm\n1.0,2.0,wa")
    with table.open_rows() as rows:
        assert len([*rows]) == 4
    with csv_table(path).open_rows() as rows:
        assert len([*rows]) == 5


def test_a_missing_quotation_mark_makes_no_class_of_many_lines(path: Path) -> None:
    path.write_text("x,y\n" + "1,a\n" * 20 + '2,"b\n3,a\n4,a\n')
    data = load_source(f"csv:{path}?label=y")
    assert (len(data), data.class_names) == (20, ("a",))
    assert data.skipped is not None
    assert "line 24: column 'y' has several lines: is a quotation mark missing?" in data.skipped.first


AIR_QUALITY = """Date;Time;CO(GT);PT08.S1(CO);AH;;
10/03/2004;18.00.00;2,6;1360;0,7578;;
10/03/2004;19.00.00;2;1292;0,7255;;
13/03/2004;20.00.00;-200;1402;0,7502;;
;;;;;;
"""
POWER = """Date;Time;Global_active_power;Voltage
16/12/2006;17:24:00;4.216;234.840
16/12/2006;17:25:00;?;?
16/12/2006;17:26:00;5.374;233.290
"""
THINGSBOARD = """"Timestamp";"temperature";"active"
"2026-11-01 10:00:00";"21.5";"true"
"2026-11-01 10:00:05";"21.6";"false"
"""
GRAFANA = '"Time","room","light"\n"2026-11-01 10:00:00","21.5","300"\n"2026-11-01 10:01:00","21.6","301"\n'


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        (AIR_QUALITY, "time=Date,Time", [[2.6, 1360, 0.7578], [2, 1292, 0.7255], [-200, 1402, 0.7502]]),
        (POWER, "time=Date,Time&missing=drop", [[4.216, 234.84], [5.374, 233.29]]),
        (THINGSBOARD, "time=Timestamp", [[21.5, 1], [21.6, 0]]),
        (GRAFANA, "time=Time", [[21.5, 300], [21.6, 301]]),
    ],
    ids=["UCI air quality", "UCI household power", "ThingsBoard", "Grafana"],
)
def test_exports_are_read(text: str, options: str, rows: list[list[float]], path: Path) -> None:
    path.write_text(text)
    np.testing.assert_array_equal(load_source(f"csv:{path}?{options}").images, np.array(rows, np.float32))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_of_a_file_that_is_cut_anywhere_only_whole_rows_are_learnt(encoding: str, path: Path) -> None:
    whole = written(";", ",").encode(encoding)
    # From the end of the first row on.
    begin = len("\n".join([*written(";", ",").split("\n")[:2], ""]).encode(encoding))
    for end in range(begin, len(whole) + 1):
        path.write_bytes(whole[:end])
        data = load_source(f"csv:{path}?label=state")
        expected = ROWS[: len(data)]
        assert data.images.tolist() == np.array([row[:2] for row in expected], np.float32).tolist()
        assert [data.class_names[label] for label in data.labels] == [row[2] for row in expected]
