"""The page as a part of the service: where it listens, TLS, and the first user."""

import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge_client.security.identity.certificates import key_pem, new_key
from edge_server.fleet.diagnostics.remote_part import RemotePart
from edge_server.fleet.page.page_part import LOOK_EVERY_S, PagePart
from edge_server.fleet.part import ServiceContext
from edge_server.fleet.people.store import People
from edge_server.fleet.service import make_parts
from edge_server.fleet.settings.page import PageSettings
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.security.identity.authority import Authority, make_authority
from edge_server.security.identity.certificates import broker_certificate
from edge_server.security.identity.settings import AuthoritySettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError
from tests.edge_server.fleet.people.people import NOW, add


@contextmanager
def part(folder: Path, **page: Any) -> Iterator[PagePart]:
    """A page that listens."""
    inventory = Inventory(folder / "inventory.sqlite")
    settings = ServiceSettings(page=PageSettings.model_validate({"port": 0, **page}))
    context = ServiceContext(ServiceFolder(folder), settings, inventory, lambda *_: None)
    made = PagePart(context, RemotePart(context))
    try:
        made.begin()
        yield made
    finally:
        made.stop()
        inventory.close()


def status(url: str, **more: Any) -> int:
    with urllib.request.urlopen(f"{url}/api/me", timeout=30, **more) as answer:
        return int(answer.status)


def certificate(folder: Path) -> tuple[Authority, Path, Path]:
    """An authority, and a certificate of this machine with its key."""
    authority = make_authority(folder / "ca", AuthoritySettings(hosts=("localhost",)))
    key = new_key()
    made = broker_certificate(
        authority.root, ("localhost", "127.0.0.1"), key.public_key(), lifetime_s=3600, now=authority.clock()
    )
    from cryptography.hazmat.primitives.serialization import Encoding

    (folder / "page.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "page.key").write_bytes(key_pem(key))
    return authority, folder / "page.pem", folder / "page.key"


def test_without_users_the_page_is_for_this_machine_until_there_is_one(tmp_path: Path) -> None:
    with part(tmp_path, host="0.0.0.0", url="https://fleet.example") as page:
        assert page.listens_at[0] == "127.0.0.1"
        page.tick(NOW)
        assert page.listens_at[0] == "127.0.0.1"
        with People(tmp_path / "people.sqlite") as people:
            add(people, "ada")
        page.tick(NOW + LOOK_EVERY_S / 2)
        assert page.listens_at[0] == "127.0.0.1"
        page.tick(NOW + LOOK_EVERY_S)
        assert page.listens_at[0] == "0.0.0.0"
        assert page.url == "https://fleet.example"
        assert status(f"http://127.0.0.1:{page.listens_at[1]}") == 200


def test_the_page_speaks_tls_with_its_certificate(tmp_path: Path) -> None:
    authority, cert, key = certificate(tmp_path)
    with part(tmp_path, cert=cert, key=key) as page:
        assert page.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cadata=authority.ca_pem.decode())
        assert status(page.url, context=trusted) == 200
        with pytest.raises(OSError):  # noqa: PT011
            status(page.url.replace("https", "http"))


def test_a_port_that_is_in_use_is_one_line(tmp_path: Path) -> None:
    with part(tmp_path) as page:
        port = page.listens_at[1]
        with (
            pytest.raises(ConfigError, match=rf"cannot listen at 127.0.0.1:{port}"),
            part(tmp_path, port=port),
        ):
            pass


def test_a_key_of_another_certificate_is_one_line(tmp_path: Path) -> None:
    _, cert, _ = certificate(tmp_path)
    (tmp_path / "other.key").write_bytes(key_pem(new_key()))
    with (
        pytest.raises(ConfigError, match="are not a pair"),
        part(tmp_path, cert=cert, key=tmp_path / "other.key"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match=r"service.toml: \[page\] key: there is no file"),
        part(tmp_path, cert=cert, key=tmp_path / "none"),
    ):
        pass


def test_a_service_may_have_no_page(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "inventory.sqlite")
    settings = ServiceSettings(page=PageSettings(enabled=False))
    parts = make_parts(ServiceContext(ServiceFolder(tmp_path), settings, inventory, lambda *_: None))
    inventory.close()
    assert not [made for made in parts if isinstance(made, PagePart)]
    assert not (tmp_path / "people.sqlite").exists()
