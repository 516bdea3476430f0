"""Example snapshots and summaries of a run, and functions that render them to text."""

import io
from contextlib import AbstractContextManager
from typing import Any

import pytest
from rich.console import Console, ConsoleDimensions

from edge_server.observability.snapshot import DeviceView, Snapshot, Watcher
from edge_server.observability.terminal.display import run_view
from edge_server.storage.records import DeviceRecord, RoundRecord, Summary


def record(number: int, **fields: Any) -> RoundRecord:
    values: dict[str, Any] = {
        "round": number,
        "fraction": 1.0,
        "local_epochs": 5,
        "selected": ("phone", "board"),
        "completed": ("phone", "board"),
        "uplink_bytes": 12_300_000,
        "downlink_bytes": 6_650_000,
        "duration_s": 4.2,
    }
    return RoundRecord(**(values | fields))


def scored(number: int) -> RoundRecord:
    accuracy, tiers = 1 - 0.5 / number, {1: 0.25, 5: 0.75}
    return record(
        number,
        train_loss=1 / number,
        test_accuracy=accuracy,
        tier_accuracy=tiers,
        test_metrics={"accuracy": accuracy},
        tier_metrics={tier: {"accuracy": value} for tier, value in tiers.items()},
    )


PHONE = DeviceView("phone", 1, 0.7, "training", epoch=2, epochs=5, loss=0.432, downlink_bytes=3_300_000)
BOARD = DeviceView("board", 5, 0.0, "refused", reason="not-finite", uplink_bytes=900_000)


def snapshot(**fields: Any) -> Snapshot:
    values: dict[str, Any] = {
        "federation": "home",
        "run": "r1",
        "phase": "training",
        "round": 2,
        "rounds": 10,
        "elapsed_s": 65.4,
    }
    return Snapshot(**(values | fields))


def summary(**fields: Any) -> Summary:
    values: dict[str, Any] = {
        "federation": "home",
        "run": "r1",
        "recipe": "attending",
        "outcome": "finished",
        "rounds": 2,
        "duration_s": 75.2,
        "model": "two-nn",
        "parameters": 1_663_370,
        "test_accuracy": 0.75,
        "best_accuracy": 0.8,
        "test_metrics": {"accuracy": 0.75},
        "best_metric": 0.8,
    }
    return Summary(**(values | fields))


MEASURED = DeviceRecord(
    device="phone",
    tier=1,
    ratio=0.7,
    parameters=498_365,
    macs=5_301_000,
    torch_accuracy=0.9123,
    onnx_accuracy=0.9123,
    latency_ms=0.4567,
)


def drawn(value: Any, *, width: int = 80) -> list[str]:
    console = Console(width=width, height=30, record=True, file=io.StringIO())
    console.print(value)
    return [line.rstrip() for line in console.export_text().splitlines()]


def view(now: Snapshot, *, width: int = 80, height: int = 30, **options: Any) -> list[str]:
    return drawn(run_view(now, ConsoleDimensions(width, height), **options), width=width)


def interrupt(display: AbstractContextManager[Watcher], last: Snapshot) -> None:
    """Show one snapshot, then raise the interrupt of a user who stops the run."""
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012, SIM117
        with display as shown:
            shown.show(last)
            raise KeyboardInterrupt


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
