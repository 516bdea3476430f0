"""Readable figures: full axes and dates, right-aligned numbers, cards on a phone, no empty curves."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from edge_server.releases.registry.register import enter_run
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.open import begin_or_continue, model_rollout, offered_files
from edge_server.releases.rollout.state import RolloutRules
from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.events import Note
from edge_server.storage.event_list import EventFile
from edge_server.storage.records import MeasuredDevice, RoundWarning, Summary
from tests.browser.fleets import LONG_AGO, Stage, device, record, snapshot, staged
from tests.browser.screen import Screen
from tests.edge_server.releases.registry.test_registry import run_folder
from tests.slow import mark_slow, slow

PHONE = {"width": 360, "height": 740}
SUMMARY = Summary(
    federation="crowd",
    run="run-1",
    recipe=None,
    outcome="finished",
    rounds=3,
    duration_s=60,
    model="two-nn",
    parameters=10,
)
# Cells of numbers in the visible view that are not right-aligned.
LEFT = r"""() => [...document.querySelectorAll('.view:not([hidden]) :is(.plain, .rows) tbody :is(td, th)')]
    .filter(cell => /^-?[\d.,]+( [kMG]?B|%| s| ms)?$/.test(cell.innerText.trim()))
    .filter(cell => getComputedStyle(cell).textAlign !== 'right').map(cell => cell.outerHTML)"""
# Cells whose text is cut off or that extend beyond the edge.
CUT = """width => [...document.querySelectorAll('.view:not([hidden]) tbody :is(td, th, .words)')]
    .filter(cell => cell.checkVisibility())
    .filter(cell => cell.scrollWidth > cell.clientWidth + 1 || cell.getBoundingClientRect().right > width)
    .map(cell => cell.outerHTML)"""
# Cards in sight that are not where the card above them ends.
GAPS = """() => [...document.querySelectorAll('.rows tbody tr:not(.spacer)')]
    .map(row => row.getBoundingClientRect())
    .filter((box, place, boxes) => place && box.top - boxes[place - 1].bottom > 9)"""
SCROLL = """() => {
    const table = document.querySelector('.scroll.tall');
    table.scrollTop += table.scrollHeight / 8;
    return new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
}"""
HEADS = """() => [document.querySelector('.view:not([hidden]) tbody tr:not(.spacer)')].flatMap(
    row => [...row.children].filter(cell => cell.checkVisibility())
        .map(cell => getComputedStyle(cell, '::before').content))"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A finished run with devices of the first two tiers."""
    folder = tmp_path_factory.mktemp("few") / "run"
    shown = snapshot(12)
    few = tuple(entry for entry in shown.devices if entry.tier <= 2)
    with staged(folder, replace(shown, devices=few, phase="ended", summary=SUMMARY)) as made:
        with closing(EventFile(folder / "events.sqlite")) as file:
            kinds = (("joined", EventKind.JOIN), ("lost", EventKind.LOSS))
            notes = [Note(what, "device-0000", kind=kind) for what, kind in kinds]
            file.add([note.event(LONG_AGO + 60 * at) for at, note in enumerate(notes)])
        yield made


@pytest.fixture(scope="module")
def seen(stage: Stage, lasting_screen: Callable[..., Screen]) -> Screen:
    """Its page in a wide window."""
    return lasting_screen(stage.url)


@mark_slow
def test_the_accuracy_axis_goes_from_0_to_100_percent(seen: Screen) -> None:
    seen.open("run")
    bounds = "async () => (await import('/assets/charts.js')).shareBounds(0.31, 0.47)"
    assert seen.page.evaluate(bounds) == [0, 1]


def test_a_tier_without_devices_has_no_curve(seen: Screen) -> None:
    seen.open("run")
    # The tiers of devices arrive shortly after the curves.
    seen.until("""() => {
        const entries = document.querySelectorAll('.chart[data-wide] .entry, .chart:first-child .entry');
        const names = [...entries].map(entry => entry.innerText.split('\\n')[0]);
        return names.filter(name => name.startsWith('tier')).join() === 'tier 1,tier 2';
    }""")


@mark_slow
def test_numbers_are_right_aligned_and_dates_complete(seen: Screen) -> None:
    for view, words in (("run", "Rounds"), ("fleet", "device-0000"), ("events", "joined")):
        seen.open(view)
        seen.page.locator(".view:visible", has_text=words).wait_for()
        assert seen.page.evaluate(LEFT) == [], view
    place = "() => document.querySelector('.rows').rows[0].cells.length"
    assert seen.page.evaluate(place) > 10
    seen.open("fleet")
    heads = [text.strip() for text in seen.page.locator(".rows thead th").all_inner_texts()]
    when = (
        seen.page.locator(".rows tbody tr:not(.spacer)").first.locator("th, td").nth(heads.index("Last seen"))
    )
    assert "2023" in when.inner_text()
    assert when.evaluate("cell => cell.scrollWidth <= cell.clientWidth")


def test_tables_are_cards_on_a_phone_and_nothing_is_cut_off(
    stage: Stage, screen: Callable[..., Screen]
) -> None:
    seen = screen(stage.url, viewport=PHONE)
    for view, words in (("run", "Rounds"), ("fleet", "device-0000"), ("events", "joined")):
        seen.open(view)
        seen.page.locator(".view:visible", has_text=words).wait_for()
        assert seen.page.evaluate(CUT, PHONE["width"]) == [], view
        # Each figure has its own label, because the header is hidden.
        assert [head for head in seen.page.evaluate(HEADS)[1:] if head in ("none", '""')] == [], view
        assert seen.violations() == [], view
        seen.shot(f"{view}-cards")
    seen.open("fleet")
    seen.page.get_by_label("Sort by").select_option("Device")
    assert seen.page.evaluate("() => location.hash") == "#fleet?sort=device"
    assert seen.complaints == []


@mark_slow
def test_long_reasons_and_labels_make_a_card_higher_and_the_fleet_still_scrolls_to_its_end(
    tmp_path: Path, screen: Callable[..., Screen]
) -> None:
    long = {
        "state": "declined",
        "ineligible_because": "the battery is at 12 %, below the owner's 30 %, and no charger is connected",
        "labels": {"site": "barn", "role": "camera", "room": "kitchen-upper-floor", "power": "solar"},
        "refused": {"not-finite": 3, "accuracy-on-the-canary": 2, "norm-too-large": 2},
    }
    crowd = tuple(replace(device(number), **long) if number % 3 else device(number) for number in range(60))
    with staged(tmp_path / "run", replace(snapshot(3), devices=crowd)) as made:
        seen = screen(made.url, viewport={"width": 390, "height": 900})
        seen.open("fleet?sort=device")
        seen.row("device-0001").wait_for()
        assert seen.page.evaluate(CUT, 390) == []
        assert (
            seen.row("device-0001").bounding_box()["height"]
            > seen.row("device-0000").bounding_box()["height"]
        )
        for _ in range(8):
            seen.page.evaluate(SCROLL)
            assert seen.page.evaluate(GAPS) == []
        seen.row("device-0059").wait_for()


@pytest.mark.parametrize("size", [slow({"width": 1280, "height": 900}, id="wide"), PHONE])
def test_a_table_by_class_has_shares_counts_and_intervals(
    tmp_path: Path, screen: Callable[..., Screen], size: Mapping[str, int]
) -> None:
    devices = {
        "alpha": MeasuredDevice(tier=1, examples=4, by_class={"cat": (3, 2), "dog": (1, 0)}),
        "beta": MeasuredDevice(tier=2, examples=1, by_class={"cat": (1, 1), "dog": (0, 0)}),
    }
    counted = record(3, test_by_class={"cat": (10, 9), "dog": (4, 1)}, measured=devices)
    shown = snapshot(2)
    with staged(tmp_path / "run", replace(shown, history=(*shown.history[:2], counted))) as stage:
        seen = screen(stage.url, viewport=size)
        seen.open("run")
        table = seen.page.locator("section[aria-labelledby=classes-title]")
        table.locator("tbody tr").first.wait_for()
        heads = table.locator("thead th").all_text_contents()
        assert heads == ["Class", "test data", "all devices", "alpha", "beta"]
        cat, dog = (row.locator("th, td").all_text_contents() for row in table.locator("tbody tr").all())
        assert cat[:3] == ["cat", "90.00% of 10, 59.58% - 98.21%", "75.00% of 4, 30.06% - 95.44%"]
        assert dog[4] == "-"
        assert seen.violations() == []
        assert seen.page.evaluate(CUT, size["width"]) == []
        seen.shot(f"by-class-{size['width']}")
        assert seen.complaints == []


def test_only_a_few_of_a_thousand_cards_are_in_the_document(
    tmp_path: Path, screen: Callable[..., Screen]
) -> None:
    with staged(tmp_path / "run", snapshot(1000)) as stage:
        seen = screen(stage.url, viewport=PHONE)
        seen.open("fleet")
        seen.row("device-0005").wait_for()
        assert len(seen.page.locator(".rows tbody tr").all()) < 40
        seen.page.evaluate("() => document.querySelector('.scroll.tall').scrollBy(0, 1e9)")
        seen.row("device-0999").wait_for()


def test_a_device_has_a_page_with_explanations_and_events(seen: Screen) -> None:
    # The address that older versions used.
    seen.open("why/device/device-0000")
    assert seen.text(".view:not([hidden]) h2") == "device-0000"
    seen.page.locator(".listed:visible tbody tr", has_text="lost").wait_for()
    assert len(seen.page.locator(".listed:visible tbody tr").all()) == 2
    assert seen.page.locator("nav a").all_inner_texts() == ["Run", "Fleet", "Model", "Events"]
    seen.page.get_by_role("link", name="All devices").click()
    seen.row(device(0).device).wait_for()


def test_events_are_filtered_by_kind_in_the_address(seen: Screen) -> None:
    seen.open("events?kind=loss")
    seen.until("() => document.querySelector('.view:not([hidden]) .count').innerText === '1 event'")
    seen.page.get_by_role("button", name="loss").click()
    seen.until("() => document.querySelector('.view:not([hidden]) .count').innerText === '2 events'")
    assert seen.page.evaluate("() => location.hash") == "#events"
    texts = [text.split("\t")[3] for text in seen.page.locator(".listed:visible tbody tr").all_inner_texts()]
    assert texts == ["lost", "joined"]


@mark_slow
def test_rollouts_of_the_runs_models_are_on_its_page(tmp_path: Path, screen: Callable[..., Screen]) -> None:
    run_folder(tmp_path / "kitchen", run="run-1")
    registry = Registry(tmp_path / "registry")
    version = enter_run(registry, tmp_path / "kitchen")
    rollout = model_rollout(version, RolloutRules(), offered_files(registry, version))
    begin_or_continue(RolloutJournal(registry), rollout)
    shown = replace(snapshot(3), phase="ended", summary=SUMMARY)
    (tmp_path / "kitchen" / "federation.toml").write_text('[model]\nname = "mlp"\n')
    with staged(tmp_path / "kitchen", shown) as stage:
        seen = screen(stage.url)
        seen.open("run")
        line = seen.page.locator("[aria-labelledby=rollouts-title] tbody tr")
        line.wait_for()
        assert "kitchen" in line.inner_text()
        assert "gathering" in line.inner_text()
        assert seen.violations() == []
        with registry.database() as database:
            why = "3 of 5 devices of the canary group have not kept the model: " * 3
            database.execute("UPDATE rollouts SET phase = 'stopped', why = ?, ended_at = began_at", (why,))
        line.get_by_text(why.strip()).wait_for()
        for width in (1280, 390):
            seen.page.set_viewport_size({"width": width, "height": 900})
            table = seen.page.locator("[aria-labelledby=rollouts-title] .scroll")
            assert table.evaluate("(it) => it.scrollWidth <= it.clientWidth"), width


def test_warnings_stand_above_the_figures(tmp_path: Path, screen: Callable[..., Screen]) -> None:
    warning = RoundWarning(kind="one-answer", about=("tier 2",), text="tier 2: one answer <b>for all</b>")
    rounds = snapshot(3).history
    warned = (*rounds[:-1], rounds[-1].model_copy(update={"warnings": (warning,)}))
    with staged(tmp_path / "run", snapshot(3)) as stage:
        seen = screen(stage.url)
        seen.open("run")
        assert seen.page.get_by_role("heading", name="Warnings").count() == 0
        stage.show(replace(snapshot(3), history=warned))
        seen.page.get_by_role("heading", name="Warnings").wait_for()
        assert seen.text(".notes li") == f"round {rounds[-1].round}: {warning.text}"
        assert seen.violations() == []
