"""The page's pure modules, executed by the browser."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edge_server.config import units
from tests.browser.fleets import snapshot, staged

NUMBERS = (None, 0, 1, 12, 999, 1125, 1135, 12_350, 999.4, 999.6, 1663370, 43_200_000, 5.5e9, 2.6e15)
SHARES = (None, 0, 0.5, 0.97123, 1, 0.53125, 0.53375, 0.01645, 0.125, 0.005)  # 53.125 is a tie
LOSSES = (None, 0, 0.1234, 0.0625, -0.0625, 0.1875, 2.5, 999.9, 12345.6, 1.5e12)
SECONDS = (0, 0.25, 0.75, 4.16, 60.5, 61.5, 59.9, 61, 3599, 3600, 7380)
# The Python function that writes the same text.
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
        imported = f"const it = await import('/assets/{module}.js')"
        return page.evaluate(f"async given => {{ {imported}; return ({body})(it, given) }}", argument)

    return call


def test_the_page_writes_numbers_as_the_terminal_does(run: Callable[..., Any]) -> None:
    every = "(it, [name, values]) => values.map(value => it[name](value))"
    for name, write, values in ALIKE:
        assert run("units", every, [name, list(values)]) == [write(value) for value in values], name
    times = [3.14159, 0.0625, 12.25, 1000.5, 1234.5, 25_000]
    assert run("units", every, ["msText", times]) == [f"{units.number_text(time)} ms" for time in times]
    assert run("units", every, ["agoText", [4, 65, 90000]]) == ["now", "1 min ago", "1 d ago"]


def test_a_figure_is_that_of_the_data_which_the_metric_names(run: Callable[..., Any]) -> None:
    line = {"test_metrics": {"accuracy": 0.5}, "client_metrics": {"accuracy": 0.75}}
    shown = (
        "(it, [metric, line]) => [it.nameOf(metric), it.testedOf(metric, line), it.measureOf(metric).title]"
    )
    metric = {"name": "accuracy", "share": True, "higher": True}
    assert run("figures", shown, [metric | {"where": "test"}, line]) == ["test accuracy", 0.5, "Accuracy"]
    own = ["own data accuracy", 0.75, "Accuracy, own data"]
    assert run("figures", shown, [metric | {"where": "own data"}, line]) == own


STORE = """it => {
    const run = {run: "a", now: 110, history: [{round: 1}, {round: 2}]};
    let state = it.withRun(it.NOTHING, run, 100);
    for (const round of [3, 2, 4]) state = it.withRound(state, {round, again: round === 2});
    state = it.withFleet(state, {full: true, devices: [{device: "x"}, {device: "y"}], gone: []});
    const later = it.withFleet(state, {devices: [{device: "y", n: 1}], gone: []});
    const other = it.withRun(later, {run: "b", now: 110}, 100);
    return {
        rounds: state.history.map(closed => closed.round), again: state.history[1].again, clock: state.clock,
        same: later.fleet.get("x") === state.fleet.get("x"),
        left: it.withFleet(later, {devices: [], gone: ["x"]}).fleet.size,
        forgotten: other.history.length === 0 && other.fleet === null,
    };
}"""


def test_the_store_keeps_each_round_once_in_order_and_unchanged_rows(run: Callable[..., Any]) -> None:
    assert run("store", STORE) == {
        "rounds": [1, 2, 3, 4],
        "again": True,
        # The server's clock showed 110 when the browser's showed 100.
        "clock": 10,
        "same": True,
        "left": 1,
        "forgotten": True,
    }


def test_unknown_values_sort_last_and_names_in_natural_order(run: Callable[..., Any]) -> None:
    by_value = "(it, [rows, down]) => it.sorted(rows, row => row, down)"
    assert run("table", by_value, [[3, None, 1, 2], False]) == [1, 2, 3, None]
    assert run("table", by_value, [[3, None, 1, 2], True]) == [3, 2, 1, None]
    assert run("table", by_value, [["pi-10", "pi-9", "Pi-1"], False]) == ["Pi-1", "pi-9", "pi-10"]


def test_a_single_time_stands_in_the_middle_of_an_hour(run: Callable[..., Any]) -> None:
    ends = "(it, [times, min, max]) => it.TIMES.range({ data: [times] }, min, max)"
    assert run("charts", ends, [[1e9], 1e9, 1e9 + 86_400_000]) == [1e9 - 1800, 1e9 + 1800]
    assert run("charts", ends, [[1e9, 1e9 + 60], 1e9, 1e9 + 60]) == [1e9, 1e9 + 60]


def test_reconnect_delays_grow(run: Callable[..., Any]) -> None:
    assert run("events", "it => [1, 2, 3, 4, 5, 6, 60].map(it.pause)") == [1, 2, 4, 8, 15, 15, 15]


def test_addresses_survive_any_name(run: Callable[..., Any]) -> None:
    names = ["pi 4/kitchen?x=1#2", "ü%41", "layer1.0.conv1"]
    there_and_back = "(it, names) => names.map(name => it.parseRoute(it.deviceRoute(name)).path[0])"
    assert run("router", there_and_back, names) == names
    assert run("router", "it => it.parseRoute('#nowhere/%E0%A4%A').view") == "run"


def test_a_tier_keeps_the_first_channels_or_those_listed(run: Callable[..., Any]) -> None:
    cases = [[2, 1], [2, 2], [[0, 5], 5], [[0, 5], 1], [None, 9]]
    keeps = run("channels", "(it, cases) => cases.map(([kept, index]) => it.keeps(kept, index))", cases)
    assert keeps == [True, False, True, False, True]
    assert run("channels", "it => [it.keptCount([0, 5], 8), it.keptCount(null, 8)]") == [2, 8]
    # 3 occurs twice, the first with the better score; channels without a score come last.
    assert run("channels", "it => it.channelOrder([1, 3, null, 3], true)") == [1, 3, 0, 2]
    assert run("channels", "it => it.ranks([1, 3, null, 3])") == [3, 1, 4, 2]


ANNOUNCED = """(it, [rounds, outcome, before]) => {
    const at = (rounds, outcome) => ({
        run: {rounds: 12, outcome}, history: rounds.map(round => ({round, test_metrics: {accuracy: 0.9}})),
    });
    return it.announcement(at(rounds, outcome), before ? at(before, null) : {run: null, history: []});
}"""


def test_only_closed_rounds_and_the_end_are_announced_to_screen_readers(run: Callable[..., Any]) -> None:
    assert run("announcer", ANNOUNCED, [[1], None, []]) == "Round 1 of 12 closed, test accuracy 90.00%."
    assert run("announcer", ANNOUNCED, [[1], None, [1]]) is None
    assert run("announcer", ANNOUNCED, [[1], "finished", [1]]) == "The run has ended: finished."
    # A state from before the page was opened is not announced.
    assert run("announcer", ANNOUNCED, [[1], None, None]) is None


CONTRASTS = """it => {
    const part = (value) => ((value / 255 + 0.055) / 1.055) ** 2.4;
    const luminance = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
    return Array.from({length: 201}, (_, at) => it.sequential(at / 200)).map((colour) => {
        const [ground, ink] = [luminance(colour), it.inkOn(colour) === "#fff" ? 1 : 0];
        return (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
    });
}"""


def test_text_on_every_colour_of_a_share_is_legible(run: Callable[..., Any]) -> None:
    # WCAG 2.1, 1.4.3: at least 4.5:1.
    assert min(run("heatmap", CONTRASTS)) >= 4.5


def test_devices_are_found_by_words_and_by_labels(run: Callable[..., Any]) -> None:
    rows = [
        {"device": "pi-1", "state": "idle", "labels": {"site": "barn", "role": "camera"}},
        {"device": "pi-10", "state": "idle", "labels": {"site": "barn2"}},
        {"device": "pi-2", "state": "idle"},
    ]
    found = """(it, [rows, texts]) => texts.map(
        text => rows.filter(row => it.matches(row, {text, state: "", tier: ""})).map(row => row.device))"""
    texts = ["site=barn", "site!=barn", "site=barn,role=camera", "BARN", "pi-1 site=barn"]
    assert run("fleet_view", found, [rows, texts]) == [
        ["pi-1"],
        ["pi-10", "pi-2"],
        ["pi-1"],
        ["pi-1", "pi-10"],
        ["pi-1"],
    ]
