"""One root error and three kinds by who is to blame: the peer, the user, this program.

Above them the codes of refusals; below them what their texts need: similar names, nouns with counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

MAX_SECONDS = 1e9  # the longest duration, some 31 years: a time that far from now is still a date


MAX_QUOTED = 200  # characters of the user's data in an error


class Reason(StrEnum):
    """Why something was refused: stable codes for programs."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    UNKNOWN_KIND = "unknown-kind"
    UNSUPPORTED_PROTOCOL = "unsupported-protocol"
    WRONG_FEDERATION = "wrong-federation"
    WRONG_SENDER = "wrong-sender"
    NOT_SELECTED = "not-selected"
    STALE_ROUND = "stale-round"
    ALREADY_COUNTED = "already-counted"
    DIGEST_MISMATCH = "digest-mismatch"
    WRONG_SHAPE = "wrong-shape"
    NOT_FINITE = "not-finite"
    OUT_OF_BOUNDS = "out-of-bounds"
    EXAGGERATED = "exaggerated"
    REPLAYED = "replayed"
    HARMFUL = "harmful"
    QUARANTINED = "quarantined"
    INCOMPATIBLE = "incompatible"
    UNKNOWN_BLOB = "unknown-blob"
    TASK_FAILED = "task-failed"
    NO_MEMORY = "no-memory"
    BAD_GRAPH = "bad-graph"
    UNTRUSTED = "untrusted"
    NO_SPACE = "no-space"
    NOT_ENTITLED = "not-entitled"
    TOO_MANY_REQUESTS = "too-many-requests"
    INELIGIBLE = "ineligible"
    SAME_NAME = "same-name"
    SUPERSEDED = "superseded"
    WRONG_SUM = "wrong-sum"


class EdgeError(Exception):
    """Root of all errors that this project raises deliberately."""


class PeerError(EdgeError):
    """A peer sent something invalid: log its id, count the error, answer it, continue.

    `reason` is a value of `Reason` and is sent back to the peer.
    """

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class ConfigError(EdgeError):
    """The user's configuration, command line or data is wrong: the command ends with exit code 2.

    Its text, which command line and page show, is `place` (a file), `key`, `reason` and `remedy`. `problems`
    are those of a file with several, each on a line of the text.

    `quoted` is what stands in the user's data there. Only a command line prints it, on the user's terminal
    (`in_full`). The text of the error, which logs and other machines get, says place, column and kind.
    """

    def __init__(
        self, reason: str, *, place: object = "", key: str = "", remedy: str = "", quoted: object = ""
    ) -> None:
        super().__init__(": ".join(filter(None, (str(place), key, reason, remedy))))
        self.place, self.key, self.reason, self.remedy = str(place), key, reason, remedy
        self.quoted = str(quoted)[:MAX_QUOTED]
        self.problems: tuple[ConfigError, ...] = ()

    @classmethod
    def of(cls, problems: "Sequence[ConfigError]", place: object) -> "ConfigError":
        """One error of all problems of a place."""
        placed = [
            cls(one.reason, place=f"{place}: {one.place}".removesuffix(": "), key=one.key, remedy=one.remedy)
            for one in problems
        ]
        if len(placed) == 1:
            return placed[0]
        error = cls("\n".join(map(str, placed)))
        error.problems = tuple(placed)
        return error

    def fields(self) -> list[dict[str, str]]:
        """Place, key, reason and remedy of each problem, for programs."""
        names = ("place", "key", "reason", "remedy")
        return [{name: getattr(each, name) for name in names} for each in self.problems or (self,)]


def in_full(error: BaseException) -> str:
    """An error as its own user may read it: with what is quoted of the data, by it or by its cause."""
    cause: BaseException | None = error
    while cause is not None and not getattr(cause, "quoted", ""):
        cause = cause.__cause__
    return f"{error} (found: {cause.quoted})" if isinstance(cause, ConfigError) else str(error)


class InvariantError(EdgeError):
    """This program violated its own invariant: stop rather than continue with invalid state."""


def reason_of(problem: Mapping[str, Any]) -> str:
    """Why pydantic refuses a setting, as a user reads it: one of `ValidationError.errors()`."""
    if problem["type"] == "tuple_type" and isinstance(problem.get("input"), Mapping):
        return "must be a list: a table of it is written within two brackets, [[...]]"
    if problem["type"] == "tuple_type":
        return 'must be a list, as [0.5, 1] or ["a", "b"] (in a shell within single quotes)'
    text = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] in ("too_long", "too_short"):
        text = text.replace("Tuple", "List").replace(" after validation", "")
    return f"{text[0].lower()}{text[1:]}"


LIKE, ALIKE = 0.6, 0.75  # of a suggestion with the same first letter or the word in it, and of any other


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)`, or a list of the choices if none is similar."""
    every = sorted(choices)
    if match := near(word, every):
        return f" (did you mean '{match}'?)"
    return f" (known: {', '.join(every)})" if every else ""


def near(word: str, choices: Iterable[str]) -> str | None:
    """The choice most similar to `word`; None if none is similar enough."""
    # Imported here: only a mistyped word needs it.
    from difflib import SequenceMatcher

    best, most = None, 0.0
    for choice in sorted(choices):
        similarity = SequenceMatcher(None, choice, word).ratio()
        is_part = min(len(choice), len(word)) > 2 and (choice in word or word in choice)
        enough = LIKE if choice[:1] == word[:1] or is_part else ALIKE
        if similarity >= enough and similarity > most:
            best, most = choice, similarity
    return best or None


def format_count(count: int, thing: str) -> str:
    """A count with its noun: `1 round`, `2 rounds`, `0 boxes`, `2 classes`."""
    return f"{count} {in_number(count, thing)}"


def in_number(count: int, thing: str) -> str:
    """A noun as it stands behind a count: `round` behind 1, else `rounds`."""
    if count == 1:
        return thing
    return f"{thing}es" if thing.endswith(("s", "x", "ch")) else f"{thing}s"
