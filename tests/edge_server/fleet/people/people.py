"""Users, a fixed clock, and an OpenID provider for tests."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlencode, urlsplit

from argon2 import PasswordHasher

from edge_server.fleet.people import passwords
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Role, User
from tests.edge_server.fleet.alerts.receivers import serving

NOW = 1_800_000_000.0
PASSWORD = "correct horse battery"
WEAK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""A hash of the usual strength takes 50 to 300 ms."""
HASH = WEAK.hash(PASSWORD)


@contextmanager
def fast_passwords() -> Iterator[None]:
    """Hash passwords with `WEAK`."""
    with (
        patch.object(passwords, "make_hasher", lambda: WEAK),
        patch.object(passwords, "hash_of_nobody", lambda: HASH),
    ):
        yield


def add(people: People, name: str = "ada", role: Role = Role.ADMIN) -> None:
    """Add a local user with `PASSWORD`."""
    assert people.add_user(User(name, role, NOW, HASH))


@dataclass
class FakeProvider:
    """An OpenID provider whose ID tokens have `claims`; `forms` are the requests for tokens."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=lambda: {"alg": "ES256", "kid": "one"})
    signing: Any = None
    published: list[Any] = field(default_factory=list)
    asked: dict[str, list[str]] = field(default_factory=dict)
    forms: list[dict[str, list[str]]] = field(default_factory=list)
    key_requests: int = 0
    clock: Any = time.time

    def log_in(self, url: str) -> dict[str, str]:
        """What the browser brings back from the login address."""
        self.asked = parse_qs(urlsplit(url).query)
        return {"code": "the-code", "state": self.asked["state"][0]}

    def answer(self, path: str, form: dict[str, list[str]]) -> Any:
        """The JSON at a path."""
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "id_token_signing_alg_values_supported": ["ES256", "HS256", "none"],
            }
        if path == "/keys":
            self.key_requests += 1
            return {"keys": [key.as_dict(private=False) for key in self.published]}
        self.forms.append(form)
        return self._token(form)

    def _token(self, form: dict[str, list[str]]) -> Any:
        from authlib.oauth2.rfc7636 import create_s256_code_challenge
        from joserfc import jwt

        if create_s256_code_challenge(form["code_verifier"][0]) != self.asked["code_challenge"][0]:
            return {"error": "invalid_grant"}
        now = int(self.clock())
        usual = {
            "iss": self.url,
            "aud": "fleet",
            "sub": "42",
            "iat": now,
            "exp": now + 300,
            "nonce": self.asked["nonce"][0],
            "preferred_username": "grace",
            "groups": ["staff", "fleet-operators"],
        }
        claims = {name: value for name, value in {**usual, **self.claims}.items() if value is not None}
        algorithms = [self.header["alg"]]
        token = jwt.encode(self.header, claims, self.signing, algorithms=algorithms)
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": token}


@contextmanager
def running_provider() -> Iterator[FakeProvider]:
    """A provider on loopback with one key."""
    from joserfc.jwk import ECKey

    provider = FakeProvider()
    provider.signing = ECKey.generate_key("P-256", {"kid": "one"})
    provider.published = [provider.signing]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/authorize"):
                back = provider.log_in(self.path)
                self.send_response(302)
                self.send_header("Location", f"{provider.asked['redirect_uri'][0]}?{urlencode(back)}")
                self.end_headers()
                return
            self._answer({})

        def do_POST(self) -> None:
            self._answer(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))

        def _answer(self, form: dict[str, list[str]]) -> None:
            body = json.dumps(provider.answer(urlsplit(self.path).path, form)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        provider.url = f"http://127.0.0.1:{port}"
        yield provider
