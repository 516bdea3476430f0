"""An authority in a folder, and a real Mosquitto with the authority's configuration."""

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from edge_client.security.identity.certificates import key_pem, new_key
from edge_client.security.identity.private_files import private_folder, write_private
from edge_client.transport.broker_link import BrokerAddress, LinkUp, TlsFiles, parse_address
from edge_server.security.identity.authority import Authority, make_authority, renew_service_certificates
from edge_server.security.identity.service import RegistrationService
from edge_server.security.identity.settings import AuthoritySettings
from edge_server.transport.broker.launch import find_mosquitto

FEDERATION = "home"
DEADLINE_S = 30.0


def new_authority(folder: Path, *, days: float = 365.0, clock: Callable[[], float] = time.time) -> Authority:
    """An authority whose broker will listen on two free ports of this machine."""
    ports = free_ports(2)
    settings = AuthoritySettings(
        federation=FEDERATION,
        hosts=("localhost", "127.0.0.1"),
        port=ports[0],
        enrolment_port=ports[1],
        device_days=days,
    )
    authority = make_authority(folder, settings, clock=clock)
    renew_service_certificates(authority)
    return authority


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(probe.getsockname()[1]) for probe in probes]


def identity(authority: Authority, device: str, folder: Path) -> TlsFiles:
    private_folder(folder)
    files = TlsFiles(folder / "ca.pem", folder / "device.pem", folder / "device.key")
    key = new_key()
    certificate = authority.issue(device, key.public_key())
    write_private(folder / "ca.pem", authority.ca_pem)
    write_private(folder / "device.key", key_pem(key))
    write_private(folder / "device.pem", certificate.public_bytes(Encoding.PEM))
    return files


def server_files(authority: Authority) -> TlsFiles:
    folder = authority.folder / "server"
    return TlsFiles(folder / "ca.pem", folder / "server.pem", folder / "server.key")


def address_of(authority: Authority, files: TlsFiles) -> BrokerAddress:
    """The address of the authority's broker with the client's certificate files."""
    return parse_address(authority.settings.broker, files)


@dataclass(frozen=True)
class Mosquitto:
    """A broker that accepts connections."""

    pid: int
    log: Path


@contextlib.contextmanager
def running_mosquitto(authority: Authority) -> Iterator[Mosquitto]:
    """Run Mosquitto with the authority's configuration until the block ends."""
    binary = find_mosquitto()
    if binary is None:
        pytest.skip("mosquitto is not installed")
    conf, log = authority.folder / "test.conf", authority.folder / "mosquitto.log"
    # Started as root, it would switch to user mosquitto, who may not read the keys.
    user = "user root\n" if os.geteuid() == 0 else ""
    conf.write_text((authority.broker / "mosquitto.conf").read_text() + user)
    with log.open("wb") as output:
        child = subprocess.Popen([binary, "-c", str(conf)], stdout=output, stderr=output)
    try:
        for port in (authority.settings.port, authority.settings.enrolment_port):
            _await_port(child, port, log)
        yield Mosquitto(child.pid, log)
    finally:
        child.terminate()
        child.wait(timeout=DEADLINE_S)


def _await_port(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and child.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.02)
    raise AssertionError(f"mosquitto does not listen on {port}: {log.read_text()}")


class _ObservedService(RegistrationService):
    """`connected` is set at its first connection: a request before that waits for the device's next try."""

    def __init__(self, authority: Authority, address: BrokerAddress) -> None:
        super().__init__(authority, address)
        self.connected = threading.Event()
        self._take, self.loop.handle = self.loop.handle, self._take_and_note

    def _take_and_note(self, event: object) -> None:
        self._take(event)
        if isinstance(event, LinkUp):
            self.connected.set()


@contextlib.contextmanager
def serving(authority: Authority) -> Iterator[None]:
    """Run `edge-server enroll --serve` in a thread, connected, until the block ends."""
    folder = authority.folder / "service"
    files = TlsFiles(folder / "ca.pem", folder / "service.pem", folder / "service.key")
    service = _ObservedService(authority, address_of(authority, files))
    thread = threading.Thread(target=service.run, name="authority", daemon=True)
    thread.start()
    try:
        assert service.connected.wait(DEADLINE_S)
        yield
    finally:
        service.stop()
        thread.join(timeout=DEADLINE_S)


@pytest.fixture(autouse=True)
def _reconnect_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_client.transport.mqtt_client.FIRST_DELAY_S", 0.1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One authority for all tests of a module."""
    return new_authority(tmp_path_factory.mktemp("authority") / "home")


@pytest.fixture(scope="module")
def mosquitto(authority: Authority) -> Iterator[Mosquitto]:
    """A broker for the module's authority."""
    with running_mosquitto(authority) as running:
        yield running
