"""The page of an empty run, of a stopped server, and of a finished run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tests.browser.fleets import record, snapshot, staged
from tests.browser.screen import Screen, own
from tests.browser.test_reading import SUMMARY

INCLUDES = "text => document.querySelector('.view:not([hidden])').innerText.includes(text)"
CHOSEN = "view => document.querySelector(`[data-view=${view}]`).getAttribute('aria-current') === 'page'"
LINK = "text => document.querySelector('#link-text').innerText === text"


def test_an_empty_run_explains_how_devices_join(screen: Callable[..., Screen], tmp_path: Path) -> None:
    with staged(tmp_path / "run", replace(snapshot(0, 0), phase="waiting")) as stage:
        seen = screen(stage.url)
        for view, words in (
            ("run", "No device has joined yet"),
            ("fleet", "edge-client run --broker ADDRESS --federation crowd"),
            ("model", "No channel has been scored yet"),
            ("events", "No events yet"),
        ):
            seen.open(view)
            seen.until(INCLUDES, words)
        assert seen.violations() == []
        assert seen.complaints == []


def test_the_keyboard_alone_reaches_the_content_and_every_view(
    screen: Callable[..., Screen], tmp_path: Path
) -> None:
    with staged(tmp_path / "run", snapshot(3)) as stage:
        seen = screen(stage.url)
        seen.open("run")
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("() => document.activeElement.innerText") == "Skip to the content"
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate("() => document.activeElement.id") == "main"
        seen.page.locator("#theme").focus()
        for view in ("run", "fleet", "model", "events"):
            seen.page.keyboard.press("Tab")
            seen.page.keyboard.press("Enter")
            seen.until(CHOSEN, view)
        # Each press selects the next theme: system, light, dark.
        seen.page.locator("#theme").focus()
        for theme in ("light", "dark", None):
            seen.page.keyboard.press("Enter")
            assert seen.page.evaluate("() => document.documentElement.dataset.theme ?? null") == theme


def test_a_lost_server_is_reported_and_found_again(screen: Callable[..., Screen], tmp_path: Path) -> None:
    shown = snapshot(3)
    with staged(tmp_path / "run", shown) as stage:
        port = urlsplit(stage.url).port
        seen = screen(stage.url)
        seen.open("run")
        seen.until(LINK, "Live")
    seen.until(LINK, "Connection lost")
    assert "the data shown may be out of date" in seen.text("#banner")
    # Known data stays visible.
    assert "Round 4 of 12" in seen.text("#run-title")
    seen.shot("disconnected")
    later = replace(shown, round=5, history=(*shown.history, record(4)))
    with staged(tmp_path / "run", later, port=port or 0):
        seen.page.get_by_role("button", name="Try now").click()
        seen.until("() => document.querySelector('#run-title').innerText === 'Round 5 of 12'")
        seen.until(LINK, "Live")
        assert seen.page.locator("#banner").is_hidden()
        # The rounds closed in the meantime are included, and no round appears twice.
        rows = seen.page.locator("#rounds-title ~ .scroll tbody th")
        assert rows.all_inner_texts() == ["4", "3", "2", "1"]
    assert own(seen.complaints) == []


def test_the_end_of_the_run_is_shown_and_not_mistaken_for_a_lost_server(
    screen: Callable[..., Screen], tmp_path: Path
) -> None:
    shown = snapshot(3)
    with staged(tmp_path / "run", shown) as stage:
        seen = screen(stage.url)
        seen.open("run")
        seen.until(LINK, "Live")
        stage.show(replace(shown, phase="ended", summary=SUMMARY))
        seen.until(LINK, "Run finished")
        # The banner is drawn after the header's link.
        ended = "text => document.querySelector('#banner').innerText.includes(text)"
        seen.until(ended, "The run has ended (finished)")
        assert seen.page.locator(".deadline").is_hidden()
    # The server has stopped, as after every run, and the page does not reconnect.
    assert seen.text("#link-text") == "Run finished"
    assert own(seen.complaints) == []
