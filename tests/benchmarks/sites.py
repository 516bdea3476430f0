"""A site of twenty devices behind a link of 1 Mbit/s and 300 ms: with a gateway, and without one.

Real server, gateway and agents over real brokers, the link made by `slow_link` (a relay: netem is not in
every kernel). Twenty devices train a network of 161,210 parameters on a few digits each, so the link decides
how long a round takes. Counted is one round, from the offer of its tasks to the next model; bytes are those
of TCP, both ways. Without a gateway requests for chunks are repeated after 30 s and not, as usual, after 2 s:
twenty devices on one such link wait longer than that for a chunk, and had not ended the round in 15 minutes.
Even so chunks are sent twice; if none were, the round of float32 would be 26 MB, hence 206 s, without one.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.transport import chunk_transfer
from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.gateway.gateway import SiteGateway
from edge_server.coordinator.server import Server
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.run_folder import RunFolder
from edge_server.transport.broker.launch import running_broker
from schemas.values import CapabilityProfile
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.slow_link import SlowLink, slow_link

AREA = "sites"
CODED = (
    "an exact sum takes up to 6 bytes per coordinate whatever the codecs, an update with the default codecs "
    "half a byte (tests/benchmarks/README.md)"
)
DEVICES, QUICK_DEVICES = 20, 3
IMAGES = 40
NETWORK = "tests.benchmarks.networks:narrow"
BITS_PER_S, ROUND_TRIP_S = 1e6, 0.3
QUICK_BITS_PER_S = 20e6
LIMIT_S = 900.0
PATIENT = {**(chunk_transfer.start_transfer.__kwdefaults__ or {}), "least": chunk_transfer.FAR_PATIENCE_S}
EXACT = ("strategy.uplink=[]", "strategy.downlink=[]")


@dataclass(frozen=True)
class Taken:
    """A round: its bytes over the link, its seconds; and the digest of its model."""

    bytes: int
    seconds: float
    model: str


class AtRounds:
    """A watcher that reads link and clock when the round begins, and when it is closed."""

    def __init__(self, link: SlowLink) -> None:
        self._link = link
        self.read: list[tuple[int, float]] = []

    def show(self, snapshot: Any) -> None:
        """Note the bytes and seconds so far."""
        stages = (snapshot.phase == "training" or bool(snapshot.history)) + bool(snapshot.history)
        while len(self.read) < stages:
            self.read.append((self._link.bytes, time.monotonic()))

    @property
    def taken(self) -> tuple[int, float]:
        """The bytes and seconds of the round."""
        (before, began), (after, ended) = self.read
        return after - before, ended - began


def figures(options: Options) -> list[Figure]:
    """Bytes and time with a gateway, in terms of those without."""
    made = []
    for name, words in (("float32", EXACT), ("default codecs", ())):
        flat, site = (measured(options, words, gateway=gateway) for gateway in (False, True))
        assert flat.model == site.model, "the models differ"
        raw = {"flat": [flat.bytes, flat.seconds], "gateway": [site.bytes, site.seconds]}
        reason = "" if name == "float32" else CODED
        detail = (
            f"one round of {_count(options)} devices: {flat.bytes / 1e6:.2f} MB and {flat.seconds:.1f} s "
            f"without a gateway, {site.bytes / 1e6:.2f} MB and {site.seconds:.1f} s with one; the models of "
            "both are equal to the last bit"
        )
        made += [
            Figure(
                AREA,
                f"bytes over the far link, {name}",
                "of flat",
                (site.bytes / flat.bytes,),
                1 / 15,
                detail=detail,
                reason=reason,
                raw=raw,
            ),
            Figure(
                AREA,
                f"time of a round, {name}",
                "of flat",
                (site.seconds / flat.seconds,),
                1 / 8,
                reason=reason,
                raw=raw,
            ),
        ]
    return made


def _count(options: Options) -> int:
    return QUICK_DEVICES if options.quick else DEVICES


def measured(options: Options, words: tuple[str, ...], *, gateway: bool) -> Taken:
    """A round of one site, with its gateway or without."""
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder, count = Path(made), _count(options)
        config = _config(count, words, gateway=gateway)
        with running_broker("auto", folder / "broker") as broker:
            server_address = parse_address(broker.url)
            rate = QUICK_BITS_PER_S if options.quick else BITS_PER_S
            with slow_link(
                server_address.host, server_address.port, bits_per_s=rate, round_trip_s=ROUND_TRIP_S
            ) as link:
                far = parse_address(f"mqtt://127.0.0.1:{link.port}")
                return _run(config, server_address, far, link, folder, gateway=gateway)


def _config(count: int, words: tuple[str, ...], *, gateway: bool) -> Config:
    return load_config(
        "fedavg",
        [
            "federation.name=bench",
            "rounds=1",
            "deliver=none",
            "data.source=digits",
            f'model.name="{NETWORK}"',
            f"num-clients={count}",
            "tiers.ratios=[0.0]",
            "local-epochs=1",
            "deadline-s=3000.0",
            "rejoin-s=300.0",
            *(['federation.sites=["barn"]'] if gateway else []),
            *words,
        ],
    )


def _run(
    config: Config, address: BrokerAddress, far: BrokerAddress, link: SlowLink, folder: Path, *, gateway: bool
) -> Taken:
    watcher, run = AtRounds(link), RunFolder.create(folder / "run", config)
    server = Server(address, assemble(config, "run-1", run), watcher)
    site = _site(far, folder) if gateway else _patient(far)
    with site as devices_at, _agents(config, devices_at, folder):
        limit = threading.Timer(LIMIT_S, server.stop)
        limit.start()
        try:
            server.run()
        finally:
            limit.cancel()
    with contextlib.closing(JournalReader(run.journal)) as reader:
        (closed,) = reader.rounds()
    return Taken(*watcher.taken, closed.state_sha256)


@contextlib.contextmanager
def _patient(far: BrokerAddress) -> Iterator[BrokerAddress]:
    """The devices are at the server's broker, and wait long for chunks."""
    with (
        mock.patch.object(chunk_transfer, "PATIENCE_S", chunk_transfer.FAR_PATIENCE_S),
        mock.patch.object(chunk_transfer.start_transfer, "__kwdefaults__", PATIENT),
    ):
        yield far


@contextlib.contextmanager
def _site(far: BrokerAddress, folder: Path) -> Iterator[BrokerAddress]:
    """The site's broker and its gateway, in a thread."""
    with running_broker("auto", folder / "site-broker") as broker:
        below = parse_address(broker.url)
        (folder / "barn").mkdir()
        gateway = SiteGateway(far, below, federation="bench", site="barn", folder=folder / "barn")
        thread = threading.Thread(target=gateway.run, name="gateway", daemon=True)
        thread.start()
        try:
            yield below
        finally:
            gateway.stop()
            thread.join(10)


@contextlib.contextmanager
def _agents(config: Config, address: BrokerAddress, folder: Path) -> Iterator[None]:
    """All devices, in threads."""
    agents = [_agent(config, address, folder, index) for index in range(config.clients.num_clients)]
    run: Callable[[Agent], Any] = Agent.run
    with ThreadPoolExecutor(len(agents)) as pool:
        ends = [pool.submit(run, agent) for agent in agents]
        try:
            yield
        finally:
            for agent in agents:
                agent.stop()
            for end in ends:
                end.exception(timeout=30)


def _agent(config: Config, address: BrokerAddress, folder: Path, index: int) -> Agent:
    name = f"barn.d{index:02d}"
    (folder / name).mkdir()
    settings = AgentSettings(
        federation=config.federation.name,
        device=name,
        address=address,
        state=folder / name,
        source="digits",
        profile=CapabilityProfile(tier=1),
        once=True,
        threads=1,
        model_code=frozenset({NETWORK}),
    )
    mine = load_source("digits").subset(range(index * IMAGES, (index + 1) * IMAGES))
    return Agent(settings, LocalData(*holdout(mine, seed=0)))
