"""What is shown of a run: live, as lines, as JSON, and in the tables at its end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, ConsoleDimensions

from edge_server.display.closing import print_closing
from edge_server.display.display import Display, make_display
from edge_server.display.json_lines import JsonLines
from edge_server.display.plain import PlainDisplay, changes, round_line
from edge_server.display.pretty import PrettyDisplay
from edge_server.display.sparkline import sparkline
from edge_server.display.tables import LAST_ROUNDS, device_table, round_table
from edge_server.display.units import (
    bytes_text,
    clean,
    clock_text,
    count_text,
    duration_text,
    loss_text,
    names_text,
    percent_text,
    si_text,
)
from edge_server.display.view import run_view
from edge_server.history import DeviceRecord, Rejected, RoundRecord, Summary
from edge_server.snapshot import DeviceView, Snapshot


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
    return record(
        number, train_loss=1 / number, test_accuracy=1 - 0.5 / number, tier_accuracy={1: 0.25, 5: 0.75}
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


def interrupt(display: Display, last: Snapshot) -> None:
    """Show one snapshot; then the user stops the run."""
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012, SIM117
        with display:
            display.show(last)
            raise KeyboardInterrupt


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# Numbers


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (bytes_text, 0, "0 B"),
        (bytes_text, 999, "999 B"),
        (bytes_text, 999_499, "999 kB"),
        (bytes_text, 999_600, "1 MB"),
        (bytes_text, 6_653_480, "6.65 MB"),
        (bytes_text, 2e18, "2,000 PB"),
        (bytes_text, None, "-"),
        (si_text, 43_201_000, "43.2 M"),
        (si_text, 12, "12"),
        (count_text, 1_663_370, "1,663,370"),
        (count_text, None, "-"),
        (percent_text, 0.97123, "97.12%"),
        (percent_text, None, "-"),
        (loss_text, 0.4321, "0.432"),
        (loss_text, 1e9, "1.00e+09"),
        (duration_text, 4.21, "4.2 s"),
        (duration_text, 59.97, "1 min 00 s"),
        (duration_text, 65.2, "1 min 05 s"),
        (duration_text, 7380, "2 h 03 min"),
        (clock_text, -1, "0:00"),
        (clock_text, 65.9, "1:05"),
        (clock_text, 3723, "1:02:03"),
    ],
)
def test_numbers_read_well(write: Callable[[Any], str], value: object, text: str) -> None:
    assert write(value) == text


def test_a_long_list_of_names_is_counted() -> None:
    assert names_text(["a", "b", "c", "d"], most=2) == "a, b and 2 more"


def test_control_characters_from_elsewhere_do_not_reach_the_terminal() -> None:
    assert clean("lost\x1b[31m\nnow") == "lost [31m now"
    assert "\x1b" not in "\n".join(view(snapshot(notes=("a\x1b[2Jb",))))


def test_a_sparkline_spans_its_own_values() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.3, 0.3]) == "▄▄"
    assert sparkline([]) == ""
    assert sparkline([0.0, 1.0], ascii_only=True) == "_#"


# The live view


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


def test_the_live_view_of_nothing_says_so() -> None:
    lines = view(snapshot(phase="waiting", round=1, elapsed_s=0.0))
    assert "no devices yet" in lines
    assert not any("None" in line for line in lines)


def test_unmeasured_accuracy_is_a_dash() -> None:
    lines = view(snapshot(history=(record(1),)))
    assert any("not measured yet" in line for line in lines)
    assert ["1", "-", "-"] in [line.split() for line in lines]


def test_the_accuracy_lines_are_those_of_tested_rounds() -> None:
    lines = view(snapshot(history=(scored(1), record(2), record(3), record(4))))
    assert any(line.split()[:2] == ["1", "50.00%"] for line in lines)


def test_what_does_not_fit_is_counted_and_active_devices_stay() -> None:
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


def test_the_live_view_makes_room_for_the_tables() -> None:
    terminal = Terminal()
    console = Console(file=terminal, force_terminal=True, width=80, height=30)
    with PrettyDisplay(console) as display:
        display.show(snapshot(devices=(PHONE,)))
        display.show(snapshot(devices=(PHONE,), history=(scored(1),), summary=summary(devices=(MEASURED,))))
    end = terminal.getvalue()
    assert end.rindex("elapsed") < end.index("ms/img")
    assert "finished: 2 rounds in 1 min 15 s" in end


# Plain lines


def lines_of(*snapshots: Snapshot) -> list[str]:
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for each in snapshots:
        display.show(each)
    return stream.getvalue().splitlines()


def test_plain_lines_tell_a_run_and_never_repeat() -> None:
    offline = DeviceView("phone", 1, 0.7, "offline")
    closed = record(
        2,
        completed=("phone",),
        train_loss=0.5,
        test_accuracy=0.75,
        tier_accuracy={5: 0.8, 1: 0.7},
        dropped=("board",),
        rejected=(Rejected(device="watch", reason="not-finite"),),
    )
    first = snapshot(devices=(PHONE,))
    lost = snapshot(devices=(offline, BOARD), elapsed_s=70)
    back = snapshot(devices=(PHONE, BOARD), elapsed_s=80)
    after = snapshot(devices=(PHONE, BOARD), elapsed_s=90, history=(closed,), phase="waiting", round=3)
    assert lines_of(first, first, lost, lost, back, after, after) == [
        "   1:05  joined: phone (tier 1, 70% pruned)",
        "   1:05  round 2 of 10: training",
        "   1:10  lost: phone",
        "   1:10  joined: board (tier 5, 0% pruned)",
        "   1:20  back: phone",
        "   1:30  round 2 of 10 closed: test 75.00%, tiers 1: 70.00% 5: 80.00%, train loss 0.500, "
        "1/2 devices, dropped board; refused watch (not-finite), 6.65 MB down, 12.3 MB up, 4.2 s",
        "   1:30  round 3 of 10: waiting",
    ]


def test_rounds_closed_between_two_snapshots_all_get_a_line() -> None:
    lines = list(changes(snapshot(history=(record(1),)), snapshot(history=(record(1), record(2), record(3)))))
    assert [line.split(":")[0] for line in lines] == ["round 2 of 10 closed", "round 3 of 10 closed"]


def test_a_device_first_seen_offline_is_back_when_it_comes() -> None:
    offline, there = DeviceView("phone", 1, 0.7, "offline"), DeviceView("phone", 1, 0.7, "idle")
    lines = lines_of(snapshot(devices=(offline,)), snapshot(devices=(there,)))
    assert lines[0].endswith("joined: phone (tier 1, 70% pruned, offline)")
    assert lines[-1].endswith("back: phone")


def test_each_plain_line_is_flushed() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8")
    PlainDisplay(stream).show(snapshot())
    assert raw.getvalue().endswith(b"training\n")


# JSON


def test_json_is_the_rounds_once_then_the_summary() -> None:
    stream = io.StringIO()
    with JsonLines(stream) as display:
        display.show(snapshot(devices=(PHONE,)))
        display.show(snapshot(history=(record(1),)))
        display.show(snapshot(history=(record(1), record(2)), summary=summary()))
    documents = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [document.get("round") for document in documents] == [1, 2, None]
    assert RoundRecord.model_validate(documents[0]) == record(1)
    assert Summary.model_validate(documents[2]) == summary()


def test_json_of_a_run_without_an_end_has_no_summary() -> None:
    stream = io.StringIO()
    interrupt(JsonLines(stream), snapshot(history=(record(1),)))
    assert len(stream.getvalue().splitlines()) == 1


# Which display


def test_the_stream_and_the_format_choose_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_display(stream=Terminal()), PrettyDisplay)
    assert isinstance(make_display(stream=io.StringIO()), PlainDisplay)
    assert isinstance(make_display(stream=Terminal(), format="json"), JsonLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(stream=Terminal()), PlainDisplay)


# Tables at the end


def test_the_device_table_says_where_the_runtimes_differ() -> None:
    other = MEASURED.model_copy(update={"device": "board", "onnx_accuracy": 0.9122})
    rows = [line.split() for line in drawn(device_table(summary(devices=(MEASURED, other))), width=100)]
    same, differs = next(r for r in rows if r[:1] == ["phone"]), next(r for r in rows if r[:1] == ["board"])
    numbers = ["1", "498,365", "5.3", "M", "0", "B", "0", "B", "91.23%"]
    assert same[1:] == [*numbers, "91.23%", "0.457"]
    assert differs[1:] == [*numbers, "91.22%", "differs", "0.457"]


def test_a_device_that_delivered_nothing_has_dashes() -> None:
    bare = DeviceRecord(device="board", tier=5, ratio=0.0)
    lines = drawn(device_table(summary(devices=(MEASURED, bare))), width=100)
    row = next(line for line in lines if line.startswith("board"))
    assert row.split() == ["board", "5", "-", "-", "0", "B", "0", "B", "-", "-", "-"]


def test_devices_without_models_of_their_own_are_told_by_their_part_in_the_rounds() -> None:
    virtual = DeviceRecord(device="board", tier=1, ratio=0.7, rounds=3, uplink_bytes=2000)
    lines = drawn(device_table(summary(devices=(virtual,))))
    assert lines[1].split() == ["device", "tier", "pruned", "updates", "refused", "down", "up"]
    assert lines[3].split() == ["board", "1", "70%", "3", "0", "0", "B", "2", "kB"]


def test_virtual_time_is_called_so() -> None:
    assert drawn(round_table([record(1)]))[1].split()[-2:] == ["up", "time"]
    virtual = record(1).model_copy(update={"virtual_time_s": 1.0})
    assert drawn(round_table([virtual]))[1].split()[-2:] == ["virtual", "time"]


def test_late_updates_are_counted_with_the_latest() -> None:
    assert "late" not in round_line(record(1), rounds=9)
    late = record(4).model_copy(update={"staleness": {"a": 1, "b": 3}})
    assert "2 late by up to 3 rounds" in round_line(late, rounds=9)


def test_a_run_that_goes_on_does_not_tell_its_rounds_again() -> None:
    lines = list(changes(None, snapshot(history=(record(1), scored(2)))))
    assert [line for line in lines if "closed" in line] == []
    assert any(line.startswith("going on after round 2 of") for line in lines)


def test_the_round_table_names_what_did_not_count() -> None:
    lines = drawn(round_table([record(1), record(2, dropped=("[b]x[/b]",))]))
    assert lines[-1] == "round 2: dropped [b]x[/b]"


def test_a_long_run_ends_with_its_last_rounds() -> None:
    lines = drawn(round_table([record(number) for number in range(1, LAST_ROUNDS + 6)]))
    assert "5 earlier rounds are in history.jsonl" in lines
    assert lines[3].split()[0] == "6"


@pytest.mark.parametrize("width", [80, 120])
def test_the_closing_tables_fit(width: int) -> None:
    devices = (MEASURED, MEASURED.model_copy(update={"device": "b" * 64, "onnx_accuracy": 0.1}))
    console = Console(width=width, record=True, file=io.StringIO())
    end = snapshot(history=(scored(1), record(2)), summary=summary(devices=devices))
    print_closing(console, end)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert any("differs" in line and "0.457" in line for line in lines)


def test_an_interrupted_run_still_shows_its_rounds() -> None:
    stream = io.StringIO()
    interrupt(PlainDisplay(stream), snapshot(history=(scored(1),)))
    assert "stopped in round 2 of 10" in stream.getvalue()
    assert "train loss" in stream.getvalue()


def test_a_run_that_showed_nothing_ends_silently() -> None:
    stream = io.StringIO()
    with PlainDisplay(stream):
        pass
    assert stream.getvalue() == ""


def test_an_outcome_without_measurements_has_dashes() -> None:
    stream = io.StringIO()
    ended = summary(
        outcome="interrupted", detail="stopped by the user", rounds=0, test_accuracy=None, best_accuracy=None
    )
    with PlainDisplay(stream) as display:
        display.show(snapshot(summary=ended))
    assert "interrupted (stopped by the user): 0 rounds" in stream.getvalue()
    assert "test accuracy - (best -)" in stream.getvalue()


def test_a_link_that_is_down_is_said_once_and_so_is_its_return() -> None:
    down, up = snapshot(no_link="no connection to mqtt://host:1883"), snapshot()
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for state in (down, down, up, up):
        display.show(state)
    said = [line.strip().split("  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert said.count("no connection to mqtt://host:1883") == 1
    assert said.count("connected") == 1
