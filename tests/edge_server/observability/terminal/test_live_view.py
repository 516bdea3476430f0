"""The live view of a run in a terminal."""

import io

import pytest
from rich.console import Console

from edge_server.observability.snapshot import DeviceView
from edge_server.observability.terminal.display import PrettyDisplay, run_view
from tests.edge_server.observability.terminal.shown import (
    BOARD,
    MEASURED,
    PHONE,
    Terminal,
    record,
    scored,
    snapshot,
    summary,
    view,
)


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_shows_the_run_within_the_width(width: int) -> None:
    now = snapshot(
        devices=(PHONE, BOARD),
        history=(scored(1),),
        deadline_in_s=42.0,
        notes=("old", "phone [red]back[/red]", "x" * 300, "last"),
    )
    lines = view(now, width=width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "home  r1  training" in text
    assert "elapsed 1:05  deadline in 0:42" in text
    assert "round 2 of 10" in text
    assert [line.split() for line in lines if line.startswith("phone  ")] == [
        ["phone", "1", "70%", "training", "2/5", "0.432", "3.3", "MB", "0", "B"]
    ]
    assert "refused: not-finite" in text or "refused: not-fi" in text
    assert "1  50.00%  25.00%  75.00%       1.000" in text
    assert "[red]back[/red]" in text
    assert "old" not in text


def test_the_live_view_without_devices_states_that() -> None:
    lines = view(snapshot(phase="waiting", round=1, elapsed_s=0.0))
    assert "no devices yet" in lines
    assert not any("None" in line for line in lines)


def test_unmeasured_accuracy_is_a_dash() -> None:
    lines = view(snapshot(history=(record(1),)))
    assert any("not measured yet" in line for line in lines)
    assert ["1", "-", "-"] in [line.split() for line in lines]


def test_the_accuracy_lines_show_tested_rounds() -> None:
    lines = view(snapshot(history=(scored(1), record(2), record(3), record(4))))
    assert any(line.split()[:2] == ["1", "50.00%"] for line in lines)


def test_devices_that_do_not_fit_are_counted_and_active_devices_stay() -> None:
    idle = tuple(DeviceView(f"idle-{number:03}", 1, 0.7, "idle") for number in range(300))
    lines = view(snapshot(devices=(*idle, PHONE), history=(scored(1),), notes=("a",)), height=24)
    assert len(lines) < 24
    assert any(line.startswith("phone") for line in lines)
    assert sum(line.startswith("idle-") for line in lines) == int(300 - _rest(lines))


def _rest(lines: list[str]) -> int:
    counted = next(line for line in lines if line.startswith("and "))
    assert counted.endswith(f"{counted.split()[1]} idle")
    return int(counted.split()[1])


def test_a_terminal_without_unicode_gets_ascii() -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii"), width=80, height=30)
    now = snapshot(devices=(PHONE,), history=(scored(1), scored(2)))
    console.print(run_view(now, console.size, ascii_only=console.options.ascii_only))


def test_without_colour_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=Terminal(), force_terminal=True, width=80, height=30)
    console.print(run_view(snapshot(devices=(BOARD,)), console.size))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "refused" in written
    assert "\x1b[31m" not in written


def test_the_final_tables_replace_the_live_view() -> None:
    terminal = Terminal()
    console = Console(file=terminal, force_terminal=True, width=80, height=30)
    with PrettyDisplay(console) as display:
        display.show(snapshot(devices=(PHONE,)))
        display.show(snapshot(devices=(PHONE,), history=(scored(1),), summary=summary(devices=(MEASURED,))))
    end = terminal.getvalue()
    assert end.rindex("elapsed") < end.index("ms/img")
    assert "finished: 2 rounds in 1 min 15 s" in end
