"""Passwords that are hashed fast."""

from collections.abc import Iterator

import pytest

from tests.edge_server.fleet.people.people import fast_passwords


@pytest.fixture(autouse=True)
def _fast() -> Iterator[None]:
    with fast_passwords():
        yield
