"""One browser for this folder, whose event loop ends before tests elsewhere start their own."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.screen import Screen, opened_browser


@pytest.fixture(scope="package")
def new_page() -> Iterator[Callable[..., Any]]:
    """Open a page in its own browser context."""
    with opened_browser() as new_page:
        yield new_page


@pytest.fixture(scope="session")
def shots() -> Path | None:
    """The folder of screenshots: $SCREENSHOTS; without it, none are made."""
    if "SCREENSHOTS" not in os.environ:
        return None
    path = Path(os.environ["SCREENSHOTS"])
    path.mkdir(parents=True, exist_ok=True)
    return path


def _screens(new_page: Callable[..., Any], shots: Path | None) -> Iterator[Callable[..., Screen]]:
    """Open the dashboard at a URL with a window size and a theme."""
    pages = []

    def look(url: str, **settings: Any) -> Screen:
        page = new_page(**{"viewport": {"width": 1280, "height": 900}, **settings})
        pages.append(page)
        return Screen(page, url, shots)

    yield look
    for page in pages:
        page.context.close()


screen = pytest.fixture(_screens, name="screen")
lasting_screen = pytest.fixture(_screens, name="lasting_screen", scope="module")
