"""The HTTP channel: answers, refusals, and operation after errors."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_client.inference.model_slots import Slots
from edge_client.inference.service import http as module
from edge_client.inference.service.http import PredictionServer
from edge_client.inference.service.lifecycle import PredictionService
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import FileSource, SlotSource
from edge_client.inference.service.predictor import Predictor
from tests.edge_client.inference.service.test_exchange import named
from tests.edge_client.inference.test_onnx_model import write_model

PIXELS = b'{"pixels": [[0, 9, 0]], "id": 4}'


class Running:
    """A service in this process, and one connection to it."""

    def __init__(self, predictor: Predictor, **more: Any) -> None:
        self.predictor = predictor
        predictor.refresh()
        self.web = PredictionServer(("127.0.0.1", 0), predictor, **more)
        self.serving = PredictionService(predictor, self.web, poll_s=0.02)
        self.thread = threading.Thread(target=self.serving.run)
        self.thread.start()
        self.connection = self.connect()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        data = response.read()
        return response.status, json.loads(data) if "json" in response.headers[
            "Content-Type"
        ] else data.decode()

    def post(self, body: bytes, query: str = "") -> tuple[int, Any]:
        return self.ask("POST", f"/predict{query}", body)

    def stop(self) -> None:
        self.serving.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    service = Running(
        Predictor(FileSource(write_model(tmp_path / "model.onnx")), RequestMetrics()), max_body=10_000
    )
    yield service
    service.connection.close()
    service.stop()


def test_an_answer_names_its_model(running: Running) -> None:
    status, answer = running.post(PIXELS, "?top=2")
    assert status == 200
    assert [entry["name"] for entry in answer["results"][0]["top"]] == ["bee", "ant"]
    assert (answer["id"], answer["model"]["version"]) == ("4", "model.onnx")


def test_a_page_shows_names_as_text(tmp_path: Path) -> None:
    path = named(tmp_path / "model.onnx", "ant", "<b>bee</b>", "cat")
    shown = Running(Predictor(FileSource(path), RequestMetrics(), keeps_last=True))
    try:
        shown.post(PIXELS)
        status, page = shown.ask("GET", "/")
        refused = shown.ask("GET", "/other")
    finally:
        shown.connection.close()
        shown.stop()
    assert status == 200
    assert "<h1>ant round 2 (" in page
    assert "<li>&lt;b&gt;bee&lt;/b&gt; 100.0%</li>" in page
    assert refused[0] == 404
    assert refused[1]["error"].endswith("GET /metrics, and GET / for a browser")


def test_health_and_metrics(running: Running) -> None:
    running.post(PIXELS)
    status, health = running.ask("GET", "/healthz")
    assert (status, health["ready"], health["trouble"]) == (200, True, None)
    status, metrics = running.ask("GET", "/metrics")
    assert status == 200
    assert 'edge_serve_requests_total{door="http",outcome="ok"} 1' in metrics.splitlines()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "why"),
    [
        ("POST", "/predict", b"no image", 400, "it is not an image"),
        ("POST", "/predict", b"", 400, "the body is empty"),
        ("POST", "/predict?top=0", PIXELS, 400, "expected a whole number from 1"),
        ("POST", "/predict?tpo=3", PIXELS, 400, "no option 'tpo' (did you mean 'top'?)"),
        ("POST", "/predict?top=x", PIXELS, 400, "expected a whole number from 1"),
        ("POST", "/predict", b"x" * 10_001, 413, "at most 10000 bytes"),
        ("POST", "/other", PIXELS, 404, "there is POST /predict"),
        ("GET", "/", None, 404, "there is POST /predict"),
        ("GET", "/predict", None, 405, "with POST"),
        ("PUT", "/predict", PIXELS, 501, "there is POST /predict"),
    ],
)
def test_a_refusal_is_one_line_and_the_service_stays_up(
    running: Running, method: str, path: str, body: bytes | None, status: int, why: str
) -> None:
    answered, reply = running.ask(method, path, body)
    assert answered == status
    assert why in reply["error"]
    assert "\n" not in reply["error"]
    assert running.post(PIXELS)[0] == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /predict HTTP/1.1\r\nHost: x\r\n\r\n", b"411"),
        (b"POST /predict HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /predict HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST /predict HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", b"413"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"BREW /predict HTTP/1.1\r\n\r\n", b"501"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
    ],
    ids=["no-length", "negative", "chunked", "huge", "nonsense", "verb", "long"],
)
def test_invalid_bytes_end_only_their_own_connection(running: Running, head: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.web.port), timeout=60) as raw:
        raw.sendall(head)
        answer = b""
        while piece := raw.recv(4096):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert json.loads(body)["error"]
    assert running.post(PIXELS)[0] == 200


def test_a_truncated_body_is_not_processed(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.web.port), timeout=60) as raw:
        raw.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(4096) == b""
    assert running.post(PIXELS)[0] == 200


def test_an_internal_error_fails_only_one_request(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **more: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr("edge_client.inference.service.predictor.read_request", fail)
        status, reply = running.post(PIXELS)
    assert (status, reply) == (500, {"error": "a fault", "id": "4"})
    assert running.post(PIXELS)[0] == 200


def test_the_number_of_connections_is_limited(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 1)
    limited = Running(running.predictor)
    try:
        limited.post(PIXELS)
        with socket.create_connection(("127.0.0.1", limited.web.port), timeout=60) as raw:
            assert raw.recv(1) == b""
        assert limited.post(PIXELS)[0] == 200
        # The refused connection is closed before it is counted.
        while 'outcome="busy"' not in limited.ask("GET", "/metrics")[1]:
            pass
    finally:
        limited.connection.close()
        limited.stop()


def test_a_request_that_trickles_in_is_closed(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_S", 0.0)
    with socket.create_connection(("127.0.0.1", running.web.port), timeout=60) as raw:
        with contextlib.suppress(ConnectionError):
            for byte in b"GET /healthz HTTP/1.1\r\n" * 1000:
                raw.sendall(bytes([byte]))
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(1) == b""


def test_without_a_model_the_service_reports_not_ready(tmp_path: Path) -> None:
    running = Running(Predictor(SlotSource(Slots(tmp_path / "serving")), RequestMetrics()))
    try:
        status, reply = running.post(PIXELS)
        assert status == 503
        assert "no model in" in reply["error"]
        assert running.ask("GET", "/healthz")[0] == 503
        assert "edge_serve_ready 0" in running.ask("GET", "/metrics")[1]
    finally:
        running.connection.close()
        running.stop()


def test_a_replaced_file_is_served_automatically(tmp_path: Path) -> None:
    path = named(tmp_path / "model.onnx", "ant")
    running = Running(Predictor(FileSource(path), RequestMetrics()))
    exchanged = threading.Event()
    refresh = running.predictor.refresh

    def watched_refresh() -> bool:
        done = refresh()
        if running.predictor.model["version"] == "bee round 2":
            exchanged.set()
        return done

    running.predictor.refresh = watched_refresh  # type: ignore[method-assign]
    try:
        named(tmp_path / "next.onnx", "bee").replace(path)
        assert exchanged.wait(60)
        assert running.post(PIXELS)[1]["model"]["version"] == "bee round 2"
    finally:
        running.connection.close()
        running.stop()


def test_stopping_waits_for_running_requests(running: Running) -> None:
    """One request is inside the model when the service stops; it is still answered."""
    model = running.predictor.served.loaded
    inside, go_on = threading.Event(), threading.Event()
    session = model.session

    class Slow:
        def run(self, *arguments: Any) -> Any:
            inside.set()
            assert go_on.wait(60)
            return session.run(*arguments)

        def get_inputs(self) -> Any:
            return session.get_inputs()

    idle = running.connect()
    idle.request("GET", "/healthz")
    idle.getresponse().read()
    object.__setattr__(model, "session", Slow())
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(running.post(PIXELS)[0]))
    asking.start()
    assert inside.wait(60)
    running.serving.stop()
    go_on.set()
    asking.join(60)
    running.thread.join(60)
    assert answers == [200]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", running.web.port), timeout=60)
    idle.close()
