"""The log context is cleared before and after each test."""

from collections.abc import Iterator

import pytest

from edge_client.system.logging.formatters import FACTS, about


@pytest.fixture(autouse=True)
def _empty_log_context() -> Iterator[None]:
    about(**dict.fromkeys(FACTS))
    yield
    about(**dict.fromkeys(FACTS))
