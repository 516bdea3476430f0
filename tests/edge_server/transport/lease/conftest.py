"""A broker for each test."""

import pytest

from tests.edge_server.transport.lease.in_memory import Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()
