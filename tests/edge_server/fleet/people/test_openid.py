"""Logging in at an OpenID provider: what is sent, what is accepted, what is refused."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey
from pydantic import ValidationError

from edge_server.fleet.people import openid
from edge_server.fleet.people.values import Role
from edge_server.fleet.settings.page import OidcSettings, PageSettings
from schemas.errors import ConfigError, EdgeError, PeerError
from tests.edge_server.fleet.people.people import NOW, FakeProvider, running_provider

PENDING = openid.PendingLogin("the-nonce", "a-verifier-of-at-least-43-characters-in-length", NOW)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with running_provider() as running:
        running.clock = lambda: NOW
        yield running


def settings(provider: FakeProvider, **more: Any) -> OidcSettings:
    roles = {"fleet-operators": "operator"}
    return OidcSettings.model_validate({"issuer": provider.url, "client_id": "fleet", "roles": roles, **more})


def identity(
    provider: FakeProvider, known: openid.OpenIdProvider | None = None, at: float = NOW
) -> openid.KnownIdentity:
    known = known or openid.OpenIdProvider(settings(provider), "http://localhost:8270/login/done")
    back = provider.log_in(known.login_url("the-state", PENDING))
    return known.identity(back["code"], PENDING, now=at)


def test_a_secret_that_cannot_be_read_is_told_before_anybody_logs_in(
    provider: FakeProvider, tmp_path: Path
) -> None:
    named = settings(provider, client_secret_file=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"\[page\.oidc\] client-secret-file .*nowhere: cannot be read"):
        openid.OpenIdProvider(named, "http://localhost:8270/login/done")


def test_a_login_sends_state_nonce_and_challenge_and_gives_name_and_role(provider: FakeProvider) -> None:
    assert identity(provider) == openid.KnownIdentity(f"{provider.url} 42", "grace", Role.OPERATOR)
    asked = {name: values[0] for name, values in provider.asked.items()}
    assert asked["state"] == "the-state"
    assert asked["nonce"] == "the-nonce"
    assert asked["code_challenge_method"] == "S256"
    assert asked["code_challenge"] != PENDING.verifier
    assert asked["redirect_uri"] == "http://localhost:8270/login/done"
    assert provider.forms[0]["code_verifier"] == [PENDING.verifier]


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another-client"},
        {"aud": ["fleet", "other"], "azp": "other"},
        {"iss": "https://another.example"},
        {"exp": int(NOW) - 120},
        {"exp": None},
        {"iat": int(NOW) + 3600},
        {"sub": None},
        {"at_hash": "wrong"},
        {"preferred_username": None},
        {"preferred_username": "../../etc"},
        {"groups": ["staff"]},
        {"groups": None},
    ],
)
def test_an_id_token_with_a_wrong_claim_is_refused(provider: FakeProvider, claims: dict[str, Any]) -> None:
    provider.claims = claims
    with pytest.raises(PeerError):
        identity(provider)


def test_a_signature_by_another_key_is_refused(provider: FakeProvider) -> None:
    provider.signing = ECKey.generate_key("P-256", {"kid": "one"})
    with pytest.raises(PeerError, match="not valid"):
        identity(provider)


def test_a_signature_by_a_shared_secret_is_refused_always(provider: FakeProvider) -> None:
    provider.signing = OctKey.import_key("the public key as a secret, which is an old trick")
    provider.header = {"alg": "HS256", "kid": "one"}
    with pytest.raises(PeerError, match="not valid"):
        identity(provider)


def test_new_keys_of_the_provider_are_read_once_a_minute_at_most(provider: FakeProvider) -> None:
    known = openid.OpenIdProvider(settings(provider), "http://localhost:8270/login/done")
    identity(provider, known)
    provider.signing = ECKey.generate_key("P-256", {"kid": "two"})
    provider.header = {"alg": "ES256", "kid": "two"}
    with pytest.raises(PeerError):
        identity(provider, known, at=NOW + 59)
    provider.published.append(provider.signing)
    assert identity(provider, known, at=NOW + 60).name == "grace"
    assert provider.key_requests == 2


def test_a_code_of_another_login_is_refused(provider: FakeProvider) -> None:
    known = openid.OpenIdProvider(settings(provider), "http://localhost:8270/login/done")
    provider.log_in(known.login_url("the-state", PENDING))
    other = openid.PendingLogin("the-nonce", "another-verifier-of-at-least-43-characters-length", NOW)
    with pytest.raises(PeerError, match="refused the login"):
        known.identity("the-code", other, now=NOW)


def test_a_description_of_another_issuer_is_refused(provider: FakeProvider) -> None:
    known = openid.OpenIdProvider(
        settings(provider, issuer=f"{provider.url}/tenant"), "http://localhost:8270/x"
    )
    with pytest.raises(EdgeError):
        known.login_url("the-state", PENDING)


def test_a_provider_that_cannot_be_reached_is_not_asked_by_each_visitor(provider: FakeProvider) -> None:
    class Counted(openid.ProviderHttp):
        asked = 0

        def get(self, url: str) -> Any:
            self.asked += 1
            raise EdgeError("no route to host")

    clock, http = [0.0], Counted()
    known = openid.OpenIdProvider(
        settings(provider), "http://localhost:8270/x", http=http, clock=lambda: clock[0]
    )
    for at, asked in ((0.0, 1), (openid.FAILED_S - 1, 1), (openid.FAILED_S, 2)):
        clock[0] = at
        with pytest.raises(EdgeError, match="no route to host"):
            known.login_url("the-state", PENDING)
        assert http.asked == asked


def test_a_pending_login_is_finished_once_in_time_by_its_own_browser() -> None:
    numbers = count()
    logins = openid.PendingLogins(lambda: f"random-{next(numbers)}")
    state, browser, pending = logins.begin(NOW)
    assert logins.finish(state, browser, NOW + 1) == pending
    assert logins.finish(state, browser, NOW + 1) is None
    state, browser, _ = logins.begin(NOW)
    assert logins.finish(state, "another", NOW) is None
    state, browser, _ = logins.begin(NOW)
    assert logins.finish(state, browser, NOW + openid.LONGEST_S) is None
    first = logins.begin(NOW)
    for _ in range(openid.MAX_PENDING):
        logins.begin(NOW)
    assert logins.finish(first[0], first[1], NOW) is None


OIDC = {"issuer": "https://id.example", "client-id": "fleet", "roles": {"a": "admin"}}


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"host": "0.0.0.0"}, "passwords are not sent in the clear"),
        ({"host": "0.0.0.0", "cert": "a.pem"}, "belong together"),
        ({"url": "http://fleet.example"}, "is not https"),
        ({"oidc": OIDC}, "oidc needs url"),
        ({"oidc": {**OIDC, "issuer": "http://id.example"}, "url": "https://a.example"}, "could log in"),
        ({"oidc": {**OIDC, "scopes": ["email"]}, "url": "https://a.example"}, "need 'openid'"),
        ({"oidc": {**OIDC, "roles": {"a": "root"}}, "url": "https://a.example"}, "'viewer', 'operator'"),
    ],
)
def test_unsafe_settings_are_refused(page: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PageSettings.model_validate(page, by_alias=True, by_name=False)


def test_safe_settings_are_accepted() -> None:
    for page in ({}, {"host": "::1"}, {"host": "0.0.0.0", "url": "https://a.example", "oidc": OIDC}):
        PageSettings.model_validate(page, by_alias=True, by_name=False)
