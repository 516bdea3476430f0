"""The bytes that a server sends in a round: one model, for any number of devices."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.transport.broker_link import parse_address
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.transport.broker.launch import RunningBroker
from schemas.tensors.chunks import CHUNK_BYTES
from schemas.values import CapabilityProfile, Preprocessing
from tests.benchmarks.wire import Relay, relay
from tests.integration.conftest import BROKERS, DEADLINE_S, Run
from tests.slow import mark_slow, slow

SHAPE = (1, 28, 28)
PARAMETERS = 1_663_370  # parameters of `two-nn` for 28 x 28 pictures
HALVES, FLOATS = 2 * PARAMETERS, 4 * PARAMETERS
"""Bytes of a model with the default down-link codec, and in float32.

In addition the server sends itself a chunk of the largest size when it connects, to test the broker.
"""
TIERS = (1, 2, 3, 4, 5, 5)


def config(recipe: str = "heterofl", **overrides: object) -> Config:
    """A run without local epochs."""
    settings = {
        "federation.name": "test",
        "rounds": 2,
        "deliver": "none",
        "local-epochs": 0,
        "num-clients": len(TIERS),
        "fraction": 1.0,
        "model.name": "two-nn",
        "model.input-shape": [*SHAPE],
        "model.num-classes": 10,
        **overrides,
    }
    return load_config(recipe, [f"{key}={value}" for key, value in settings.items()])


@contextlib.contextmanager
def agents(
    url: str, folder: Path, tiers: tuple[int, ...] = TIERS, *, first: int = 0
) -> Iterator[list[Agent]]:
    """Devices of these tiers, from number `first` on, each in a thread of this process."""
    random = np.random.default_rng(0)
    pictures = random.random((8, *SHAPE), np.float32)
    data = LabelledData(pictures, np.arange(8), tuple("0123456789"), Preprocessing())
    made, threads = [], []
    for number, tier in enumerate(tiers, start=first):
        state = folder / f"pi-{number}"
        state.mkdir(parents=True)
        profile = CapabilityProfile(tier=tier)
        settings = AgentSettings("test", f"pi-{number}", parse_address(url), state, "made-up", profile)
        made.append(Agent(settings, LocalData(data, data)))
        threads.append(threading.Thread(target=made[-1].run, daemon=True))
        threads[-1].start()
    try:
        yield made
    finally:
        for agent in made:
            agent.stop()
        for thread in threads:
            thread.join(timeout=DEADLINE_S)


@pytest.fixture
def link(broker: RunningBroker) -> Iterator[Relay]:
    with relay((broker.host, broker.port)) as link:
        yield link


def egress(link: Relay, broker: RunningBroker, folder: Path, settings: Config) -> tuple[int, Run]:
    """The bytes that the server has sent by the end of a run."""
    with agents(broker.url, folder / "devices"):
        address = parse_address(f"mqtt://127.0.0.1:{link.port}")
        run = Run(settings, address, folder / "run")
        try:
            assert run.finished().outcome == "finished"
        finally:
            run.stop()
    return link.towards.total, run


PLAIN = {"strategy.downlink": "[]"}


@pytest.mark.parametrize(
    ("broker", "words", "model"),
    [
        (BROKERS[0], {}, HALVES),
        slow(BROKERS[1], PLAIN, FLOATS),
        slow(BROKERS[0], PLAIN, FLOATS),
        slow(BROKERS[1], {}, HALVES),
    ],
    indirect=["broker"],
)
def test_a_round_of_mixed_tiers_sends_one_model(
    link: Relay, broker: RunningBroker, tmp_path: Path, words: dict[str, str], model: int
) -> None:
    sent, run = egress(link, broker, tmp_path, config(**words))
    assert model <= sent <= 1.03 * model + CHUNK_BYTES
    first, second = run.server.reporter.counters.history
    assert model <= first.downlink_bytes <= sent
    # No device has trained: round two begins from the model that all devices hold.
    assert second.downlink_bytes < 0.01 * model
    assert [len(first.completed), len(second.completed)] == [len(TIERS)] * 2


@pytest.mark.parametrize("recipe", [slow("feddrop"), "attending"])
@pytest.mark.parametrize("broker", [BROKERS[0]], indirect=True)
def test_sub_models_that_do_not_all_nest_are_broadcast_too(
    link: Relay, broker: RunningBroker, tmp_path: Path, recipe: str
) -> None:
    sent, _ = egress(link, broker, tmp_path, config(recipe, rounds=1))
    if recipe == "attending":
        # All devices receive the full model in round one.
        assert HALVES <= sent <= 1.03 * HALVES + CHUNK_BYTES
    assert sent >= HALVES


@mark_slow
@pytest.mark.parametrize("broker", [BROKERS[0]], indirect=True)
def test_after_a_packed_model_a_delta_is_sent(link: Relay, broker: RunningBroker, tmp_path: Path) -> None:
    codecs = '["delta", {name="int8", levels=7}, "zstd"]'
    sent, run = egress(link, broker, tmp_path, config(**{"strategy.downlink": codecs}))
    assert sent < 0.42 * FLOATS
    first, second = run.server.reporter.counters.history
    assert first.downlink_bytes > 0.2 * FLOATS
    # The delta corrects the error of the first frame, which may be any part of a step: 15 codes.
    assert second.downlink_bytes < 0.15 * FLOATS
    assert [len(first.completed), len(second.completed)] == [len(TIERS)] * 2
