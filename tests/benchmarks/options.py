"""Options of all benchmarks."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """The folder of the data, and the folder for large files (None: the system's temporary folder).

    `quick` requests one repetition at a size that only checks that the benchmark runs.
    """

    data_root: Path
    folder: Path | None = None
    quick: bool = False
