"""A page in the browser: its views, its errors, its accessibility."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 60
PAUSE_MS = 50
AXE = Path(__file__).with_name("vendor") / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
GRAVE = ("serious", "critical")
REFUSED_CONNECTIONS = (
    "net::ERR_CONNECTION_REFUSED",
    "net::ERR_CONNECTION_RESET",
    "net::ERR_CONNECTION_CLOSED",
    "net::ERR_EMPTY_RESPONSE",
    "net::ERR_INCOMPLETE_CHUNKED_ENCODING",
)
"""The browser's messages if a server does not answer; any other message is an error of the page."""
LEFT_OUT = (
    # Pages of the browser's own, which take a third of its processor time.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "SpareRendererForSitePerProcess",
    # What Playwright leaves out: the last list replaces the others.
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
"""Features of Chromium."""


def find_chromium() -> str | None:
    """The path of the browser's executable."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Screen:
    """An open page of the dashboard at `url`; `complaints` lists its errors and failed requests."""

    def __init__(self, page: Any, url: str, shots: Path | None) -> None:
        self.page, self.url, self._shots = page, url.rstrip("/"), shots
        self.complaints: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_default_timeout(DEADLINE_S * 1000)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, view: str = "run") -> None:
        """Go to a view by its address; the page is loaded once."""
        self.page.goto(f"{self.url}/#{view}")
        self.page.wait_for_selector(".view:not([hidden])")

    def until(self, condition: str, argument: Any = None) -> Any:
        """Wait until a JavaScript function returns a true value; returns that value."""
        # Without a pause the page would be painted sixty times a second for it.
        waiting = {"arg": argument, "timeout": DEADLINE_S * 1000, "polling": PAUSE_MS}
        return self.page.wait_for_function(condition, **waiting).json_value()

    def text(self, selector: str) -> str:
        """The element's text."""
        text: str = self.page.locator(selector).first.inner_text()
        return text

    def row(self, device: str) -> Any:
        """A device's row in the fleet."""
        return self.page.locator(".rows tbody tr", has=self.page.get_by_role("link", name=device, exact=True))

    def shot(self, name: str) -> None:
        """Save a screenshot of the whole page, if there is a folder for it."""
        if self._shots is not None:
            self.page.screenshot(path=self._shots / f"{name}.png", full_page=True)

    def violations(self, *rules: str) -> list[str]:
        """Serious accessibility findings of axe-core, for all rules or the given ones."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        only = {"runOnly": list(rules)} if rules else {}
        options = {"resultTypes": ["violations"], **only}
        shown = {"exclude": [".view[hidden]"]}
        found = self.page.evaluate("given => axe.run(...given)", [shown, options])["violations"]
        return [
            f"{finding['impact']} {finding['id']}: {node['target']} {node['failureSummary']}"
            for finding in found
            if finding["impact"] in GRAVE
            for node in finding["nodes"]
        ]


def own(complaints: list[str]) -> list[str]:
    """The page's errors, without the browser's messages about a server that does not answer."""
    return [text for text in complaints if not any(sign in text for sign in REFUSED_CONNECTIONS)]


@contextmanager
def opened_browser() -> Iterator[Callable[..., Any]]:
    """Start a headless browser; yields a function that opens a page. Skips without a browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    # Chromium's sandbox does not work for root.
    words = ["--disable-dev-shm-usage", "--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    words.append(f"--disable-features={','.join(LEFT_OUT)}")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=words)
        yield lambda **settings: browser.new_context(**settings).new_page()
        browser.close()
