"""The interface of a writer: begin a run, write each closed round once, end the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edge_server.storage.records import RoundRecord, Summary


@dataclass(frozen=True)
class RunFacts:
    """A run that begins or resumes; `settings` are those of the federation file, by dotted key.

    `name` is unique and permanent for the run folder; `run` is the same for simulations of one file and seed.
    """

    federation: str
    run: str
    name: str
    rounds: int
    out: Path
    settings: Mapping[str, Any] = field(default_factory=dict)


class Writer(Protocol):
    """One destination; its methods run in their own thread, so they may raise and may be slow."""

    def begin(self, facts: RunFacts) -> int:
        """Open the run at the destination; returns its last complete round there, 0 for a new run."""
        ...

    def round(self, record: RoundRecord) -> None:
        """Write a closed round, whose number is the step."""
        ...

    def end(self, summary: Summary | None) -> None:
        """End this process's part; with a summary, the run is over."""
        ...


def scalars(record: RoundRecord) -> dict[str, float]:
    """The measured numbers of a round by name: bytes, seconds, accuracies from 0 to 1."""
    known: dict[str, float | None] = {
        "test/accuracy": record.test_accuracy,
        "test/loss": record.test_loss,
        "train/loss": record.train_loss,
        "client/accuracy": record.client_accuracy,
        **{f"tier-{tier}/accuracy": value for tier, value in sorted(record.tier_accuracy.items())},
        **_figures("test", record.test_metrics),
        **_figures("client", record.client_metrics),
        **_figures("own", record.own_metrics),
        **{
            k: v
            for tier, found in record.tier_metrics.items()
            for k, v in _figures(f"tier-{tier}", found).items()
        },
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


def _figures(prefix: str, found: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in sorted(found.items())}


LAST = "round/duration_s"  # Written last for every round: a round with this number is complete
