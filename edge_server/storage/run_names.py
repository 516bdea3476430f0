"""Where runs are kept, and how a run is named that nobody has named."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

RUNS = Path("runs")


def run_folder(out: Path | None, federation: str) -> Path:
    """The folder that the user names, or one by name and time."""
    return out or RUNS / run_name(federation)


def run_name(federation: str) -> str:
    """A name for a run that starts now."""
    return f"{federation[:40]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
