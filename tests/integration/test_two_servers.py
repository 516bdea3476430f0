"""Two servers of one federation: the second one refuses to start, and says who holds the lease."""

import os
import threading
from pathlib import Path

import pytest

from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.config import Config
from edge_server.coordinator import launch
from edge_server.coordinator.standby.writing_right import lease_of
from edge_server.transport.lease.phases import Held
from schemas.errors import ConfigError
from tests.integration.conftest import ONE_BROKER, Watched, demo_config
from tests.integration.device_threads import devices


def start(config: Config, address: BrokerAddress, folder: Path) -> tuple[Watched, threading.Thread, list]:
    watched, results = Watched(), []
    thread = threading.Thread(
        target=lambda: results.append(launch.serve(config, address, watched, out=folder)), daemon=True
    )
    thread.start()
    return watched, thread, results


def test_the_second_server_refuses_and_names_the_first(
    address: BrokerAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "stopped_by_signals", lambda *_: __import__("contextlib").nullcontext())
    config = demo_config(rounds=1, **{"num-clients": 2, "deliver": "none"})
    watched, thread, results = start(config, address, tmp_path / "first")
    watched.until(lambda seen: not seen.no_link)
    with pytest.raises(ConfigError, match=rf"is served already: .* process {os.getpid()}, .*/first, since"):
        launch.serve(config, address, Watched(), out=tmp_path / "second")
    assert not (tmp_path / "second" / "federation.toml").exists()
    with pytest.raises(ConfigError, match=rf"another server runs there: .* process {os.getpid()}"):
        launch.serve(config, address, Watched(), out=tmp_path / "first")
    with devices(config, address, tmp_path / "devices"):
        thread.join(timeout=90)
    assert results[0].outcome == "finished"


@ONE_BROKER
def test_a_lease_that_was_given_back_is_free(address: BrokerAddress, tmp_path: Path) -> None:
    for name in ("first", "second"):
        with lease_of(address, "test", tmp_path / name) as lease:
            assert lease is not None
            lease.await_start()
            assert isinstance(lease.state.phase, Held)
            assert lease.holds()
