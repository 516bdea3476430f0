"""What stands on the screen when a run is over."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from edge_server.display.crowd import is_crowd, tier_table
from edge_server.display.tables import device_table, outcome_text, round_table
from edge_server.snapshot import Snapshot

COMFORTABLE_WIDTH = 100


def print_closing(console: Console, snapshot: Snapshot | None) -> None:
    """Print the tables of what is known, and the outcome where the run came to one."""
    if snapshot is None:
        return
    dense = console.width < COMFORTABLE_WIDTH
    if snapshot.history:
        console.print()
        console.print(round_table(snapshot.history, dense=dense))
    if snapshot.summary is not None and snapshot.summary.devices:
        console.print()
        table = tier_table if is_crowd(snapshot.summary.devices) else device_table
        console.print(table(snapshot.summary, dense=dense))
    console.print()
    console.print(Text(_outcome(snapshot), style="bold"))


def _outcome(snapshot: Snapshot) -> str:
    if snapshot.summary is not None:
        return outcome_text(snapshot.summary)
    return f"stopped in round {snapshot.round} of {snapshot.rounds}, before there was a summary"
