"""A thousand devices: the page's work is counted in rows, not in time."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.browser.fleets import Stage, device, snapshot, staged
from tests.browser.screen import Screen
from tests.slow import mark_slow

COUNT = 1000
MAX_ROWS = 64
"""A window 900 pixels high shows at most 24 rows of 38 pixels; the table may hold 8 more at each end
and two spacer rows: 42. The rest of the limit allows for fonts and borders."""
NAMES = "() => [...document.querySelectorAll('.rows tbody th')].map(cell => cell.innerText)"
ROWS = "() => document.querySelectorAll('.rows tbody tr').length"
TABLE = "document.querySelector('.scroll.tall')"
COUNTED = "text => document.querySelector('.count').innerText === text"
SCROLL = f"share => {{ {TABLE}.scrollTop = {TABLE}.scrollHeight * share }}"
# Whether the visible part of the table ends with a row, without empty space.
FILLED = f"""() => {{
    const end = {TABLE}.getBoundingClientRect().bottom - 40;
    const rows = [...document.querySelectorAll('.rows tbody tr:not(.spacer)')];
    const boxes = rows.map(row => row.getBoundingClientRect());
    return boxes.some(box => box.top <= end && end <= box.bottom);
}}"""
# Record every row that changes from now on.
WATCH = """() => {
    window.touched = new Set();
    const note = ({ target }) => {
        const row = (target.nodeType === 1 ? target : target.parentElement).closest('tbody tr');
        window.touched.add(row ? row.querySelector('th').innerText : 'rows added or removed');
    };
    window.watching = new MutationObserver(changes => changes.forEach(note));
    window.watching.observe(document.querySelector('.rows tbody'),
        { subtree: true, childList: true, characterData: true, attributes: true });
}"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("crowd") / "run", snapshot(COUNT)) as shown:
        yield shown


@pytest.fixture(scope="module")
def loaded(stage: Stage, lasting_screen: Callable[..., Screen]) -> Screen:
    return lasting_screen(stage.url)


@pytest.fixture
def fleet(stage: Stage, loaded: Screen) -> Iterator[Screen]:
    stage.show(snapshot(COUNT))
    loaded.open("fleet")
    loaded.until(COUNTED, "1,000 devices")
    loaded.page.evaluate(SCROLL, 0)
    yield loaded
    assert loaded.complaints == []


def test_only_visible_rows_are_in_the_document_while_scrolling(fleet: Screen) -> None:
    assert 10 < fleet.page.evaluate(ROWS) < MAX_ROWS
    assert fleet.page.get_attribute(".rows", "aria-rowcount") == "1001"
    for share in (0.25, 0.5, 0.75, 1):
        fleet.page.evaluate(SCROLL, share)
        fleet.until(FILLED)
        assert fleet.page.evaluate(ROWS) < MAX_ROWS
    # Rows are sorted by tier, then by name: the last row is the last device of tier 5.
    assert fleet.page.evaluate(NAMES)[-1] == "device-0999"
    fleet.shot("fleet-1000")


@mark_slow
def test_sorting_by_a_column_orders_all_rows_and_marks_the_column(fleet: Screen) -> None:
    expected = sorted(range(COUNT), key=lambda index: -(device(index).attention or 0))
    head = fleet.page.get_by_role("columnheader", name="Attention")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    names = fleet.page.evaluate(NAMES)
    assert names == [f"device-{index:04d}" for index in expected[: len(names)]]
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert fleet.page.evaluate(NAMES)[0] == f"device-{expected[-1]:04d}"
    assert fleet.page.evaluate(ROWS) < MAX_ROWS
    assert fleet.page.evaluate("() => location.hash") == "#fleet?sort=attention"


@mark_slow
def test_filters_find_devices_by_words_state_and_tier(fleet: Screen) -> None:
    fleet.page.get_by_role("searchbox", name="Find").fill("device-012 board")
    # 0120 to 0129.
    assert fleet.text(".count") == "10 of 1,000 devices"
    fleet.page.get_by_role("searchbox", name="Find").fill("")
    fleet.page.get_by_role("search").get_by_label("State").select_option("offline")
    fleet.page.get_by_role("search").get_by_label("Tier").select_option("5")
    # Offline devices are 3 modulo 6, tier 5 is 4 modulo 5: both are 9 modulo 30, which holds for 34 of 1,000.
    assert fleet.text(".count") == "34 of 1,000 devices"
    assert fleet.page.evaluate(NAMES)[:2] == ["device-0009", "device-0039"]
    # The address contains the filters.
    fleet.page.reload()
    fleet.until(COUNTED, "34 of 1,000 devices")
    fleet.page.get_by_role("searchbox", name="Find").fill("no such thing")
    assert "No matching devices" in fleet.text(".fleet")


def test_a_change_of_one_device_touches_no_other_row(stage: Stage, fleet: Screen) -> None:
    shown = snapshot(COUNT)
    fleet.page.evaluate(WATCH)
    # The second row: 0000 and 0005 are the first two devices of tier 1.
    changed = tuple(
        replace(entry, rounds=77) if entry.device == "device-0005" else entry for entry in shown.devices
    )
    stage.show(replace(shown, devices=changed))
    fleet.row("device-0005").get_by_text("77", exact=True).wait_for()
    touched = fleet.page.evaluate("() => { window.watching.disconnect(); return [...window.touched]; }")
    assert touched == ["device-0005"]


def test_a_row_leads_to_its_device(fleet: Screen) -> None:
    fleet.page.get_by_role("link", name="device-0010", exact=True).focus()
    fleet.page.keyboard.press("Enter")
    fleet.until("() => location.hash === '#fleet/device-0010'")
    fleet.page.wait_for_selector(".view:not([hidden]) h2:has-text('device-0010')")
    fleet.page.go_back()
    fleet.row("device-0005").locator("td").nth(2).click()
    fleet.until("() => location.hash === '#fleet/device-0005'")
