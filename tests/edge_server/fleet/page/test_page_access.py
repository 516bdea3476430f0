"""Who reaches page and API: logins, sessions, tokens, roles, foreign pages, the OpenID provider."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_server.fleet.actions.table import ACTIONS
from edge_server.fleet.page import login_routes
from edge_server.fleet.page.lists import FolderLists
from edge_server.fleet.people.openid import OpenIdProvider
from edge_server.fleet.people.passwords import digest_of, new_api_token
from edge_server.fleet.people.values import MIN_ROLES, ApiToken, Role
from edge_server.fleet.settings.page import OidcSettings
from edge_server.observability.dashboard.access import HEADERS
from edge_server.storage import audit_log
from tests.edge_server.fleet.page.service_pages import BASE, Browser, Stage, page_settings, staged
from tests.edge_server.fleet.people.people import NOW, PASSWORD, fast_passwords, running_provider

LISTS = ("/api/jobs", "/api/rollouts", "/api/alerts")
READS = ("/api/devices", "/api/device/home/pi-1", *LISTS, "/api/audit", "/api/users")
OPEN = ("/", "/api/me", "/assets/theme.css", "/assets/page/main.js", "/nothing")
SURROGATE = b'{"user": "\\ud800", "password": "\\ud800"}'
LABEL = {"federation": "home", "device": "pi-1", "labels": "role=camera"}

WORDS = st.text(max_size=40) | st.sampled_from(
    ["ada", "pi-1", "home", "operator", "a=b", "site=barn", PASSWORD]
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(sorted({field.name for action in ACTIONS.values() for field in action.fields} | {"x"})),
    WORDS | st.none() | st.integers() | st.lists(WORDS, max_size=2),
    max_size=5,
)


@pytest.fixture(autouse=True)
def _fast() -> Iterator[None]:
    with fast_passwords():
        yield


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as made:
        yield made


def token(stage: Stage, role: Role, where: str = "", *, days: float = 1) -> dict[str, str]:
    secret = new_api_token()
    made = ApiToken(f"t-{digest_of(secret).hex()[:8]}", role, where, "ada", NOW, NOW + days * 86_400)
    assert stage.people.add_token(digest_of(secret), made)
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("path", [*READS, *OPEN])
def test_every_answer_has_the_strict_headers(stage: Stage, path: str) -> None:
    answer = stage.client().get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", READS)
def test_nothing_is_told_to_strangers(stage: Stage, path: str) -> None:
    assert stage.client().get(path).status_code == 401
    assert stage.client().get(path, headers={"Authorization": "Bearer edge_guess"}).status_code == 401
    assert stage.client().get("/api/me").json()["who"] is None


def test_a_login_gives_a_cookie_that_scripts_and_foreign_pages_do_not_get(stage: Stage) -> None:
    answer = stage.client().post("/api/login", json={"user": "vera", "password": PASSWORD})
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Path=/", "edge-session-8270="):
        assert word in cookie
    assert "Secure" not in cookie


def test_with_tls_the_cookie_is_for_tls_alone(tmp_path: Path) -> None:
    with staged(tmp_path, settings=page_settings(url="https://fleet.example")) as stage:
        client = stage.client("https://fleet.example")
        answer = client.post("/api/login", json={"user": "vera", "password": PASSWORD})
        assert answer.headers["set-cookie"].startswith("__Host-edge-session=")
        assert "Secure" in answer.headers["set-cookie"]
        assert "max-age" in answer.headers["strict-transport-security"]


def test_who_is_who_and_what_they_may_do(stage: Stage) -> None:
    viewer, operator, admin = (stage.visitor(name).me for name in ("vera", "otto", "ada"))
    assert (viewer["who"], viewer["role"]) == ("user:vera", "viewer")
    assert [form["name"] for form in viewer["actions"]] == ["own.password"]
    names = {form["name"] for form in operator["actions"]}
    assert {"devices.label", "devices.note"} <= names
    assert not {"devices.revoke", "users.add", "tokens.make"} & names
    assert {"devices.revoke", "users.add", "tokens.make"} <= {form["name"] for form in admin["actions"]}
    assert "users.read" in admin["reads"]
    assert "users.read" not in operator["reads"]


def test_a_viewer_changes_nothing_and_is_told_why_in_one_line(stage: Stage) -> None:
    viewer = stage.visitor("vera")
    for action in MIN_ROLES:
        if action.endswith(".read") or action == "own.password":
            continue
        answer = viewer.act(action, **LABEL)
        assert answer.status_code == 403, action
    refused = viewer.act("devices.label", **LABEL)
    assert refused.status_code == 403
    assert refused.json() == {
        "error": "the role viewer may not do this (devices.label): it needs operator or admin"
    }
    assert viewer.get("/api/users").status_code == 403
    assert viewer.get("/api/audit").status_code == 403
    assert not stage.folder.audit.exists()


def test_an_operator_may_not_revoke(stage: Stage) -> None:
    refused = stage.visitor("otto").act("devices.revoke", federation="home", device="pi-1")
    assert (refused.status_code, refused.json()["error"]) == (
        403,
        "the role operator may not do this (devices.revoke): it needs admin",
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X-Edge-Change": "0" * 64}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": ""}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_a_foreign_page_cannot_use_the_session(stage: Stage, headers: dict[str, str], status: int) -> None:
    browser = stage.visitor("otto")
    right = {"X-Edge-Change": browser.me["change"], "Origin": BASE, "Content-Type": "application/json"}
    given = {**right, **headers} if headers else {"Origin": BASE, "Content-Type": "application/json"}
    answer = browser.client.post("/api/actions/devices.label", content=b"{}", headers=given)
    assert answer.status_code == status, answer.text
    assert browser.act("devices.label", **LABEL).status_code == 200


def test_the_change_token_of_one_session_is_no_good_in_another(stage: Stage) -> None:
    one, other = stage.visitor("otto"), stage.visitor("otto")
    one.me = other.me
    assert one.act("devices.label", **LABEL).status_code == 403


def test_other_methods_and_large_bodies_are_refused(stage: Stage) -> None:
    browser = stage.visitor("ada")
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert browser.client.request(method, "/api/devices").status_code == 405
    assert browser.client.post("/", json={}).status_code == 405
    assert browser.act("devices.note", federation="home", device="pi-1", note="x" * 70_000).status_code == 413
    assert browser.client.get("/api/actions/devices.label").status_code == 405


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b'"text"', b"[" * 30_000, b"\xff", b"{}", SURROGATE])
def test_malformed_bodies_are_one_clear_line(stage: Stage, body: bytes) -> None:
    browser = stage.visitor("ada")
    headers = {"X-Edge-Change": browser.me["change"], "Origin": BASE, "Content-Type": "application/json"}
    for path in ("/api/login", "/api/actions/devices.label"):
        answer = browser.client.post(path, content=body, headers=headers)
        assert answer.status_code == 400
        assert "\n" not in answer.json()["error"]


def test_sessions_end_by_the_clock_by_logging_out_and_with_the_user(stage: Stage) -> None:
    browser, other = stage.visitor("vera"), stage.visitor("otto")
    stage.now[0] += 3599
    assert browser.get("/api/devices").status_code == 200
    stage.now[0] += 3599
    assert browser.get("/api/devices").status_code == 200
    assert other.get("/api/devices").status_code == 401
    headers = {"X-Edge-Change": browser.me["change"], "Origin": BASE}
    assert browser.client.post("/api/logout", json={}).status_code == 403
    kept = dict(browser.client.cookies)
    assert browser.client.post("/api/logout", json={}, headers=headers).status_code == 200
    assert stage.client(cookies=kept).get("/api/devices").status_code == 401
    again = stage.visitor("vera")
    stage.people.remove_user("vera")
    assert again.get("/api/devices").status_code == 401


def test_a_locked_user_is_told_when_to_try_again(stage: Stage) -> None:
    client = stage.client()
    for _ in range(5):
        assert client.post("/api/login", json={"user": "ada", "password": "wrong"}).status_code == 401
    answer = client.post("/api/login", json={"user": "ada", "password": PASSWORD})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "15")
    assert answer.json() == {"error": "too many failed logins: try again in 15 s"}
    admin = stage.people.failures("user", "ada")
    assert admin.count == 5
    stage.now[0] += 15
    assert client.post("/api/login", json={"user": "ada", "password": PASSWORD}).status_code == 200


def test_a_proxy_names_the_address_and_others_cannot(tmp_path: Path) -> None:
    behind = page_settings(url="https://fleet.example", proxies=["testclient"])
    with staged(tmp_path, settings=behind) as stage:
        client = stage.client("https://fleet.example")
        wrong = {"user": "nobody", "password": "wrong"}
        client.post("/api/login", json=wrong, headers={"X-Forwarded-For": "9.9.9.9, 203.0.113.7"})
        client.post("/api/login", json=wrong, headers={"X-Forwarded-For": "2001:db8:1:2:3::4"})
        assert stage.people.failures("address", "203.0.113.7").count == 1
        assert stage.people.failures("address", "2001:db8:1:2::/64").count == 1


def test_a_fault_of_the_service_is_one_line_and_in_its_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    headers = token(stage, Role.VIEWER)

    def fault(*_: Any) -> None:
        raise ZeroDivisionError("secret details")

    monkeypatch.setattr(FolderLists, "devices", fault)
    answer = stage.client(raise_server_exceptions=False).get("/api/devices", headers=headers)
    assert answer.status_code == 500
    assert answer.json() == {"error": "the service has failed at this: its log says why"}
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert "secret details" in caplog.text


def test_only_so_many_logins_are_examined_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_routes, "MAX_AT_ONCE", 0)
    answer = stage.client().post("/api/login", json={"user": "ada", "password": PASSWORD})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


@pytest.fixture
def admin(stage: Stage) -> Browser:
    return stage.visitor("ada")


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(name=st.sampled_from([*ACTIONS, "x"]), args=ARGUMENTS)
def test_whatever_is_sent_is_answered_by_one_line(
    stage: Stage, admin: Browser, name: str, args: dict[str, Any]
) -> None:
    answer = admin.act(name, **args)
    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        assert "\n" not in answer.json()["error"]
    assert audit_log.verify(stage.folder.audit) is None


def test_a_token_acts_by_its_role_until_its_end(stage: Stage) -> None:
    headers = token(stage, Role.OPERATOR)
    client = stage.client()
    assert client.get("/api/devices", headers=headers).json()["matching"] == 3
    assert client.post("/api/actions/devices.label", json=LABEL, headers=headers).status_code == 200
    revoked = client.post("/api/actions/devices.revoke", json={}, headers=headers)
    assert revoked.status_code == 403
    stage.now[0] += 86_400
    assert client.get("/api/devices", headers=headers).status_code == 401
    expired = client.post("/api/actions/devices.label", json=LABEL, headers=headers)
    assert expired.status_code == 401
    assert expired.json()["error"].startswith("this token is unknown or has ended: `edge-server tokens list`")
    assert client.get("/api/devices").json()["error"].startswith("log in first, or send a token")


def test_a_token_with_a_selector_sees_and_changes_those_devices_alone(stage: Stage) -> None:
    headers = token(stage, Role.ADMIN, "site=barn")
    client = stage.client()
    listed = client.get("/api/devices", headers=headers).json()
    assert [row["device"] for row in listed["rows"]] == ["pi-1", "pi-2"]
    assert listed["total"] == 2
    assert client.get("/api/me", headers=headers).json()["reads"] == ["devices.read"]
    assert client.get("/api/device/home/pi-3", headers=headers).status_code == 404
    assert client.get("/api/device/home/pi-1", headers=headers).status_code == 200
    assert client.post("/api/actions/devices.label", json=LABEL, headers=headers).status_code == 200
    elsewhere = {**LABEL, "device": "pi-3"}
    assert client.post("/api/actions/devices.label", json=elsewhere, headers=headers).status_code == 403
    add = {"user": "eve", "role": "admin", "password": "a long password"}
    assert client.post("/api/actions/users.add", json=add, headers=headers).status_code == 403
    for path in ("/api/audit", "/api/users", *LISTS):
        assert client.get(path, headers=headers).status_code == 403


def test_without_any_user_the_page_names_the_command_for_the_first(tmp_path: Path) -> None:
    with staged(tmp_path, users={}) as stage:
        command = f"edge-server users add NAME --role admin --service {tmp_path}"
        assert stage.client().get("/api/me").json()["setup"] == command
        assert stage.client().get("/api/devices").status_code == 401


def test_a_login_at_the_provider_ends_on_the_page_with_the_role_of_the_claim(tmp_path: Path) -> None:
    with running_provider() as provider:
        provider.clock = lambda: NOW
        oidc = OidcSettings.model_validate(
            {"issuer": provider.url, "client_id": "fleet", "roles": {"fleet-operators": "operator"}}
        )
        known = OpenIdProvider(oidc, f"{BASE}/login/done")
        with staged(tmp_path, settings=page_settings(url=BASE, oidc=oidc), users={}, provider=known) as stage:
            client = stage.client()
            assert client.get("/api/me").json() == {"who": None, "openid": True, "now": NOW, "setup": None}
            back = _through(provider, client)
            stolen = stage.client().get("/login/done", params=back)
            assert stolen.status_code == 403
            back = _through(provider, client)
            assert (
                client.get("/login/done", params={**back, "iss": "https://evil.example"}).status_code == 403
            )
            back = _through(provider, client)
            answer = client.get("/login/done", params=back)
            assert answer.status_code == 200
            assert "script" not in answer.text
            me = client.get("/api/me").json()
            assert (me["who"], me["role"]) == ("user:grace", "operator")
            # Who has no password here cannot change it.
            assert "own.password" not in [form["name"] for form in me["actions"]]
            # The same answer of the provider does not work twice.
            assert client.get("/login/done", params=back).status_code == 403


def test_a_provider_that_cannot_be_reached_is_told_on_a_page_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oidc = OidcSettings(issuer="https://127.0.0.1:1", client_id="fleet", roles={"all": "viewer"})
    with staged(
        tmp_path,
        settings=page_settings(url=BASE, oidc=oidc),
        users={},
        provider=OpenIdProvider(oidc, f"{BASE}/login/done"),
    ) as stage:
        answer = stage.client().get("/login/openid")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "cannot be reached at https://127.0.0.1:1/.well-known/openid-configuration: " in answer.text
    assert "login at the OpenID provider: the OpenID provider cannot be reached" in caplog.text


def _through(provider: Any, client: Any) -> dict[str, str]:
    to = client.get("/login/openid")
    assert to.status_code == 303
    assert urlsplit(to.headers["location"]).path == "/authorize"
    back: dict[str, str] = provider.log_in(to.headers["location"])
    return back
