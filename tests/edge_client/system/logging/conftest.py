"""What holds for every line is put back after each test."""

from collections.abc import Iterator

import pytest

from edge_client.system.logging.context import FACTS, about


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    about(**dict.fromkeys(FACTS))
    yield
    about(**dict.fromkeys(FACTS))
