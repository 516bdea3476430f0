"""Plain-text progress of a run, one line per event."""

import io

from edge_server.observability.snapshot import DeviceView, Snapshot
from edge_server.observability.terminal.log_lines import PlainDisplay, changes, round_line
from edge_server.storage.records import Rejected
from tests.edge_server.observability.terminal.shown import (
    BOARD,
    PHONE,
    interrupt,
    record,
    scored,
    snapshot,
    summary,
)


def lines_of(*snapshots: Snapshot) -> list[str]:
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for state in snapshots:
        display.show(state)
    return stream.getvalue().splitlines()


def test_plain_lines_describe_a_run_without_repetition() -> None:
    offline = DeviceView("phone", 1, 0.7, "offline")
    closed = record(
        2,
        completed=("phone",),
        train_loss=0.5,
        test_metrics={"accuracy": 0.75},
        tier_metrics={5: {"accuracy": 0.8}, 1: {"accuracy": 0.7}},
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


def test_the_test_data_of_the_server_is_named_once_at_the_start() -> None:
    tested = "tested on 300 examples of python:mine:held_back"
    lines = lines_of(snapshot(tested_on=tested), snapshot(tested_on=tested, elapsed_s=70))
    assert [line for line in lines if "tested" in line] == [f"   1:05  {tested}"]
    assert not any("tested" in line for line in lines_of(snapshot()))


def test_a_device_first_seen_offline_is_reported_back_when_it_connects() -> None:
    offline, online = DeviceView("phone", 1, 0.7, "offline"), DeviceView("phone", 1, 0.7, "idle")
    lines = lines_of(snapshot(devices=(offline,)), snapshot(devices=(online,)))
    assert lines[0].endswith("joined: phone (tier 1, 70% pruned, offline)")
    assert lines[-1].endswith("back: phone")


def test_each_plain_line_is_flushed() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8")
    PlainDisplay(stream).show(snapshot())
    assert raw.getvalue().endswith(b"training\n")


def test_late_updates_are_counted_with_the_greatest_delay() -> None:
    assert "late" not in round_line(record(1), rounds=9)
    late = record(4).model_copy(update={"staleness": {"a": 1, "b": 3}})
    assert "2 late by up to 3 rounds" in round_line(late, rounds=9)


def test_a_closed_round_says_where_its_figure_is_from_and_what_naive_forecasts_reach() -> None:
    own = record(1, client_metrics={"accuracy": 0.61})
    assert "closed: own data 61.00%, train loss" in round_line(own, rounds=9)
    figures = {"mae": 1.2, "no-change": 1.5, "season-ago": 0.75}
    forecast = record(1, test_metrics=figures, tier_metrics={1: figures})
    line = round_line(forecast, rounds=9)
    assert "closed: test mae 1.2, no change 1.5, season ago 0.75, tiers 1: 1.2, train" in line


def test_a_resumed_run_does_not_repeat_its_rounds() -> None:
    lines = list(changes(None, snapshot(history=(record(1), scored(2)))))
    assert [line for line in lines if "closed" in line] == []
    assert any(line.startswith("resumed after round 2 of") for line in lines)


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


def test_an_outcome_without_measurements_names_no_figure() -> None:
    stream = io.StringIO()
    ended = summary(
        outcome="interrupted", detail="stopped by the user", rounds=0, test_metrics={}, best_metric=None
    )
    with PlainDisplay(stream) as display:
        display.show(snapshot(summary=ended))
    assert "interrupted (stopped by the user): 0 rounds" in stream.getvalue()
    assert "test accuracy" not in stream.getvalue()


def test_a_lost_link_and_its_return_are_reported_once_each() -> None:
    down, up = snapshot(no_link="no connection to mqtt://host:1883"), snapshot()
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for state in (down, down, up, up):
        display.show(state)
    messages = [line.strip().split("  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert messages.count("no connection to mqtt://host:1883") == 1
    assert messages.count("connected") == 1
