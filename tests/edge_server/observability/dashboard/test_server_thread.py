"""The dashboard served by uvicorn over loopback, during a real simulation."""

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.observability import watchers
from edge_server.observability.dashboard import app as routes
from edge_server.observability.dashboard import server_thread
from edge_server.observability.dashboard.bind_address import PORT, bind_socket, parse_bind_address
from edge_server.observability.dashboard.server_thread import serve_dashboard
from edge_server.observability.snapshot import DeviceView, Snapshot
from edge_server.transport.broker.launch import free_port
from schemas.errors import ConfigError
from tests.edge_server.observability.dashboard.folders import ended
from tests.edge_server.simulation import small

ANY = ("127.0.0.1", 0)
PATIENCE_S = 60
MANY = tuple(DeviceView(f"device-{number:04d}", 1, 0.5, "idle", seen_at=1.0) for number in range(1000))
MOMENT = Snapshot("home", "run-1", "training", 1, 3, 0.0, devices=MANY)


def get_json(url: str, **headers: str) -> Any:
    with urlopen(Request(url, headers=headers), timeout=PATIENCE_S) as answer:
        return json.load(answer)


def events_of(url: str) -> Generator[tuple[str, Any], None, None]:
    """A page's events, until the server ends them."""
    with urlopen(f"{url}/api/stream", timeout=PATIENCE_S) as stream:
        name = ""
        for line in stream:
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            if key == "data":
                yield name, json.loads(value)


def test_the_progress_and_the_end_of_a_simulation_are_streamed(tmp_path):
    out = tmp_path / "run"
    with ThreadPoolExecutor() as pool, serve_dashboard(out, ANY, token=None, live=True) as host:
        reported = pool.submit(lambda: list(events_of(host.url)))
        small.run(out, "fedavg", "rounds=2", "num-clients=2", "samples-per-client=20", watcher=host)
        answer = get_json(f"{host.url}/api/run")
    events = reported.result(PATIENCE_S)
    assert [name for name, _ in events][:2] == ["run", "fleet"]
    assert [data["round"] for name, data in events if name == "round"] == [1, 2]
    assert events[-1] == ("end", {"outcome": "finished"})
    assert all(data["cost_relative"] > 0 for name, data in events if name == "round")
    rows: dict[str, Any] = {}
    for name, data in events:
        if name == "fleet":
            rows |= {row["device"]: row for row in data["devices"]}
    assert sorted((row["device"], row["rounds"], row["examples"]) for row in rows.values()) == [
        ("device-0001", 2, 20),
        ("device-0002", 2, 20),
    ]
    assert (answer["outcome"], answer["live"], answer["virtual"]) == ("finished", False, True)
    assert [line["round"] for line in answer["history"]] == [1, 2]


def test_open_streams_end_with_the_run(tmp_path):
    with ThreadPoolExecutor() as pool:
        with serve_dashboard(tmp_path, ANY, token=None, live=True) as host:
            host.show(MOMENT)
            stream = events_of(host.url)
            assert next(stream)[0] == "run"
            assert len(next(stream)[1]["devices"]) == 1000
            rest = pool.submit(lambda: list(stream))
            host.show(replace(MOMENT, devices=(replace(MANY[0], state="training"), *MANY[1:])))
        (changed,) = rest.result(PATIENCE_S)
    assert [(row["device"], row["state"]) for row in changed[1]["devices"]] == [("device-0000", "training")]


def test_a_hundred_pages_are_all_served_while_another_client_reads_nothing(tmp_path):
    with serve_dashboard(tmp_path, ANY, token=None, live=True) as host:
        host.show(MOMENT)
        port = int(host.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as idle_client:
            idle_client.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sizes = asyncio.run(_pages(port, 100))
    assert set(sizes) == {1000}


async def _pages(port: int, count: int) -> list[int]:
    """Open `count` streams at once and return the number of devices in the first event of each."""

    async def page() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        writer.write(b"GET /api/stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        reported = await reader.readuntil(b"\nevent: fleet\n")
        assert reported.startswith(b"HTTP/1.1 200")
        reported = await reader.readuntil(b"\n")
        opened.add(writer)
        if len(opened) == count:
            all_open.set()
        await all_open.wait()
        writer.close()
        return reported.count(b'{"device":')

    opened: set[asyncio.StreamWriter] = set()
    all_open = asyncio.Event()
    return await asyncio.wait_for(asyncio.gather(*(page() for _ in range(count))), PATIENCE_S)


def test_streams_beyond_the_limit_are_asked_to_retry(tmp_path, monkeypatch):
    monkeypatch.setattr(routes, "MAX_STREAMS", 1)
    with serve_dashboard(tmp_path, ANY, token=None, live=True) as host:
        host.show(MOMENT)
        stream = events_of(host.url)
        next(stream)
        with pytest.raises(HTTPError, match="503"):
            next(events_of(host.url))


def test_a_closed_stream_frees_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(routes, "MAX_STREAMS", 1)
    with serve_dashboard(tmp_path, ANY, token=None, live=True) as host:
        host.show(MOMENT)
        assert [_first_event_when_admitted(host.url) for _ in range(3)] == ["run"] * 3


def half_sent(url: str) -> socket.socket:
    """A connection with the beginning of a request."""
    connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_S)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-")
    return connection


def test_half_sent_requests_keep_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr(server_thread, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(server_thread, "MAX_WAITING", 4, raising=False)
    with serve_dashboard(tmp_path, ANY, token=None, live=True) as host, ExitStack() as held:
        host.show(MOMENT)
        for _ in range(20):
            held.enter_context(half_sent(host.url))
            assert len(get_json(f"{host.url}/api/fleet")["devices"]) == 1000


def test_a_request_that_never_ends_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(server_thread, "REQUEST_S", 0.1, raising=False)
    with (
        serve_dashboard(tmp_path, ANY, token=None, live=True) as host,
        half_sent(host.url) as held,
        suppress(ConnectionResetError),
    ):
        assert held.recv(1) == b""


def _first_event_when_admitted(url: str) -> str:
    """The name of a page's first event; the server notices a closed stream after a short delay."""
    for _ in range(1000):
        with suppress(HTTPError), closing(events_of(url)) as stream:
            return next(stream)[0]
    return "no stream was admitted"


def test_a_port_in_use_is_refused(tmp_path):
    with closing(socket.create_server(ANY)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{taken}"):
            bind_socket(("127.0.0.1", taken), None)


def test_another_free_port_is_used_when_the_default_port_is_in_use():
    with (
        closing(bind_socket(("127.0.0.1", None), None)) as first,
        closing(bind_socket(("127.0.0.1", None), None)) as second,
    ):
        assert first.getsockname() != second.getsockname()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_admitted_only_with_a_token(host):
    with pytest.raises(ConfigError, match="--dashboard-token TOKEN"):
        bind_socket((host, 0), None)
    with pytest.raises(ConfigError, match="so at least 16 are required"):
        bind_socket((host, 0), "short")
    with closing(bind_socket(("0.0.0.0", 0), "0123456789abcdef")) as made:
        assert made.getsockname()[1] > 0


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("box.lan", ("box.lan", None)),
        ("[::1]:9000", ("::1", 9000)),
        ("::1", ("::1", None)),
    ],
)
def test_an_address_is_parsed_in_every_usual_form(text, address):
    assert parse_bind_address(text) == address


@pytest.mark.parametrize(
    "words", [["--dashboard", "home.toml"], ["--dashboard", "127.0.0.1:x"], ["--dashboard", "1:70000"]]
)
def test_an_invalid_address_is_refused(words, capsys):
    assert EDGE_SERVER.run(["run", "fedavg", *words]) == 2
    assert (
        "is not HOST:PORT (for instance 127.0.0.1:8265); other words go before the option"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("verb", ["run", "simulate", "demo"])
def test_the_dashboard_is_an_option_of_every_run(verb):
    args = EDGE_SERVER.parser().parse_args([verb, *(["fedavg"] if verb != "demo" else [])])
    assert args.dashboard == (("127.0.0.1", None) if verb == "demo" else None)


@pytest.mark.parametrize("output", ["table", "json"])
def test_the_address_of_the_dashboard_is_printed(output, tmp_path, capsys):
    words = ["simulate", "fedavg", "--dashboard", "0", "--format", output]
    with watchers.watchers(EDGE_SERVER.parser().parse_args(words), tmp_path) as watcher:
        reported = capsys.readouterr()
        line = reported.err if output == "json" else reported.out
        assert line.startswith("dashboard http://127.0.0.1:")
        watcher.show(MOMENT)
        assert len(get_json(line.split()[1] + "/api/fleet")["devices"]) == 1000


def test_the_metrics_page_needs_the_same_token(tmp_path, capsys):
    words = ["run", "fedavg", "--dashboard", "0", "--dashboard-token", "secret"]
    with watchers.watchers(EDGE_SERVER.parser().parse_args(words), tmp_path) as watcher:
        watcher.show(MOMENT)
        page = capsys.readouterr().out.split()[1] + "/metrics"
        with pytest.raises(HTTPError, match="401"):
            urlopen(page, timeout=30)
        with urlopen(Request(page, headers={"Authorization": "Bearer secret"}), timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert "edge_server_devices{" in answer.read().decode()


def test_the_token_from_the_environment_is_required(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EDGE_DASHBOARD_TOKEN", "from the environment")
    args = EDGE_SERVER.parser().parse_args(["run", "fedavg", "--dashboard", "0"])
    with watchers.watchers(args, tmp_path):
        url = capsys.readouterr().out.split()[1]
        with pytest.raises(HTTPError, match="401"):
            get_json(f"{url}/api/run")
        assert get_json(f"{url}/api/run", Authorization="Bearer from the environment")["live"] is True


def test_a_finished_run_is_shown_until_ctrl_c(tmp_path):
    """The command runs in the main thread, as in its own process."""
    folder = ended(tmp_path / "run").path
    port = free_port()
    seen: list[str] = []

    def visit() -> None:
        try:
            _wait_for_the_port(port)
            seen.append(get_json(f"http://127.0.0.1:{port}/api/run")["outcome"])
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    visitor = threading.Thread(target=visit)
    visitor.start()
    assert EDGE_SERVER.run(["dashboard", str(folder), "--listen", str(port)]) == 0
    visitor.join()
    assert seen == ["finished"]
    assert signal.getsignal(signal.SIGTERM) is before


def _wait_for_the_port(port: int) -> None:
    for _ in range(10_000):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
        else:
            return


@pytest.mark.parametrize("what", ["nothing", "an empty folder", "a file"])
def test_a_path_without_a_run_is_reported_in_one_line(what, tmp_path, capsys):
    path = tmp_path / "run"
    if what == "a file":
        path.touch()
    elif what == "an empty folder":
        path.mkdir()
    assert EDGE_SERVER.run(["dashboard", str(path)]) == 2
    error = capsys.readouterr().err
    assert "is not a run folder" in error
    assert error.count("\n") == 1


def test_the_default_port_is_8265():
    helped = EDGE_SERVER.parser().parse_args(["dashboard", "run"])
    assert (helped.listen, PORT) == (("127.0.0.1", None), 8265)
