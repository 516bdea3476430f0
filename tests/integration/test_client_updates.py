"""Updates of the client over a real broker: real launchers, environments and processes of this checkout."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.agent.client_update import launcher
from edge_client.agent.client_update.slots import ClientSlots
from edge_server.releases.rollout.groups import groups_of
from edge_server.security.signing_key import load_or_make_signing_key
from edge_server.transport.broker.launch import running_broker

ROOT = Path(__file__).parents[2]
SLOW = pytest.mark.skipif(os.environ.get("CHAOS_EVERY_WRITE") != "1", reason="run by make chaos")
DEADLINE_S = 600
DEVICES = ("pi-1", "pi-2")
DIES = """\
import os
import sys
import threading

from edge_client.cli import main as client


def main():
    if sys.argv[1:2] == ["run"]:
        # Half a second after it has begun to run.
        threading.Timer(0.5, lambda: os._exit(9)).start()
    return client.main()
"""


def wheel(folder: Path, version: str, code: str = "from edge_client.cli.main import main\n") -> Path:
    """A wheel whose `edge-client` is that of this checkout, which it finds by a path file."""
    folder.mkdir()
    info, path = (
        f"edge_federation-{version}.dist-info",
        folder / f"edge_federation-{version}-py3-none-any.whl",
    )
    # Without torch, whose import would take longer than the test.
    places = [folder.parent / "bare", ROOT, *site.getsitepackages()]
    files = {
        "checkout.pth": "".join(f"{place}\n" for place in places),
        "released_client.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: edge-federation\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nedge-client = released_client:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


class Fleet:
    """A service folder, a broker, and two boards started by their launchers."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder, self.broker, self.service = folder, broker, folder / "service"
        self.service.mkdir()
        (folder / "bare").mkdir()
        (folder / "bare" / "torch.py").write_text("raise ImportError('not on this device')")
        (folder / "signing.pub").write_text(
            load_or_make_signing_key(self.service / "signing.key").public_text
        )
        self.processes = [self._start(device) for device in DEVICES]

    def _start(self, device: str) -> subprocess.Popen[bytes]:
        first = self.folder / device / "first"
        (first / "bin").mkdir(parents=True)
        path = os.pathsep.join([str(self.folder / "bare"), str(ROOT)])
        program = first / launcher.PROGRAM
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} -m edge_client.cli.main "$@"\n'
        )
        program.chmod(0o755)
        start = ClientSlots(self.root(device)).make(str(first))
        words = ["--broker", self.broker, "--federation", "home", "--device-id", device, "--data", "digits"]
        words += ["--state-dir", str(self.folder / device / "state"), "--trainer", "onnx", "--tier", "1"]
        words += ["--trust", str(self.folder / "signing.pub")]
        hidden = {"PYTHONPATH"}
        variables = {name: value for name, value in os.environ.items() if name not in hidden}
        with (self.folder / device / "log").open("wb") as log:
            return subprocess.Popen([start, "run", *words], stdout=log, stderr=log, env=variables)

    def root(self, device: str) -> Path:
        return self.folder / device / "client"

    def log(self, device: str) -> str:
        return (self.folder / device / "log").read_text()

    def server(self, *words: str) -> tuple[int, list[dict[str, object]]]:
        """Run `edge-server client-release`; returns its exit code and JSON lines."""
        command = [sys.executable, "-m", "edge_server.cli.main", "client-release", *words]
        ended = subprocess.run(
            [*command, "--service", str(self.service)], capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines() if line[:2] == '{"']

    def roll_out(self, version: str, code: str | None = None) -> tuple[int, dict[str, object]]:
        """Make a release and roll it out; returns the exit code and the summary."""
        wheel(self.folder / version, version, *([] if code is None else [code]))
        made, _ = self.server(
            "make", "--wheels", str(self.folder / version), "--federation", "home", "--extras", ""
        )
        assert made == 0
        words = ["--broker", self.broker, "--canary", "1", "--groups", "1", "--expect", "2", "--gather", "0"]
        words += ["--watch", "1", "--connect-within", "60", "--starts", "1", "--format", "json"]
        code_, lines = self.server("rollout", version, *words)
        return code_, lines[-1]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_broker("auto", tmp_path / "broker") as running:
        fleet = Fleet(tmp_path, running.url)
        try:
            yield fleet
        finally:
            for process in fleet.processes:
                process.terminate()
            for process in fleet.processes:
                process.wait(timeout=DEADLINE_S)


@SLOW
def test_a_good_client_reaches_all_boards_and_one_that_dies_goes_back_on_the_canary_alone(
    fleet: Fleet,
) -> None:
    code, summary = fleet.roll_out("9.1.0")
    assert (code, summary["outcome"]) == (0, "finished"), fleet.log("pi-1")
    assert summary["devices"] == {"pi-1": "kept", "pi-2": "kept"}
    assert {launcher.read_current(fleet.root(device)) for device in DEVICES} == {"a"}

    code, summary = fleet.roll_out("9.2.0", DIES)
    assert (code, summary["outcome"]) == (1, "stopped")
    canary = groups_of(dict.fromkeys(DEVICES, 1), "9.2.0", canary=1, groups=1)[0][0]
    (other,) = set(DEVICES) - {canary}
    assert summary["devices"] == {canary: "rolled back", other: "waiting"}
    assert "client release 9.2.0: rolled-back (crashes)" in fleet.log(canary)
    assert "9.2.0" not in fleet.log(other)
    assert {launcher.read_current(fleet.root(device)) for device in DEVICES} == {"a"}
