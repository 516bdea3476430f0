"""Logins under way at the OpenID provider: finished once, in time, by the browser that began them."""

import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass

MAX_PENDING = 1_000
LONGEST_S = 600.0


@dataclass(frozen=True)
class PendingLogin:
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
