"""A broker, a server and devices as real processes that can be killed and restarted."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from edge_server.transport.broker.launch import find_mosquitto, free_port
from tests.chaos.links import Links
from tests.forked import ForkedCommand, start_forked

FEDERATION = "chaos"
DEVICES = 10
NETWORK = "two-nn"
TIERS = 5
DEADLINE_S = 120

_BROKER = """\
listener {port} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_packet_size 1048576
persistence {persistence}
persistence_location {directory}/
autosave_interval 1
log_dest file {directory}/broker.log
"""


class Processes:
    """All processes of one run; `persistent`: the broker stores its state on disk."""

    def __init__(
        self,
        folder: Path,
        *,
        rounds: int,
        devices: int = DEVICES,
        persistent: bool = False,
        network: str = NETWORK,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.run = folder, folder / "run"
        self.port = free_port()
        self._rounds, self._network = rounds, network
        self.names = tuple(f"device-{number:02d}" for number in range(1, devices + 1))
        self._configure_broker(persistent)
        self.broker = self._spawn_broker()
        self.links = Links(self.port)
        self.ports = {device: self.links.port(device) for device in self.names}

    def open(self) -> None:
        """Start the server and the devices."""
        self.server = self._spawn_server()
        self.devices = {device: self._spawn_device(device) for device in self.names}

    # --- failures ---
    def kill_server(self) -> float:
        """SIGKILL the server and start it again; returns the moment of the start."""
        self.server.kill()
        self.server.wait()
        moment = time.monotonic()
        self.server = self._spawn_server()
        return moment

    @property
    def aggregators(self) -> list[int]:
        """The server's aggregator processes, which are those that it spawns."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.server.pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return sorted(found)

    def kill_aggregator(self, pid: int) -> float:
        """SIGKILL an aggregator process; returns the moment."""
        moment = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return moment

    def kill_device(self, device: str) -> float:
        """SIGKILL a device and start it again; returns the moment of the start."""
        end(self.devices[device])
        moment = time.monotonic()
        self.devices[device] = self._spawn_device(device)
        return moment

    def kill_broker(self) -> float:
        """SIGKILL the broker and start it again; returns the moment from which it can be reached."""
        self.broker.kill()
        self.broker.wait()
        self.broker = self._spawn_broker()
        return time.monotonic()

    def cut_link(self, device: str) -> float:
        """Reset the device's connections; it may reconnect at once."""
        moment = time.monotonic()
        self.links.cut(device)
        return moment

    @property
    def over(self) -> bool:
        """Whether the run has ended; an `AssertionError` if the server failed.

        A server that is killed after it has written the summary finds no work when it is restarted.
        """
        code, ended = self.server.poll(), (self.run / "summary.json").exists()
        assert code in (None, 0) or ended, f"the server ended with {code}: {self._end_of_log('server.log')}"
        return code is not None

    def close(self) -> None:
        """End the remaining processes."""
        for device in self.devices.values():
            end(device)
        for process in (self.server, self.broker):
            process.kill()
            process.wait()
        self.links.close()

    # --- processes ---
    def _configure_broker(self, persistent: bool) -> None:
        directory = self.folder / "broker"
        directory.mkdir(exist_ok=True)
        text = _BROKER.format(
            port=self.port, persistence=str(persistent).lower(), directory=directory.resolve()
        )
        # Started as root, Mosquitto would change to the user mosquitto, which may not write here.
        text += "user root\n" if os.geteuid() == 0 else ""
        (directory / "mosquitto.conf").write_text(text)

    def _spawn_broker(self) -> subprocess.Popen[bytes]:
        binary = find_mosquitto()
        assert binary is not None
        process = subprocess.Popen([binary, "-c", str(self.folder / "broker" / "mosquitto.conf")])
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return process
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
        raise AssertionError("the broker does not start")

    def run_words(self) -> list[str]:
        """What `edge-server run` is asked to do."""
        words = [
            f"federation.name={FEDERATION}",
            f"rounds={self._rounds}",
            f"num-clients={len(self.names)}",
            f"min-clients={len(self.names)}",
            "quorum=1",
            "deadline-s=600",
            "rejoin-s=300",
            "data.source=digits",
            f"model.name={self._network}",
            "test-samples=200",
            "evaluate-tiers-every=100",
            "local-epochs=3",
            "batch-size=16",
            "deliver=none",
            "federation.aggregators=2",
        ]
        return ["run", "attending", *words]

    def _spawn_server(self) -> ForkedCommand:
        words = [*self.run_words(), "--broker", f"mqtt://127.0.0.1:{self.port}", "--out", str(self.run)]
        return start_forked("edge-server", *words, "--format", "json", log=self.folder / "server.log")

    def _spawn_device(self, device: str) -> ForkedCommand:
        number = self.names.index(device)
        words = {
            "--broker": f"mqtt://127.0.0.1:{self.ports[device]}",
            "--federation": FEDERATION,
            "--device-id": device,
            "--data": "digits",
            "--partition": "dirichlet(0.3)",
            "--share": f"{number + 1}/{len(self.names)}",
            "--tier": number % TIERS + 1,
            "--threads": 1,
            "--state-dir": self.folder / device,
        }
        options = (word for pair in words.items() for word in pair)
        return start_forked("edge-client", "run", *options, log=self.folder / f"{device}.log")

    def _end_of_log(self, log: str) -> str:
        return (self.folder / log).read_text(errors="replace")[-3000:]


def end(process: ForkedCommand) -> None:
    """SIGKILL a process and wait for its end."""
    process.kill()
    process.wait(DEADLINE_S)
