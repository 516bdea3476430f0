"""The page of a service with invented devices, served by the real server."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge_server.fleet.diagnostics.remote_part import RemotePart
from edge_server.fleet.page.page_part import PagePart
from edge_server.fleet.part import ServiceContext
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Role
from edge_server.fleet.settings.page import PageSettings
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from tests.browser.screen import Screen
from tests.edge_server.fleet.page.service_pages import USERS, fill_inventory
from tests.edge_server.fleet.people.people import PASSWORD, add, fast_passwords

SITES = ("barn", "field", "mill")
LONG_AGO = 1_700_000_000.0


@dataclass(frozen=True)
class ServedPage:
    """A service's page at `url`."""

    folder: ServiceFolder
    url: str


@contextmanager
def served_page(
    path: Path, *, devices: int, users: Mapping[str, Role] = USERS, settings: PageSettings | None = None
) -> Iterator[ServedPage]:
    """The page of a new folder, with devices at three sites and a user of each role."""
    folder = ServiceFolder(path)
    fill_inventory(folder, {f"pi-{number:04d}": SITES[number % 3] for number in range(3)}, at=LONG_AGO)
    _multiply(folder.inventory, devices)
    with People(folder.people) as people:
        for name, role in users.items():
            add(people, name, role)
    all_settings = ServiceSettings(page=settings or PageSettings(port=0))
    inventory = Inventory(folder.inventory)
    context = ServiceContext(folder, all_settings, inventory, lambda *_: None)
    page = PagePart(context, RemotePart(context))
    with fast_passwords():
        page.begin()
        try:
            yield ServedPage(folder, page.url)
        finally:
            page.stop()
            inventory.close()


def _multiply(inventory: Path, devices: int) -> None:
    """Copy the three devices, in one transaction."""
    with closing(sqlite3.connect(inventory)) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(devices)") if row[1] != "device"]
        names = ", ".join(columns)
        for number in range(3, devices):
            database.execute(
                f"INSERT INTO devices (device, {names}) SELECT ?, {names} FROM devices WHERE device = ?",
                (f"pi-{number:04d}", f"pi-{number % 3:04d}"),
            )


def log_in(screen: Screen, user: str, view: str = "devices") -> None:
    """Log in as `user`, and wait for a view."""
    screen.page.goto(f"{screen.url}/#{view}")
    screen.page.get_by_label("Name").fill(user)
    screen.page.get_by_label("Password").fill(PASSWORD)
    screen.page.get_by_role("button", name="Log in", exact=True).click()
    screen.page.wait_for_selector(f"#{view}-title")
