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


LIKE, ALIKE = 0.6, 0.75
"""Similarity that two words need with the same first letter, and without."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)`, or a list of the choices when none is near."""
    known = sorted(choices)
    match = near(word, known)
    if match is not None:
        return f" (did you mean '{match}'?)"
    return f" (known: {', '.join(known)})" if known else ""


def near(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` is most likely a slip of; None where no choice is near enough."""
    # Imported late: whoever makes no mistake has no use for it.
    from difflib import SequenceMatcher

    found: tuple[float, str] = (0.0, "")
    for choice in sorted(choices):
        likeness = SequenceMatcher(None, choice, word).ratio()
        enough = LIKE if choice[:1] == word[:1] or _contains(choice, word) else ALIKE
        if likeness >= enough and likeness > found[0]:
            found = likeness, choice
    return found[1] or None


def _contains(one: str, other: str) -> bool:
    return min(len(one), len(other)) > 2 and (one in other or other in one)
