"""The page of the fleet service in Chromium: seconds until its first paint, and until it shows devices."""

import time

from edge_server.fleet.people.passwords import hash_password
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Role, User
from edge_server.storage.service_folder import ServiceFolder
from tests.browser.screen import opened_browser

NAME, PASSWORD = "ada", "a password of the benchmark"
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SHOWN = "count => document.querySelector('.count')?.innerText.startsWith(count)"


def add_user(folder: ServiceFolder) -> None:
    """Add the user who looks at the page."""
    with People(folder.people) as people:
        people.add_user(User(NAME, Role.ADMIN, time.time(), hash_password(PASSWORD)))


def first_paints(url: str, devices: int, times: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds until each load's first paint, and until it shows the number of devices; after a login."""
    paints, shown, counted = [], [], f"{devices:,} device"
    with opened_browser() as new_page:
        page = new_page()
        page.goto(f"{url}/#devices")
        page.get_by_label("Name").fill(NAME)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in", exact=True).click()
        page.wait_for_function(SHOWN, arg=counted)
        for _ in range(times):
            began = time.monotonic()
            page.reload(wait_until="commit")
            page.wait_for_function(SHOWN, arg=counted)
            shown.append(time.monotonic() - began)
            paints.append(page.evaluate(FIRST_PAINT) / 1000)
    return tuple(paints), tuple(shown)
