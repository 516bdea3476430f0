"""Measure the networks and write their table: `python -m tests.networks [WORD ...]`.

With words, only the networks whose names have one of them are measured anew. All are traced and cut first,
and then exported, which takes ten times as long. Each result is kept as soon as it is there, so that an
interrupted run goes on: without words, what was measured with these releases is not measured again.
"""

import json
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from tests.networks.measure import Measured, measure
from tests.networks.names import CLASSES, NAMES, SIDE
from tests.networks.page import page_of

TABLE = Path(__file__).parent / "NETWORKS.md"
RESULTS = Path(__file__).parent / "measured.json"


def read_results() -> dict[str, Measured]:
    """The rows by name."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    made = (
        Measured(**{key: tuple(each) if isinstance(each, list) else each for key, each in row.items()})
        for row in rows
    )
    return {row.name: row for row in made}


def write_results(rows: Mapping[str, Measured]) -> None:
    """Keep the rows, and write the page, in the order of the names."""
    ordered = [rows[name] for name in NAMES if name in rows]
    lines = ",\n".join(json.dumps(asdict(row)) for row in ordered)
    RESULTS.write_text(f"[\n{lines}\n]\n")
    TABLE.write_text(page_of(ordered))


def main(words: Sequence[str]) -> int:
    """Measure what is asked for; 1 if a network could not be exported."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    rows = read_results()
    for export in (False, True):
        for name in NAMES:
            asked = (
                any(word in name for word in words)
                if words
                else not _is_measured(rows.get(name), export=export)
            )
            if asked and not (export and rows[name].problem):
                rows[name] = measure(name, SIDE, CLASSES, export=export)
                print(json.dumps(asdict(rows[name])), flush=True)
                write_results(rows)
    return 1 if any(row.problem for row in rows.values()) else 0


def _is_measured(row: Measured | None, *, export: bool) -> bool:
    """Whether a network was measured with the release installed here, and exported if that is asked."""
    if row is None:
        return False
    library = row.name.partition(":")[0]
    return row.release == f"{library} {version(library)}" and bool(not export or row.differences)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
