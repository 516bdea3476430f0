"""A real federation in a real browser, as one long test, because all steps use the same run."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.browser.federation import DOOMED, LIAR, ROUNDS, STEADY, Running, running_federation
from tests.browser.screen import DEADLINE_S, Screen, own
from tests.slow import slow

VIEWS = ("model", f"fleet/{LIAR}")
MORE_VIEWS = ("run", "fleet", "events")
"""Views of which `test_reading.py` looks at the cards."""
PHONE = {"width": 360, "height": 740}
LOADED = "() => !document.querySelector('.view:not([hidden])').innerText.includes('Asking the server')"
LATEST = "#rounds-title ~ .scroll tbody th"
CLOSED = "() => Number(document.querySelector('.head progress').value)"


# It takes half a minute alone; on a busy machine processes and browser start slowly.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("views", [VIEWS, slow((*MORE_VIEWS, *VIEWS))], ids=len)
def test_a_running_federation_is_followed_without_reloading(
    screen: Callable[..., Screen], tmp_path: Path, views: Sequence[str]
) -> None:
    with running_federation(tmp_path) as running:
        seen = screen(running.url)
        seen.open("run")
        rounds_advance(seen)
        a_refusal_shows_its_reason(seen)
        a_killed_device_turns_offline(seen, running)
        channels_are_shown_and_explained(seen)
        events_are_listed_and_filtered(seen)
        running.rest()
        everybody_can_use(seen, views)
        it_fits_a_phone(screen(running.url, viewport=PHONE, device_scale_factor=2), views)
        assert seen.complaints == []
        assert seen.page.evaluate("() => window.loaded") == "once"
        running.server.terminate()
        seen.until("() => document.querySelector('#link').dataset.state !== 'live'")
    assert own(seen.complaints) == []


def rounds_advance(seen: Screen) -> None:
    """Each round appears in progress, table and title without reloading."""
    seen.page.evaluate("() => window.loaded = 'once'")
    first = seen.until(
        "() => { const at = document.querySelector('.head progress').value; return at >= 1 && at }"
    )
    later = seen.until(f"at => ({CLOSED})() > at && ({CLOSED})()", first)
    assert later > first
    assert seen.text("#run-title").endswith(f" of {ROUNDS}")
    seen.until(f"() => document.querySelector('{LATEST}').innerText === String(({CLOSED})())")
    assert "%" in seen.text(".tile .value")
    assert seen.page.locator(".chart canvas").count() >= 4
    assert "Accuracy by round. whole model" in (
        seen.page.locator(".plot").first.get_attribute("aria-label") or ""
    )
    seen.shot("run")


def a_refusal_shows_its_reason(seen: Screen) -> None:
    """The refused device in the fleet, in the round, and in its explanation."""
    seen.page.get_by_role("link", name="Fleet").click()
    seen.row(LIAR).get_by_text("not-finite").first.wait_for()
    seen.page.goto(f"{seen.url}/#run")
    # Its three strikes are in the first rounds; only the latest eight rounds are open.
    seen.page.get_by_role("button", name="Show all").click()
    seen.page.locator(".refusals .named", has_text=f"{LIAR} not-finite").first.wait_for()
    # By keyboard: a closed round moves the rows under a pointer, but not the focus.
    refused = seen.page.locator(".refusals").get_by_role("link", name=LIAR).last
    refused.focus()
    closed = seen.page.evaluate(CLOSED)
    seen.until(f"at => ({CLOSED})() > at", closed)
    assert seen.page.evaluate("() => document.activeElement.textContent") == LIAR
    seen.page.keyboard.press("Enter")
    seen.page.locator("article tbody tr", has_text="refused: not-finite").first.wait_for()
    seen.shot("device")


def a_killed_device_turns_offline(seen: Screen, running: Running) -> None:
    seen.page.get_by_role("link", name="Fleet").click()
    seen.row(DOOMED).wait_for()
    assert "offline" not in seen.row(DOOMED).inner_text()
    running.doomed.kill()
    running.doomed.wait(timeout=DEADLINE_S)
    seen.row(DOOMED).get_by_text("offline").wait_for()
    seen.row(STEADY).wait_for()
    seen.shot("fleet")


def channels_are_shown_and_explained(seen: Screen) -> None:
    """From a group's picture to the explanation of a removed channel."""
    seen.page.get_by_role("link", name="Model", exact=True).click()
    seen.page.locator(".groups a").first.wait_for()
    seen.page.locator(".channels summary").click()
    # The last column of a group's table: a tier that keeps half of the channels removes some.
    cut = seen.page.locator(".channels tbody tr", has_not=seen.page.locator(".inks1")).first
    cut.wait_for()
    seen.shot("model")
    cut.get_by_role("link").click()
    seen.page.locator(".because li").first.wait_for()
    assert "tier 1 keeps" in seen.text(".because").lower()
    assert "pruned" in seen.text(".view:not([hidden]) article table")
    seen.shot("channel")


def events_are_listed_and_filtered(seen: Screen) -> None:
    """The event list has joins, rounds and refusals, filters by kind and text, and updates itself."""
    seen.page.get_by_role("link", name="Events").click()
    seen.page.locator(".listed:visible tbody tr", has_text="begun").first.wait_for()
    seen.page.get_by_role("button", name="loss").click()
    seen.page.locator(".listed:visible tbody tr", has_text=DOOMED).first.wait_for()
    assert {
        row.split("\t")[1].strip() for row in seen.page.locator(".listed:visible tbody tr").all_inner_texts()
    } == {"loss"}
    seen.page.get_by_role("button", name="loss").click()
    seen.page.get_by_role("button", name="round").click()
    closed = seen.page.evaluate(CLOSED)
    seen.page.locator(".listed:visible tbody tr", has_text=f"round {closed + 1} closed").first.wait_for()
    seen.page.get_by_role("button", name="round").click()
    seen.page.get_by_role("search", name="Events").get_by_label("Find").fill(f"{LIAR} not-finite")
    seen.page.locator(".listed:visible tbody tr", has_text="update refused").first.wait_for()
    seen.shot("events")


def name_of(view: str) -> str:
    """A view's part of the screenshot's name."""
    return "device" if "/" in view else view


def everybody_can_use(seen: Screen, views: Sequence[str]) -> None:
    """axe-core has no serious finding: all rules in the light theme, the colour rule in the dark one."""
    for scheme, rules in (("light", ()), ("dark", ("color-contrast",))):
        seen.page.emulate_media(color_scheme=scheme)
        for view in views:
            seen.open(view)
            seen.until(LOADED)
            assert seen.violations(*rules) == [], (scheme, view)
            if scheme == "dark":
                seen.shot(f"{name_of(view)}-dark")


def it_fits_a_phone(seen: Screen, views: Sequence[str]) -> None:
    """Each view fits 360 pixels; wider content scrolls in its own frame."""
    for view in views:
        seen.open(view)
        assert seen.page.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"], view
        seen.shot(f"{name_of(view)}-phone")
    assert seen.complaints == []
