"""One root error and three kinds of blame: the peer's, the user's, our own."""

from __future__ import annotations

from collections.abc import Iterable


class EdgeError(Exception):
    """Root of every error that this project raises on purpose."""


class PeerError(EdgeError):
    """What someone else sent is wrong: log it with their id, count it, answer it, go on.

    `reason` is one of `schemas.values.Reason`'s values, so that it can travel back.
    """

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class ConfigError(EdgeError):
    """The user's configuration or command line is wrong: the command ends with exit code 2."""


class InvariantError(EdgeError):
    """This program broke its own rule: stop rather than go on with wrong state."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)`, or a list of the choices when none is near."""
    # Imported late: whoever makes no mistake has no use for it.
    import difflib

    known = sorted(choices)
    match = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if match:
        return f" (did you mean '{match[0]}'?)"
    return f" (known: {', '.join(known)})" if known else ""
