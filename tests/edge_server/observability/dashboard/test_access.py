"""Access to the dashboard: host names, token, methods, headers, and no file outside the run."""

import html.parser
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from edge_server.observability.dashboard import app as routes
from edge_server.observability.dashboard.access import HEADERS, Access, access_of, host_name
from edge_server.observability.dashboard.app import make_app
from edge_server.observability.dashboard.feed import Feed
from edge_server.storage.inventory.inventory import Inventory
from tests.edge_server.observability.dashboard.folders import MARKUP, ended

TOKEN = "a token of a few words"
LOCAL = access_of("127.0.0.1", 8265, None, bound="127.0.0.1")
GUARDED = access_of("192.168.1.5", 8265, TOKEN, bound="192.168.1.5")
PATHS = (
    "/",
    "/api/run",
    "/api/fleet",
    "/api/model",
    "/api/device/alpha",
    "/api/events",
    "/api/stream",
    "/onnx/tier-1.onnx",
)

Ask = Callable[..., TestClient]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ended(tmp_path_factory.mktemp("guarded") / "run").path


@pytest.fixture
def ask(run: Path) -> Iterator[Ask]:
    with ExitStack() as stack:

        def client(access: Access = LOCAL, base: str = "http://127.0.0.1:8265") -> TestClient:
            feed = Feed(run, live=False)
            feed.closing = True  # streams send the current state and end
            made = TestClient(make_app(feed, access), base_url=base, follow_redirects=False)
            return stack.enter_context(made)

        yield client


@pytest.mark.parametrize("path", [*PATHS, "/assets/nothing", "/nothing"])
def test_every_response_has_the_strict_headers(ask, path):
    answer = ask().get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
    assert "*" not in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(ask, method):
    answer = ask().request(method, "/api/run")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", PATHS)
def test_head_is_answered_without_a_body(ask, path):
    answer = ask().head(path)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8265", "127.0.0.1.evil.example", "localhost.evil", ""]
)
def test_the_name_of_another_host_is_refused(ask, host):
    answer = ask().get("/api/run", headers={"Host": host})
    assert answer.status_code == 403
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("host", ["localhost:8265", "127.0.0.1:9", "[::1]:8265", "LOCALHOST"])
def test_the_names_of_this_machine_are_accepted(ask, host):
    assert ask().get("/api/run", headers={"Host": host}).status_code == 200


def test_bound_to_all_addresses_accepts_an_address_and_refuses_a_foreign_name(ask):
    everywhere = access_of("0.0.0.0", 8265, TOKEN, bound="0.0.0.0")
    shown = {"Authorization": f"Bearer {TOKEN}"}
    assert ask(everywhere).get("/api/run", headers={"Host": "10.1.2.3:8265", **shown}).status_code == 200
    assert ask(everywhere).get("/api/run", headers={"Host": "evil.example", **shown}).status_code == 403


@pytest.mark.parametrize("path", [*PATHS, "/assets/index.html"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Cookie": f"edge-dashboard-8265={TOKEN}"},
        {"Cookie": "edge-dashboard-8265="},
        {"Authorization": "Bearer \N{SNOWMAN}".encode()},
    ],
    ids=["missing", "wrong", "another scheme", "truncated", "as cookie", "empty cookie", "not ASCII"],
)
def test_without_the_token_every_request_is_refused(ask, path, headers):
    answer = ask(GUARDED, "http://192.168.1.5:8265").get(path, headers=headers)
    assert answer.status_code == 401
    assert "run-1" not in answer.text


def test_with_the_token_every_request_is_answered(ask):
    client = ask(GUARDED, "http://192.168.1.5:8265")
    for path in PATHS:
        assert client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_in_the_address_becomes_a_cookie_once(ask):
    client = ask(GUARDED, "http://192.168.1.5:8265")
    answer = client.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/api/run").status_code == 200


def test_a_wrong_token_in_the_address_gives_no_cookie(ask):
    answer = ask(GUARDED, "http://192.168.1.5:8265").get("/", params={"token": "wrong"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


def test_the_token_in_any_other_address_is_ignored(ask):
    answer = ask(GUARDED, "http://192.168.1.5:8265").get("/api/run", params={"token": TOKEN})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../app.py",
        "/assets/%2e%2e/app.py",
        "/assets/..%2fapp.py",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/onnx/../summary.json",
        "/onnx/..%2fsummary.json",
        "/onnx/tier-..%2f1.onnx",
        "/onnx/tier-1.onnx%2f..%2f..%2fsummary.json",
        "/onnx/tier--1.onnx",
        "/onnx/tier-9.onnx",
    ],
)
def test_no_other_file_is_served(ask, path):
    answer = ask().get(path)
    assert answer.status_code == 404
    assert answer.json()["error"] in ("there is nothing at this address", "tier 9 has no ONNX file yet")


def test_an_onnx_file_is_a_download(ask):
    answer = ask().get("/onnx/tier-1.onnx")
    assert answer.content == b"an ONNX file"
    assert answer.headers["content-disposition"] == 'attachment; filename="tier-1.onnx"'
    assert answer.headers["content-type"] == "application/octet-stream"


def test_text_from_devices_is_sent_as_json_and_never_as_markup(ask):
    """Every reason and every detail in the run folder contains a script tag."""
    client = ask()
    run, device, model = (client.get(path) for path in ("/api/run", "/api/device/alpha", "/api/model"))
    for answer in (run, device, model):
        assert answer.headers["content-type"] == "application/json"
        assert MARKUP not in answer.text
    assert run.json()["detail"] == MARKUP
    assert device.json()["rounds"][0]["because"].endswith(MARKUP)
    assert model.json()["variants"][0]["why"].endswith(MARKUP)


@pytest.mark.parametrize("name", [MARKUP, "%3Cscript%3E", "a%2f..%2fb", "gamma"])
def test_an_unknown_device_name_is_not_echoed(ask, name):
    answer = ask().get(f"/api/device/{name}")
    assert answer.status_code == 404
    assert "script" not in answer.text


def test_the_page_contains_no_data_of_the_run(ask):
    tags: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.append(tag)  # type: ignore[method-assign]
    page = ask().get("/")
    parser.feed(page.text)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "html" in tags
    assert "run-1" not in page.text


def test_no_text_can_break_the_lines_of_an_event(ask):
    answer = ask().get("/api/stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [block.splitlines() for block in answer.text.split("\n\n") if block]
    assert [[line.partition(":")[0] for line in block] for block in blocks] == [["id", "event", "data"]] * 5
    assert [block[1] for block in blocks] == [
        f"event: {name}" for name in ("run", "fleet", "round", "round", "end")
    ]
    assert json.loads(blocks[0][2].removeprefix("data: "))["detail"] == MARKUP


def test_events_continue_after_the_last_round_that_the_page_knows(ask):
    assert ask().get("/api/stream?since=1").text.count("event: round") == 1
    assert ask().get("/api/stream?since=x").status_code == 400


def test_one_stream_too_many_is_asked_to_retry(ask, monkeypatch):
    monkeypatch.setattr(routes, "MAX_STREAMS", 0)
    answer = ask().get("/api/stream")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_closed_streams_free_their_places(ask, monkeypatch):
    monkeypatch.setattr(routes, "MAX_STREAMS", 1)
    client = ask()
    assert [client.get("/api/stream").status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(
    "query", ["count=0", "count=33", "count=x", "tier=-1", "tier=%3Cb%3E", "tier=9999999999"]
)
def test_an_invalid_query_is_refused(ask, query):
    assert ask().get(f"/api/gradcam?{query}").status_code == 400


def test_grad_cam_without_a_convolution_gives_the_reason(ask):
    reported = ask().get("/api/model").json()
    answer = ask().get("/api/gradcam")
    assert (answer.status_code, answer.json()["error"]) == (503, reported["gradcam_why_not"])
    assert "no convolution" in reported["gradcam_why_not"]


@pytest.mark.parametrize(
    ("host", "name"), [("a:1", "a"), ("A", "a"), ("[::1]:8", "::1"), ("[::1]", "::1"), ("", "")]
)
def test_a_host_name_excludes_its_port(host, name):
    assert host_name(host) == name


def test_a_device_page_names_the_board_whose_place_the_device_took(ask, tmp_path, monkeypatch):
    assert ask().get("/api/device/alpha").json()["replaces"] == []
    monkeypatch.setenv("EDGE_SERVICE", str(tmp_path))
    inventory = Inventory(tmp_path / "inventory.sqlite")
    inventory.add("federation", "beta")
    inventory.replace("federation", "beta", "alpha", 1.0)
    inventory.close()
    assert ask().get("/api/device/alpha").json()["replaces"] == ["beta"]
    (tmp_path / "inventory.sqlite").write_bytes(b"no database" * 100)
    assert ask().get("/api/device/alpha").json()["replaces"] == []
