"""The launcher: the choice of the broker, its errors, and the end of the broker process."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

import pytest

from edge_server.transport.broker import launch
from edge_server.transport.broker.launch import RunningBroker, find_mosquitto, running_broker
from edge_server.transport.broker.packets import PingReq
from schemas.errors import ConfigError

from .clients import DEADLINE_S, Raw
from .conftest import NO_MOSQUITTO

Kind = Literal["mosquitto", "embedded"]


@pytest.fixture(params=["embedded", "mosquitto"])
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "mosquitto" and find_mosquitto() is None:
        pytest.skip(NO_MOSQUITTO)
    chosen: Kind = request.param
    return chosen


def answers(broker: RunningBroker) -> bool:
    client = Raw(broker)
    client.join("")
    client.send(PingReq())
    answered = client.receive() is not None
    client.close()
    return answered


def await_end(pid: int) -> None:
    """Wait for the end of a process, which need not be a child of this process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], DEADLINE_S)[0], f"process {pid} still runs"
    finally:
        os.close(handle)


def test_a_broker_runs_only_inside_the_block(kind: Kind, tmp_path: Path) -> None:
    with running_broker(kind, tmp_path / "made") as broker:
        assert (broker.kind, broker.host) == (kind, "127.0.0.1")
        assert broker.url == f"mqtt://127.0.0.1:{broker.port}"
        assert answers(broker)
        os.kill(broker.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(broker.pid, 0)


def test_a_chosen_port_is_used(kind: Kind, tmp_path: Path) -> None:
    port = launch.free_port()
    with running_broker(kind, tmp_path, port=port) as broker:
        assert broker.port == port


def test_auto_uses_mosquitto_if_installed(tmp_path: Path) -> None:
    with running_broker("auto", tmp_path) as broker:
        assert broker.kind == ("mosquitto" if find_mosquitto() else "embedded")


def test_without_mosquitto_auto_uses_the_embedded_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "find_mosquitto", lambda: None)
    with running_broker("auto", tmp_path) as broker:
        assert broker.kind == "embedded"
    with pytest.raises(ConfigError, match="no mosquitto"), running_broker("mosquitto", tmp_path):
        pass


def test_mosquitto_is_found_if_path_lacks_sbin(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_mosquitto()
    if found is None or not found.startswith(("/usr/sbin", "/usr/local/sbin")):
        pytest.skip("no mosquitto in an sbin on this machine")
    monkeypatch.setenv("PATH", "/usr/bin")
    assert find_mosquitto() is not None


def test_a_port_in_use_is_a_clear_error(kind: Kind, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot use port {port}"):
            running_broker(kind, tmp_path, port=port).__enter__()


def test_a_broker_that_ends_at_once_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "mosquitto"
    broken.write_text("#!/bin/sh\necho 'Error: no such option'\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(launch, "find_mosquitto", lambda: str(broken))
    with pytest.raises(ConfigError, match=r"ended with code 3(.|\n)*Error: no such option") as failure:
        running_broker("auto", tmp_path).__enter__()
    assert str(broken) in str(failure.value)


def test_a_broker_that_never_listens_is_ended_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = tmp_path / "mosquitto"
    idle.write_text('#!/bin/sh\necho $$ > "$(dirname "$0")/pid"\nexec sleep 600\n')
    idle.chmod(0o755)
    monkeypatch.setattr(launch, "find_mosquitto", lambda: str(idle))
    monkeypatch.setattr(launch, "READY_S", 0.7)
    with pytest.raises(ConfigError, match="accepts no connection"):
        running_broker("mosquitto", tmp_path, port=launch.free_port()).__enter__()
    await_end(int((tmp_path / "pid").read_text()))


def test_a_broker_outlives_the_thread_that_started_it(kind: Kind, tmp_path: Path) -> None:
    made = running_broker(kind, tmp_path)
    entered: list[RunningBroker] = []
    thread = threading.Thread(target=lambda: entered.append(made.__enter__()))
    thread.start()
    thread.join()
    try:
        assert answers(entered[0])
    finally:
        made.__exit__(None, None, None)


PARENT = """\
import signal, sys
from pathlib import Path
from edge_server.transport.broker.launch import running_broker
with running_broker(sys.argv[1], Path(sys.argv[2])) as broker:
    print(broker.pid, flush=True)
    signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a child with its parent")
def test_a_broker_does_not_outlive_a_killed_parent(kind: Kind, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, kind, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
    await_end(pid)
