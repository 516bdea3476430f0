"""What all benchmarks are told."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Where the data lies, and where large files have room (None: the system's folder for such).

    `quick` asks for one repetition at a size that only proves that the benchmark runs.
    """

    data_root: Path
    folder: Path | None = None
    quick: bool = False
