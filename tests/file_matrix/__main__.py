"""Write and try all files: `python -m tests.file_matrix`; the exit code is 1 if a cell is wrong.

With words, only the rows whose kind or writer has one of them, and no table is written.
"""

import logging
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

from tests.file_matrix.cells import Cell, Result, try_row
from tests.file_matrix.programs import version_of
from tests.file_matrix.rows import FOLDER, Row
from tests.file_matrix.table import faults_of, page_of
from tests.file_matrix.writers import ROWS

TABLE = Path(__file__).parent / "MATRIX.md"


def try_rows(rows: list[Row]) -> tuple[list[Result], list[tuple[Row, str]]]:
    """The results of all rows whose writer is here, and the others with the reason."""
    results, skipped = [], []
    for row in rows:
        if version_of(row.writer) is None:
            skipped.append((row, f"{row.writer} is not installed"))
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                result = try_row(row, Path(folder))
        except (ModuleNotFoundError, RuntimeError) as error:
            # A reader that is compared with, or a coder that a program was built without.
            skipped.append((row, str(error)))
            continue
        results.append(replace(result, cells=_without(folder, result)))
    return results, skipped


def _without(folder: str, result: Result) -> dict[str, Cell]:
    """The cells without the name of the temporary folder, which differs from run to run."""
    return {
        path: replace(cell, words=cell.words.replace(folder, FOLDER)) for path, cell in result.cells.items()
    }


def main(words: list[str]) -> int:
    """Try the rows, print the faults, write the table."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    chosen = [row for row in ROWS if not words or any(word in f"{row.kind} {row.writer}" for word in words)]
    results, skipped = try_rows(chosen)
    faults = faults_of(results)
    print(*faults, sep="\n")
    print(f"{len(results)} rows, {len(faults)} faults, {len(skipped)} rows without their writer")
    if words:
        print(page_of(results, skipped))
    else:
        TABLE.write_text(page_of(results, skipped))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
