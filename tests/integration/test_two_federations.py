"""One service runs the jobs of two federations at once, each on its own devices."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from edge_client.transport.broker_link import BrokerAddress
from edge_server.transport.broker.launch import RunningBroker
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, Command, demo_config
from tests.integration.device_threads import devices
from tests.slow import mark_slow

NAMES = ("barn", "mill")


def settings(url: str) -> str:
    """A service.toml of both federations on one broker."""
    tables = [f'[[federations]]\nname = "{name}"\nbroker = "{url}"' for name in NAMES]
    return "\n\n".join([*tables, "[page]\nport = 0"])


def ask(service: Path, *words: str) -> Any:
    """The answer of a command about jobs."""
    done = subprocess.run(
        [sys.executable, "-m", "edge_server.cli.main", "jobs", *words, "--format", "json"],
        env={**os.environ, "EDGE_SERVICE": str(service)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def ended_run(service: Path, job: str) -> dict[str, Any]:
    """The job's only run, as soon as it has ended."""
    until, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not (ended := [run for run in ask(service, "show", job)["runs"] if run["ended_at"]]):
        assert time.monotonic() < until, f"the run of {job} has not ended"
        pause.wait(0.5)
    return dict(ended[0])


@mark_slow
@ONE_BROKER
def test_jobs_of_two_federations_run_at_once(
    broker: RunningBroker, address: BrokerAddress, command: Command, tmp_path: Path
) -> None:
    service = tmp_path / "service"
    service.mkdir()
    (service / "service.toml").write_text(settings(broker.url))
    with ExitStack() as running:
        for place, name in enumerate(NAMES):
            words = {"federation.name": name, "clients.num-clients": place + 1, "start-clients": 1}
            config = demo_config(**words)
            path = tmp_path / f"{name}.toml"
            path.write_text(config.to_toml())
            ask(service, "add", name, str(path), "--min-eligible", "1")
            ends = running.enter_context(devices(config, address, tmp_path / name, first=place))
            assert len(ends) == 1
        command("edge-server", "serve", str(service))
        runs = [ended_run(service, name) for name in NAMES]
        assert [run["phase"] for run in runs] == ["done", "done"]
        assert max(run["began_at"] for run in runs) < min(run["ended_at"] for run in runs)
