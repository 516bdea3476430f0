"""The default folder and name of a run."""

from datetime import UTC, datetime
from pathlib import Path

RUNS = Path("runs")


def run_folder(out: Path | None, federation: str) -> Path:
    """The folder that the user names, or one named by federation and time."""
    return out or RUNS / run_name(federation)


def run_name(federation: str) -> str:
    """The name of a run that starts now: the federation and the time (UTC)."""
    return f"{federation[:40]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
