"""A whole federation over mutual TLS, with Mosquitto as configured and devices as enrolled."""

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

import edge_client.agent.task_runner
from edge_client.agent.agent import Agent, AgentSettings
from edge_client.cli.config_file import read_client_file
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.security.identity.enrolment import redeem
from edge_client.transport.broker_link import TlsFiles, parse_address
from edge_server.security.identity.authority import Authority
from edge_server.security.identity.bundle import write_bundle
from edge_server.security.identity.enrolment_codes import issue_code
from schemas.values import CapabilityProfile
from tests.edge_server.security.identity.conftest import (
    DEADLINE_S,
    FEDERATION,
    address_of,
    server_files,
    serving,
)
from tests.integration.conftest import Run, demo_config

DAY_S = 86_400.0


@contextmanager
def device(folder: Path) -> Iterator[Agent]:
    """Run a device with the folder's `client.toml` in a thread until the block ends."""
    options = read_client_file(folder / "client.toml")
    settings = AgentSettings(
        federation=options["federation"],
        device=options["device_id"],
        address=parse_address(options["broker"], TlsFiles(options["ca"], options["cert"], options["key"])),
        state=folder / "state",
        source=options["data"],
        profile=CapabilityProfile(tier=1),
        once=True,
    )
    settings.state.mkdir()
    agent = Agent(settings, LocalData(*holdout(load_source("digits").subset(range(100)), seed=0)))
    thread = threading.Thread(target=agent.run, name=settings.device, daemon=True)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop()
        thread.join(timeout=DEADLINE_S)


def unpack(archive: Path, into: Path) -> Path:
    shutil.unpack_archive(archive, into)
    return into / archive.stem


def serial(folder: Path) -> int:
    return x509.load_pem_x509_certificate((folder / "device.pem").read_bytes()).serial_number


class Log(logging.Handler):
    """Collects the devices' log lines, each prefixed with the device's name."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._changed = threading.Condition()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.lines.append(f"{record.threadName}: {record.getMessage()}")
            self._changed.notify_all()

    def until(self, beginning: str) -> int:
        """Wait for a line with this beginning; returns its index."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: [index for index, line in enumerate(self.lines) if line.startswith(beginning)],
                timeout=3 * DEADLINE_S,
            )
        assert found, self.lines
        return found[0]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Log]:
    collected, logger = Log(), logging.getLogger("edge_client")
    caplog.set_level(logging.INFO, "edge_client")
    logger.addHandler(collected)
    yield collected
    logger.removeHandler(collected)


def test_a_device_renews_its_certificate_during_a_task_without_losing_the_round(
    authority: Authority, mosquitto: object, tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One device has an archive and a certificate near its end; the other one redeemed a code.

    The authority answers only after training has begun, and training continues only after that answer.
    """
    monkeypatch.setattr("edge_client.security.identity.certificate_renewer.LONGEST_RETRY_S", 1.0)
    began, renewed, train = threading.Event(), threading.Event(), edge_client.agent.task_runner.do_training

    def train_slowly(*arguments: Any, **options: Any) -> Any:
        began.set()
        assert renewed.wait(timeout=3 * DEADLINE_S)
        return train(*arguments, **options)

    monkeypatch.setattr(edge_client.agent.task_runner, "do_training", train_slowly)
    new, before = tmp_path / "pi-new", time.time() - 0.75 * 365 * DAY_S
    with serving(authority):
        redeem(issue_code(authority, "pi-new", lifetime_s=3600), new, data="digits")
    aged = replace(authority, clock=lambda: before)
    old = unpack(write_bundle(aged, "pi-old", tmp_path / "out", data="digits"), tmp_path)
    first = serial(old)
    words = {"federation.name": FEDERATION, "num-clients": 2, "rounds": 1, "deliver": "none"}
    with ExitStack() as stack:
        for folder in (old, new):
            stack.enter_context(device(folder))
        run = Run(demo_config(**words), address_of(authority, server_files(authority)), tmp_path / "run")
        stack.callback(run.stop)
        assert began.wait(timeout=3 * DEADLINE_S)
        with serving(authority):
            received = log.until("pi-old: a new certificate, valid to")
            renewed.set()
            used = log.until("pi-old: connecting again, with the new certificate")
        summary = run.finished()
    assert summary.outcome == "finished"
    (record,) = run.server.reporter.counters.history
    assert (record.completed, record.dropped) == (("pi-new", "pi-old"), ())
    assert serial(old) != first
    assert received < log.until("pi-old: round 1: update accepted") < used
