"""HTTP requests to an OpenID provider with the standard library: bounded, without redirects."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from edge_server.fleet.settings.page import is_safe_address
from schemas.errors import EdgeError

TIMEOUT_S = 10.0
MOST_BYTES = 1_000_000


class ClientAuthentication(Protocol):
    """Adds the client's identity to a request."""

    def prepare(
        self, method: str, uri: str, headers: dict[str, str], body: str
    ) -> tuple[str, dict[str, str], str]:
        """The request with the client's identity."""
        ...


@dataclass(frozen=True)
class Answer:
    """An answer in the form that Authlib reads."""

    status_code: int
    body: bytes

    def json(self) -> Any:
        """The answer's JSON; raises `ValueError`."""
        return json.loads(self.body)

    def raise_for_status(self) -> None:
        """Raise `EdgeError` for an error."""
        if self.status_code >= 400:
            raise EdgeError(f"the OpenID provider answered {self.status_code}")


class ProviderHttp:
    """The session that Authlib's client sends with."""

    def __init__(self) -> None:
        self._opener = urllib.request.build_opener(_NoRedirects)

    def get(self, url: str) -> Any:
        """The JSON at an address."""
        answer = self._send(urllib.request.Request(url, headers={"Accept": "application/json"}))
        answer.raise_for_status()
        return answer.json()

    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str], auth: ClientAuthentication
    ) -> Answer:
        """Send a form."""
        url, sent, body = auth.prepare("POST", url, dict(headers), urlencode(data))
        return self._send(urllib.request.Request(url, data=body.encode(), headers=sent, method="POST"))

    def _send(self, request: urllib.request.Request) -> Answer:
        if not is_safe_address(request.full_url):
            raise EdgeError(f"the OpenID provider names {request.full_url}, which is not https://...")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return Answer(answer.status, answer.read(MOST_BYTES))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(MOST_BYTES))
        except OSError as error:
            raise EdgeError(f"the OpenID provider cannot be reached: {error}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect: the code and the client's secret go to the named address only."""
