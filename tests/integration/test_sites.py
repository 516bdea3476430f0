"""Sites with gateways, over real brokers: the model is that of the flat federation, whatever dies."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.config.config import Config
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.storage.journal_reader import JournalReader
from edge_server.transport.broker.launch import running_broker
from schemas.messages import Birth, SiteBirth, encode_message
from schemas.topics import Channel, DeviceTopic, SiteTopic
from schemas.values import DataCard
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, Command, Run, demo_config, read_until
from tests.integration.device_threads import in_threads, sharing_agent
from tests.mqtt_clients import connected_client
from tests.slow import mark_slow

NAMES = ("barn.a", "barn.b", "loose")
CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)


def config(*sites: str, **overrides: Any) -> Config:
    """Three devices, for whose return the server waits in a round and before it."""
    settings = {
        "clients.num-clients": len(NAMES),
        "clients.min-clients": len(NAMES),
        "federation.sites": json.dumps(sites),
        "deliver": "none",
        "rejoin-s": 80.0,
        "deadline-s": 80.0,
        "rounds": 3,
        **overrides,
    }
    return demo_config(**settings)


@contextlib.contextmanager
def devices(of: Config, addresses: Mapping[str, BrokerAddress], state: Path) -> Iterator[None]:
    """Devices in threads, each at its broker; they are stopped at the end of the block."""
    agents = [
        sharing_agent(of, address, state / name, index, tier=index + 1)
        for index, (name, address) in enumerate(addresses.items())
    ]
    with in_threads(agents):
        yield


def states(run: Run) -> list[str]:
    """The digests of the models of all rounds."""
    with closing(JournalReader(run.folder.journal)) as reader:
        return [closed.state_sha256 for closed in reader.rounds()]


def flat_states(address: BrokerAddress, tmp_path: Path) -> list[str]:
    """The models of the same federation without a site."""
    with devices(config(), dict.fromkeys(NAMES, address), tmp_path / "flat-devices"):
        run = Run(config(), address, tmp_path / "flat")
        run.finished()
    return states(run)


def gateway(command: Command, upstream: BrokerAddress, below: BrokerAddress, out: Path, *words: str) -> Any:
    names = ("--federation", "test", "--site", "barn", "--out", str(out))
    links = ("--upstream", str(upstream), "--broker", str(below))
    return command("edge-server", "gateway", *names, *links, *words)


@mark_slow
@ONE_BROKER
def test_a_gateway_that_is_killed_and_returns_changes_no_bit_of_the_model(
    address: BrokerAddress, command: Command, tmp_path: Path
) -> None:
    with running_broker("auto", tmp_path / "barn-broker") as site:
        below = parse_address(site.url)
        first = gateway(command, address, below, tmp_path / "barn")
        read_until(first, "serving")
        addresses = {name: below if name.startswith("barn.") else address for name in NAMES}
        with devices(config("barn"), addresses, tmp_path / "devices"):
            run = Run(config("barn"), address, tmp_path / "run")
            read_until(first, "round 2 of 3: training")
            first.kill()
            first.wait()
            again = gateway(command, address, below, tmp_path / "barn", "--once")
            summary = run.finished()
            assert again.wait(timeout=DEADLINE_S) == 0
    assert summary.outcome == "finished"
    history = [json.loads(line) for line in run.folder.history.read_text().splitlines()]
    assert [line["completed"] for line in history] == [sorted(NAMES)] * 3
    assert states(run) == flat_states(address, tmp_path)
    assert [again.verdict for again in replay(run.folder.path)] == [ReplayVerdict.AGREES] * 3


@ONE_BROKER
@pytest.mark.parametrize("sites", [("attic",), ()], ids=["another", "none"])
def test_a_gateway_of_an_unknown_site_is_told_so_and_ends(
    address: BrokerAddress, command: Command, tmp_path: Path, sites: tuple[str, ...]
) -> None:
    run = Run(config(*sites), address, tmp_path / "run")
    with running_broker("embedded", tmp_path / "barn-broker") as site:
        process = gateway(command, address, parse_address(site.url), tmp_path / "barn")
        said = read_until(process, "--site barn")
        assert "'barn' is not a site of this federation: [federation] sites does not name it" in said
        assert process.wait(timeout=DEADLINE_S) == 1
    assert run.server.reporter.counters.refusals[None, "wrong-sender"] > 0
    run.stop()


@pytest.fixture
def publish(address: BrokerAddress) -> Iterator[Callable[[object, bytes], None]]:
    """Publish as a client without any access control."""
    with connected_client(address.host, address.port) as client:
        yield lambda topic, payload: client.publish(str(topic), payload, qos=1, retain=True).wait_for_publish(
            DEADLINE_S
        )


@ONE_BROKER
def test_nobody_speaks_for_the_devices_of_others(
    address: BrokerAddress, publish: Callable[[object, bytes], None], tmp_path: Path
) -> None:
    run = Run(config("barn", "attic"), address, tmp_path / "run")
    birth = encode_message(Birth(federation="test", device="barn.a", session=1, data=CARD))
    publish(DeviceTopic("test", "barn.a", Channel.BIRTH), birth)
    publish(SiteTopic("test", "attic", Channel.BIRTH, "barn.a"), birth)
    publish(SiteTopic("test", "shed", Channel.BIRTH, "shed.a"), birth)
    there = SiteBirth(federation="test", site="attic", session=1)
    publish(SiteTopic("test", "barn", Channel.BIRTH), encode_message(there))
    counters = run.server.reporter.counters
    run.watched.until(lambda shown: counters.refusals[None, "wrong-sender"] == 4)
    assert not run.server.driver.federation.fleet.devices
    run.stop()
