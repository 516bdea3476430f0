"""Whole runs on brokers with small packets: every message fits, or the run is refused."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.cli.main import main as client
from edge_client.transport.broker_link import BrokerAddress, parse_address
from schemas.errors import ConfigError
from tests.edge_client.cli.doctor.test_broker import mosquitto
from tests.edge_server.security.identity.conftest import _await_port, free_ports
from tests.integration.conftest import Run, demo_config
from tests.integration.device_threads import devices
from tests.slow import slow


@contextlib.contextmanager
def embedded(folder: Path, packet_bytes: str) -> Iterator[BrokerAddress]:
    """The embedded broker with another packet limit."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "edge_server.transport.broker", "--port", str(port)]
    log = folder / "broker.log"
    with log.open("wb") as output:
        child = subprocess.Popen([*command, "--packet-bytes", packet_bytes], stdout=output, stderr=output)
    try:
        _await_port(child, port, log)
        yield parse_address(f"mqtt://127.0.0.1:{port}")
    finally:
        child.terminate()
        child.wait(timeout=30)


@pytest.mark.parametrize(
    ("broker", "line", "chunk_bytes"),
    [
        slow(mosquitto, "max_packet_size 65536", 31 * 1024),
        slow(mosquitto, "message_size_limit 65535", 31 * 1024),
        slow(mosquitto, "max_packet_size 16500", 15 * 1024),
        (embedded, "32768", 31 * 1024),
    ],
)
def test_a_run_finishes_on_a_broker_with_small_packets(tmp_path: Path, broker, line, chunk_bytes) -> None:
    words = {"clients.num-clients": 2, "strategy.uplink": [], "strategy.downlink": []}
    config = demo_config(rounds=1, **words)
    with broker(tmp_path, line) as address, devices(config, address, tmp_path / "devices") as ends:
        run = Run(config, address, tmp_path / "run")
        summary = run.finished()
        assert {end.result(timeout=30) for end in ends} == {"finished"}
    assert summary.outcome == "finished"
    assert len(run.server.reporter.counters.deliveries) == 2
    assert run.server.connection.chunk_bytes == chunk_bytes
    assert not any("abandoned" in note for note in run.server.reporter.counters.notes)


def test_below_16_kb_server_and_device_name_the_setting_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mosquitto(tmp_path, "max_packet_size 16000") as address:
        with pytest.raises(ConfigError, match=r"16000 bytes at most, and at least 16384.*max_packet_size"):
            Run(demo_config(rounds=1), address, tmp_path / "run").finished()
        words = ["run", "--broker", str(address), "--data", "digits", "--state-dir", str(tmp_path / "pi")]
        assert client([*words, "--device-id", "pi"]) == 2
    assert "at least 16384 are needed" in capsys.readouterr().err
