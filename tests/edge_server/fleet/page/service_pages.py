"""A service folder with devices and people, and its page without a socket."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from edge_server.fleet.actions.action import Desk
from edge_server.fleet.diagnostics.inquiry import Inquired, Terms
from edge_server.fleet.diagnostics.remote_part import Diagnostics, Request
from edge_server.fleet.page.guard import Reception
from edge_server.fleet.page.lists import FolderLists
from edge_server.fleet.page.login_routes import PageParts
from edge_server.fleet.page.page_actions import PageActions
from edge_server.fleet.page.page_part import first_admin_command, make_app
from edge_server.fleet.people.openid import OpenIdProvider
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Role
from edge_server.fleet.settings.page import PageSettings
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.observability.dashboard.access import access_of
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.messages import Birth
from schemas.values import CapabilityProfile, DataCard
from tests.edge_server.fleet.people.people import NOW, PASSWORD, add

BASE = "http://127.0.0.1:8270"
CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)
PROFILE = CapabilityProfile(machine="Raspberry Pi 4", software={"edge-federation": "0.1.0", "torch": "2.5"})
USERS = {"vera": Role.VIEWER, "otto": Role.OPERATOR, "ada": Role.ADMIN}


@dataclass
class Stage:
    """The page over a folder; `now` is its clock."""

    folder: ServiceFolder
    people: People
    app: Any
    now: list[float] = field(default_factory=lambda: [NOW])

    def client(self, base: str = BASE, **more: Any) -> TestClient:
        """A browser without a session."""
        return TestClient(self.app, base_url=base, follow_redirects=False, **more)

    def visitor(self, user: str) -> "Browser":
        """A browser in which `user` has logged in."""
        client = self.client()
        answer = client.post("/api/login", json={"user": user, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        return Browser(client, client.get("/api/me").json())


@dataclass
class Browser:
    """A browser with a session; `me` is what the page knows of it."""

    client: TestClient
    me: Mapping[str, Any]

    def get(self, path: str) -> Any:
        """The answer to a request."""
        return self.client.get(path)

    def act(self, action: str, **args: Any) -> Any:
        """The answer to an action."""
        headers = {"X-Edge-Change": self.me["change"], "Origin": BASE}
        return self.client.post(f"/api/actions/{action}", json=args, headers=headers)


def unasked(federation: str, device: str, terms: Terms, *, who: str) -> "Future[Inquired]":
    """A request to a device that never answers."""
    return Future()


def fill_inventory(folder: ServiceFolder, names: Mapping[str, str], *, at: float = NOW) -> None:
    """Devices by name with their site."""
    inventory = Inventory(folder.inventory)
    for name, site in names.items():
        birth = Birth(
            federation="home",
            device=name,
            session=1,
            data=CARD,
            labels={"site": site},
            profile=PROFILE,
            certificate_until=at + 30 * 86_400,
        )
        inventory.record_birth(birth, at)
    inventory.close()


@contextmanager
def staged(
    path: Path,
    *,
    settings: ServiceSettings | None = None,
    users: Mapping[str, Role] = USERS,
    provider: OpenIdProvider | None = None,
    request: Request = unasked,
) -> Iterator[Stage]:
    """The page of a new folder with three devices and a user of each role; `request` asks devices."""
    settings, folder, clock = settings or ServiceSettings(), ServiceFolder(path), [NOW]
    fill_inventory(folder, {"pi-1": "barn", "pi-2": "barn", "pi-3": "field"})
    with People(folder.people) as people:
        for name, role in users.items():
            add(people, name, role)
        diagnostics = Diagnostics(request)
        lists = FolderLists(
            folder, people, jobs_at_once=settings.jobs.at_once, diagnostics=diagnostics.of_device
        )
        parts = PageParts(
            Reception(people, settings.page, 8270),
            PageActions(Desk(folder, settings, people, diagnostics)),
            lists,
            access_of("127.0.0.1", 8270, None, bound="127.0.0.1", also=settings.page.url),
            provider,
            first_admin_command(folder),
            clock=lambda: clock[0],
        )
        try:
            yield Stage(folder, people, make_app(parts), clock)
        finally:
            lists.close()


def page_settings(**page: Any) -> ServiceSettings:
    """Settings with a `[page]`."""
    return ServiceSettings(page=PageSettings.model_validate(page))
