"""Everything that a device sends is shown as text: board names, reasons, notes."""

from collections.abc import Callable
from pathlib import Path

from tests.browser.fleets import snapshot, staged, with_markup
from tests.browser.screen import Screen

SHOWS = """([place, text]) =>
    document.querySelector(`.view:not([hidden]) ${place}`)?.innerText.includes(text)"""
MARKUP = "<img src=x onerror='window.broken=1'><b>bold</b><script>window.broken=1</script>"


def test_markup_from_devices_is_shown_as_text(screen: Callable[..., Screen], tmp_path: Path) -> None:
    with staged(tmp_path / "run", with_markup(snapshot(3), MARKUP)) as stage:
        seen = screen(stage.url)
        for view, place in (
            ("run", ".notes li"),
            ("run", ".refusals"),
            ("fleet", ".rows tbody .state .words"),
            ("fleet", ".rows tbody tr:not(.spacer)"),
            ("fleet/device-0000", ".facts"),
        ):
            seen.open(view)
            seen.until(SHOWS, [place, "<script>"])
        assert seen.page.locator("main script, main b, main img[src=x]").count() == 0
        assert seen.page.evaluate("() => window.broken") is None
        assert seen.complaints == []


def test_a_name_in_the_address_is_never_markup(screen: Callable[..., Screen], tmp_path: Path) -> None:
    with staged(tmp_path / "run", snapshot(3)) as stage:
        seen = screen(stage.url)
        seen.open("fleet/" + "%3Cimg%20src%3Dx%20onerror%3D%22window.broken%3D1%22%3E")
        seen.until("() => document.querySelector('main').innerText.includes('> is not a device of this run')")
        assert seen.page.evaluate("() => window.broken") is None
