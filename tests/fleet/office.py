"""The operator's machine: the broker with certificates, the service, the operator's commands, a webhook."""

import contextlib
import http.server
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from edge_server.cli.main import main as run_server
from edge_server.transport.broker.launch import find_mosquitto
from tests.edge_server.fleet.alerts.receivers import serving

DEADLINE_S = 240.0
PAUSE_S = 0.2
PAGE = "http://127.0.0.1:8270"
WEBHOOK_PORT = 8271
SETTINGS = """\
[[federations]]
name = "farm"
broker = "mqtts://10.77.0.1:8883"
authority = "{authority}"

[[alerts.rules]]
name = "silent"
when = "silent-for"
value = "{silent}"

[alerts]
gather = "0s"
every = "1s"

[alerts.receivers.office]
kind = "webhook"
url = "http://127.0.0.1:{port}/"
"""

SERVE = """\
import sys
from edge_server.cli.main import main
from edge_server.fleet.alerts.alert_keeper import AlertKeeper

AlertKeeper.__init__.__kwdefaults__["settled_s"] = 2.0
sys.exit(main())
"""
"""`edge-server` with a service that soon trusts its connection: in a story all boards are heard at once."""


def until(what: str, condition: Callable[[], Any], *, within_s: float = DEADLINE_S) -> Any:
    """The first value of the condition that is true; `TimeoutError` names what did not come."""
    deadline, pause = time.monotonic() + within_s, threading.Event()
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        pause.wait(PAUSE_S)


class Office:
    """Commands of the operator in `folder`; `service` is the folder of `edge-server serve`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.service = folder, folder / "service"
        self.authority = folder / "authority"

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "EDGE_SERVICE": str(self.service), "OMP_NUM_THREADS": "1"}

    def command(self, *words: object, code: int = 0, stdin: str = "") -> str:
        """The output of an `edge-server` command; `AssertionError` unless it ends with this exit code.

        It runs in this process: a story has a hundred commands, whose start takes most of their time.
        """
        printed, said = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self._environment),
            mock.patch.object(sys, "stdin", io.StringIO(stdin)),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(said),
        ):
            ended = run_server([str(word) for word in words])
        assert ended == code, (words, ended, printed.getvalue(), said.getvalue())
        return printed.getvalue()

    def json(self, *words: object) -> Any:
        """The JSON output of a command."""
        return json.loads(self.command(*words, "--format", "json"))

    def write_settings(self, *, silent: str = "2s") -> None:
        """Write `service.toml`."""
        self.service.mkdir(exist_ok=True)
        text = SETTINGS.format(authority=self.authority, silent=silent, port=WEBHOOK_PORT)
        (self.service / "service.toml").write_text(text)

    @contextlib.contextmanager
    def broker(self) -> Iterator[Path]:
        """Mosquitto with the authority's settings while the block lasts; yields its pid file."""
        settings, pid = self.folder / "mosquitto.conf", self.folder / "mosquitto.pid"
        text = (self.authority / "broker" / "mosquitto.conf").read_text()
        # In a namespace of its own this process is root, and there is no other user to become.
        settings.write_text(f"{text}\nuser root\npid_file {pid}\n")
        with (self.folder / "mosquitto.log").open("ab") as log:
            process = subprocess.Popen([str(find_mosquitto()), "-c", str(settings)], stdout=log, stderr=log)
        try:
            until("the broker", pid.exists)
            yield pid
        finally:
            process.terminate()
            process.wait()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """`edge-server serve` while the block lasts."""
        with (self.folder / "service.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", SERVE, "serve", str(self.service)],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        try:
            until("the page, or the end of the service", lambda: _answers(PAGE) or process.poll() is not None)
            assert process.poll() is None, (self.folder / "service.log").read_text()[-2000:]
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(DEADLINE_S)

    def alive(self) -> set[str]:
        """The devices that the inventory calls connected."""
        return {row["device"] for row in self.json("devices") if row["alive"]}

    def run_job(self, name: str) -> None:
        """Run a job now, to its end; `AssertionError` unless it is done."""
        known = {run["name"] for run in self._runs(name)}
        self.command("jobs", "start", name)

        def ended() -> dict[str, Any] | None:
            new = [
                run for run in self._runs(name) if run["name"] not in known and run["ended_at"] is not None
            ]
            return new[0] if new else None

        run = until(f"the end of job {name}", ended)
        assert run["phase"] == "done", self.command("jobs", "logs", name)

    def _runs(self, name: str) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.json("jobs", "show", name)["runs"]
        return runs


def ask(path: str, token: str, given: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and answer of a request to the service's API; a POST if something is `given`."""
    data = None if given is None else json.dumps(given).encode()
    request = urllib.request.Request(f"{PAGE}{path}", data)
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


class Webhook:
    """Receives alerts."""

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def next(self, device: str, status: str) -> dict[str, Any]:
        """The next alert with this status about a device; others are skipped."""
        while True:
            alert = self._arrived.get(timeout=DEADLINE_S)
            if (alert["device"], alert["status"]) == (device, status):
                return alert

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while the block lasts."""
        arrived = self._arrived

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    arrived.put(alert)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        with serving(http.server.ThreadingHTTPServer(("127.0.0.1", WEBHOOK_PORT), Handler)):
            yield
