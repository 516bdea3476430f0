"""What a writer is: told of a run's beginning, of each closed round once, and of its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edge_server.storage.records import RoundRecord, Summary


@dataclass(frozen=True)
class RunFacts:
    """What is known when a run begins, or goes on; `settings` are the federation file's, by dotted key.

    Simulations of one file and seed are called the same: `name` is this run folder's alone, and stays.
    """

    federation: str
    run: str
    name: str
    rounds: int
    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)


class Writer(Protocol):
    """One destination. Its methods are called in a thread of their own, and may raise and take their time."""

    def begin(self, facts: RunFacts) -> int:
        """Open what there is of this run; the last round that is whole there, 0 where there is none."""
        ...

    def round(self, record: RoundRecord) -> None:
        """A round was closed: its number is the step. On return it is kept, or on its way."""
        ...

    def end(self, summary: Summary | None) -> None:
        """No round follows in this process; with a summary, the run is over."""
        ...


def scalars(record: RoundRecord) -> dict[str, float]:
    """The numbers of a round by name, without what was not measured: bytes, seconds, accuracies 0 to 1."""
    known: dict[str, float | None] = {
        "test/accuracy": record.test_accuracy,
        "test/loss": record.test_loss,
        "train/loss": record.train_loss,
        "client/accuracy": record.client_accuracy,
        **{f"tier-{tier}/accuracy": value for tier, value in sorted(record.tier_accuracy.items())},
        "bytes/up": record.uplink_bytes,
        "bytes/down": record.downlink_bytes,
        "devices/selected": len(record.selected),
        "devices/counted": len(record.completed),
        "devices/missed": len(record.dropped),
        "devices/refused": len(record.rejected),
        "privacy/epsilon": record.epsilon,
        "privacy/clip": record.clip,
        "round/virtual_time_s": record.virtual_time_s,
        LAST: record.duration_s,
    }
    return {name: float(value) for name, value in known.items() if value is not None}


LAST = "round/duration_s"
"""Every round has it, and it is written last: a round that has it is whole."""
