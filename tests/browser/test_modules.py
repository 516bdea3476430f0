"""The page's pure modules, as the browser runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_server.display import units
from tests.browser.fleets import snapshot, staged

NUMBERS = (None, 0, 1, 12, 999, 999.4, 999.6, 1663370, 43_200_000, 5.5e9, 2.6e15)
SHARES = (None, 0, 0.5, 0.97123, 1)
LOSSES = (None, 0, 0.1234, 2.5, 999.9, 12345.6, 1.5e12)
SECONDS = (0, 4.16, 59.9, 61, 3599, 3600, 7380)
# Which function of which Python writes the same.
ALIKE: tuple[tuple[str, Callable[[Any], str], tuple[Any, ...]], ...] = (
    ("bytesText", units.bytes_text, NUMBERS),
    ("siText", units.si_text, NUMBERS),
    ("countText", units.count_text, (None, 0, 999, 1663370)),
    ("percentText", units.percent_text, SHARES),
    ("ratioText", units.ratio_text, SHARES[1:]),
    ("lossText", units.loss_text, LOSSES),
    ("durationText", units.duration_text, SECONDS),
    ("clockText", units.clock_text, SECONDS),
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with staged(tmp_path_factory.mktemp("modules") / "run", snapshot(3)) as stage:
        yield stage.url


@pytest.fixture(scope="module")
def run(url: str, new_page: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function of the modules given by their names."""
    page = new_page()
    page.goto(url)

    def call(module: str, body: str, argument: Any = None) -> Any:
        return page.evaluate(
            f"async given => {{ const it = await import('/assets/{module}.js'); return ({body})(it, given) }}", argument
        )

    return call


def test_the_page_writes_numbers_as_the_terminal_does(run: Callable[..., Any]) -> None:
    for name, write, values in ALIKE:
        shown = run("units", "(it, [name, values]) => values.map(value => it[name](value))", [name, list(values)])
        assert shown == [write(value) for value in values], name
    assert run("units", "it => [it.msText(3.14159), it.agoText(4), it.agoText(65), it.agoText(90000)]") == [
        f"{units.ms_text(3.14159)} ms", "now", "1 min ago", "1 d ago",
    ]  # fmt: skip


def test_the_store_keeps_rounds_once_and_in_order_and_rows_that_did_not_change(run: Callable[..., Any]) -> None:
    assert run("store", """it => {
        let state = it.withRun(it.NOTHING, {run: "a", now: 110, history: [{round: 1}, {round: 2}]}, 100);
        for (const round of [3, 2, 4]) state = it.withRound(state, {round, again: round === 2});
        state = it.withFleet(state, {full: true, devices: [{device: "x"}, {device: "y"}], gone: []});
        const [x, later] = [state.fleet.get("x"), it.withFleet(state, {devices: [{device: "y", n: 1}], gone: []})];
        const other = it.withRun(later, {run: "b", now: 110}, 100);
        return [state.history.map(one => one.round), state.history[1].again, state.clock, later.fleet.get("x") === x,
                it.withFleet(later, {devices: [], gone: ["x"]}).fleet.size, other.history.length, other.fleet];
    }""") == [[1, 2, 3, 4], True, 10, True, 1, 0, None]  # fmt: skip


def test_unknown_values_sort_last_either_way_and_names_as_people_count(run: Callable[..., Any]) -> None:
    assert run("table", """it => [false, true].map(down => it.sorted([3, null, 1, 2], one => one, down))""") == [
        [1, 2, 3, None],
        [3, 2, 1, None],
    ]
    assert run("table", "it => it.sorted(['pi-10', 'pi-9', 'Pi-1'], one => one, false)") == ["Pi-1", "pi-9", "pi-10"]


def test_a_lost_connection_is_tried_ever_more_slowly_up_to_a_quarter_of_a_minute(run: Callable[..., Any]) -> None:
    assert run("events", "it => [1, 2, 3, 4, 5, 6, 60].map(it.pause)") == [1, 2, 4, 8, 15, 15, 15]


def test_addresses_survive_any_name(run: Callable[..., Any]) -> None:
    names = ["pi 4/kitchen?x=1#2", "ü%41", "layer1.0.conv1"]
    assert run("router", "(it, names) => names.map(name => it.parseRoute(it.deviceRoute(name)).path[1])", names) == names
    assert run("router", "it => it.parseRoute('#nowhere/%E0%A4%A').view") == "run"


def test_a_tier_keeps_the_first_channels_or_those_listed(run: Callable[..., Any]) -> None:
    assert run("channels", """it => [it.keeps(2, 1), it.keeps(2, 2), it.keeps([0, 5], 5), it.keeps([0, 5], 1), it.keeps(null, 9),
        it.keptCount([0, 5], 8), it.keptCount(null, 8), it.channelOrder([1, 3, null, 3], true), it.ranks([1, 3, null, 3])]""") == [
        True, False, True, False, True, 2, 8, [1, 3, 0, 2], [3, 1, 4, 2],
    ]  # fmt: skip


def test_what_is_said_aloud_is_a_closed_round_or_the_end(run: Callable[..., Any], tmp_path: Path) -> None:
    assert run("teller", """it => {
        const at = (rounds, outcome) => ({run: {rounds: 12, outcome}, history: rounds.map(round => ({round, test_accuracy: 0.9}))});
        return [it.worthSaying(at([1], null), at([], null)), it.worthSaying(at([1], null), at([1], null)),
                it.worthSaying(at([1], "finished"), at([1], null)), it.worthSaying(at([1], null), {run: null, history: []})];
    }""") == ["Round 1 of 12 closed, test accuracy 90.00%.", None, "The run has ended: finished.", None]  # fmt: skip
