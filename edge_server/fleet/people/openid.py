"""Logging in at an OpenID provider: authorization code with PKCE and nonce, ID token checked by its keys."""

import hmac
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from edge_server.fleet.people.values import Role, name_of_claims, role_of_claims
from edge_server.fleet.settings.page import OidcSettings, is_safe_address
from schemas.errors import ConfigError, EdgeError, PeerError

MAX_PENDING = 1_000
LONGEST_S = 600.0


@dataclass(frozen=True)
class PendingLogin:
    """Logins under way at the OpenID provider: finished once, in time, by the browser that began them."""

    nonce: str
    verifier: str
    began_at: float


class PendingLogins:
    """The pending logins of this process; the oldest make room for new ones."""

    def __init__(self, random: Callable[[], str]) -> None:
        self._random, self._lock = random, threading.Lock()
        self._kept: dict[str, tuple[str, PendingLogin]] = {}  # by state, with the browser's cookie

    def begin(self, now: float) -> tuple[str, str, PendingLogin]:
        """State, the value of the browser's cookie, and the new login."""
        state, browser = self._random(), self._random()
        pending = PendingLogin(self._random(), self._random(), now)
        with self._lock:
            self._forget(now)
            self._kept[state] = browser, pending
        return state, browser, pending

    def finish(self, state: str, browser: str, now: float) -> PendingLogin | None:
        """The login of that state; None if it is unknown, too old, or of another browser."""
        with self._lock:
            self._forget(now)
            kept = self._kept.pop(state, None)
        if kept is None or not hmac.compare_digest(kept[0].encode(), browser.encode()):
            return None
        return kept[1]

    def _forget(self, now: float) -> None:
        old = [state for state, (_, login) in self._kept.items() if now - login.began_at >= LONGEST_S]
        excess = list(self._kept)[: max(0, len(self._kept) - MAX_PENDING + 1)]
        for state in {*old, *excess}:
            del self._kept[state]


if TYPE_CHECKING:
    from authlib.oauth2 import ClientAuth
    from authlib.oauth2.client import OAuth2Client

# HTTP requests to an OpenID provider with the standard library: bounded, without redirects.

TIMEOUT_S = 10.0
MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class Answer:
    """An answer in the form that Authlib reads."""

    status_code: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            raise EdgeError(f"the OpenID provider answered {self.status_code}")


class ProviderHttp:
    def __init__(self) -> None:
        self._opener = urllib.request.build_opener(_NoRedirects)

    def get(self, url: str) -> Any:
        answer = self._send(urllib.request.Request(url, headers={"Accept": "application/json"}))
        answer.raise_for_status()
        return answer.json()

    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: "ClientAuth"
    ) -> Answer:
        url, sent, body = auth.prepare("POST", url, dict(headers), urlencode(data))
        return self._send(urllib.request.Request(url, data=body.encode(), headers=sent, method="POST"))

    def _send(self, request: urllib.request.Request) -> Answer:
        if not is_safe_address(request.full_url):
            raise EdgeError(f"the OpenID provider names {request.full_url}, which is not https://...")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return Answer(answer.status, answer.read(MAX_BYTES))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(MAX_BYTES))
        except OSError as error:
            why = getattr(error, "reason", error)
            raise EdgeError(f"the OpenID provider cannot be reached at {request.full_url}: {why}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect: the code and the client's secret go to the named address only."""


ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key of the provider; never one by a shared secret, never none."""
DISCOVERY = "/.well-known/openid-configuration"
LEEWAY_S = 60
FAILED_S = 10.0  # Seconds for which a provider that cannot be reached is not asked again
KEYS_AGAIN_S = 60.0  # The provider's keys are requested again for an unknown key at most this often


@dataclass(frozen=True)
class KnownIdentity:
    """What a checked ID token says: who at which issuer, under which name and with which role."""

    subject: str
    name: str
    role: Role


class OpenIdProvider:
    """The provider; its description and keys are read when they are first needed.

    Raises `ConfigError` for a client's secret that cannot be read.
    """

    def __init__(
        self,
        settings: OidcSettings,
        redirect_url: str,
        *,
        http: ProviderHttp | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._redirect_url, self._http = settings, redirect_url, http or ProviderHttp()
        self._clock, self._secret = clock, _secret(settings)
        self._failed_at, self._failure = float("-inf"), ""
        self._lock = threading.Lock()
        self._described: Mapping[str, Any] | None = None
        self._keys: Any = None
        self._keys_at = float("-inf")

    def login_url(self, state: str, pending: PendingLogin) -> str:
        endpoint = self._described_by("authorization_endpoint")
        url, _ = self._client().create_authorization_url(
            endpoint, state=state, code_verifier=pending.verifier, nonce=pending.nonce
        )
        return str(url)

    def identity(self, code: str, pending: PendingLogin, *, now: float) -> KnownIdentity:
        """Who has logged in; raises `PeerError` for an answer that is not right."""
        from authlib.oauth2 import OAuth2Error

        try:
            token = self._client().fetch_token(
                self._described_by("token_endpoint"), code=code, code_verifier=pending.verifier
            )
        except (OAuth2Error, ValueError) as error:
            raise PeerError(f"the OpenID provider refused the login: {error}") from error
        if not isinstance(token.get("id_token"), str):
            raise PeerError("the OpenID provider sent no ID token")
        return self._make_identity(self._claims(token, pending, now))

    def is_issuer(self, issuer: str | None) -> bool:
        """Whether an answer's `iss`, if it has one, names this provider (RFC 9207)."""
        return issuer is None or issuer == self._settings.issuer

    def _make_identity(self, claims: Mapping[str, Any]) -> KnownIdentity:
        settings = self._settings
        name = name_of_claims(claims, settings.name_claim)
        if name is None:
            raise PeerError(f"the ID token has no usable name in its claim '{settings.name_claim}'")
        roles = {value: Role(role) for value, role in settings.roles.items()}
        role = role_of_claims(claims, settings.role_claim, roles)
        if role is None:
            raise PeerError(
                f"'{name}' has no role here: no value of the claim '{settings.role_claim}' is in "
                "[page.oidc] roles"
            )
        return KnownIdentity(f"{settings.issuer} {claims['sub']}", name, role)

    def _claims(self, token: Mapping[str, Any], pending: PendingLogin, now: float) -> Mapping[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc.errors import JoseError

        settings = self._settings
        terms = {"iss": {"essential": True, "value": settings.issuer}, "aud": {"value": settings.client_id}}
        given = {
            "nonce": pending.nonce,
            "client_id": settings.client_id,
            "access_token": token.get("access_token"),
        }
        try:
            signed = self._decode_token(token["id_token"], now)
            claims = CodeIDToken(signed.claims, signed.header, terms, given)
            claims.validate(now=int(now), leeway=LEEWAY_S)
        except (JoseError, ValueError, TypeError) as error:
            raise PeerError(f"the ID token is not valid: {error}") from error
        return dict(claims)

    def _decode_token(self, text: str, now: float) -> Any:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError

        try:
            return jwt.decode(text, self._key_set(now, again=False), algorithms=self._algorithms())
        except InvalidKeyIdError:
            # The provider may have changed its keys.
            return jwt.decode(text, self._key_set(now, again=True), algorithms=self._algorithms())

    def _algorithms(self) -> list[str]:
        stated = self._description().get("id_token_signing_alg_values_supported") or ["RS256"]
        return [name for name in ALGORITHMS if name in stated]

    def _key_set(self, now: float, *, again: bool) -> Any:
        from joserfc.jwk import KeySet

        address = self._described_by("jwks_uri")
        with self._lock:
            if self._keys is None or (again and now - self._keys_at >= KEYS_AGAIN_S):
                self._keys, self._keys_at = KeySet.import_key_set(self._http.get(address)), now
            return self._keys

    def _described_by(self, key: str) -> str:
        value = self._description().get(key)
        if not isinstance(value, str):
            raise EdgeError(f"the OpenID provider's description has no {key}")
        return value

    def _description(self) -> Mapping[str, Any]:
        with self._lock:
            if self._described is None:
                if self._clock() - self._failed_at < FAILED_S:
                    raise EdgeError(self._failure)
                try:
                    self._described = self._read_description()
                except EdgeError as error:
                    # Remembered, so that visitors do not wait one after another.
                    self._failed_at, self._failure = self._clock(), str(error)
                    raise
            return self._described

    def _read_description(self) -> Mapping[str, Any]:
        issuer = self._settings.issuer
        try:
            read = self._http.get(issuer.rstrip("/") + DISCOVERY)
        except ValueError as error:
            raise EdgeError(f"{issuer}{DISCOVERY} is not JSON: {error}") from error
        if not isinstance(read, dict) or read.get("issuer") != issuer:
            raise EdgeError(f"{issuer}{DISCOVERY} names another issuer; correct [page.oidc] issuer")
        return read

    def _client(self) -> "OAuth2Client":
        from authlib.oauth2.client import OAuth2Client

        settings = self._settings
        return OAuth2Client(
            self._http,
            client_id=settings.client_id,
            client_secret=self._secret,
            scope=" ".join(settings.scopes),
            redirect_uri=self._redirect_url,
            code_challenge_method="S256",
            grant_type="authorization_code",
        )


def _secret(settings: OidcSettings) -> str | None:
    path = settings.client_secret_file
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", key=f"[page.oidc] client-secret-file {path}") from error
