"""Brokers that run for the whole test session, and clients that run for one test."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from edge_server.transport.broker.launch import RunningBroker, find_mosquitto, running_broker
from edge_server.transport.broker.packets import V5, V311

from .clients import Paho, Raw

NO_MOSQUITTO = "no mosquitto binary on this machine"


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker("embedded", tmp_path_factory.mktemp("embedded")) as running:
        yield running


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    if find_mosquitto() is None:
        pytest.skip(NO_MOSQUITTO)
    with running_broker("mosquitto", tmp_path_factory.mktemp("mosquitto")) as running:
        yield running


@pytest.fixture(params=["embedded", "mosquitto"])
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    running: RunningBroker = request.getfixturevalue(request.param)
    return running


@pytest.fixture(params=[V311, V5], ids=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def name() -> str:
    """A unique name for topics and client identifiers."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def paho(broker: RunningBroker, version: int) -> Iterator[Callable[..., Paho]]:
    made: list[Paho] = []

    def make(client_id: str = "", **more: Any) -> Paho:
        made.append(Paho(broker, version, client_id, **more))
        return made[-1]

    yield make
    for client in made:
        client.leave()


@pytest.fixture
def raw(broker: RunningBroker, version: int) -> Iterator[Callable[[], Raw]]:
    made: list[Raw] = []

    def make() -> Raw:
        made.append(Raw(broker, version))
        return made[-1]

    yield make
    for client in made:
        client.close()
