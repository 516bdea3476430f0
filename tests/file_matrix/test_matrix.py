"""Files of others are read as they are meant: the rows whose writers every development environment has."""

import re
from pathlib import Path

import pytest

from tests.file_matrix.__main__ import TABLE
from tests.file_matrix.cells import try_row
from tests.file_matrix.programs import LAYOUT, STANDARD
from tests.file_matrix.rows import Row
from tests.file_matrix.table import faults_of
from tests.file_matrix.writers import ROWS

LIGHT = (*STANDARD, "numpy", "cbor2", "h5py")
FURTHER = ("pandas", "pyarrow", "scipy", "soundfile", "pillow", "opencv-python-headless")
EACH = 6
"""Of the writers whose rows take longer, every sixth row is tried."""
CHOSEN = [
    *(row for row in ROWS if row.writer in LIGHT or row.writer.startswith(LAYOUT)),
    *[row for row in ROWS if row.writer in FURTHER][::EACH],
]


@pytest.mark.parametrize("row", CHOSEN, ids=[f"{row.kind} {row.writer}" for row in CHOSEN])
def test_a_file_is_read_as_it_is_meant(row: Row, tmp_path: Path) -> None:
    assert faults_of([try_row(row, tmp_path)]) == []


def test_the_committed_table_has_every_row_and_no_fault() -> None:
    page = TABLE.read_text()
    assert not re.search("WRONG|UNINTENDED", page)
    assert [row.kind for row in ROWS if row.kind not in page] == []
