"""An action as data: who may do it, what it asks for, the command that does the same, and what does it."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from edge_server.fleet.diagnostics.remote_part import Diagnostics
from edge_server.fleet.people import store, values
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError

LONGEST = 4096  # Most characters of an argument
Args = Mapping[str, str]
FieldKind = Literal["given", "text", "secret", "role"]
_PLACEHOLDER = re.compile(r"\{([a-z_]+)(\.\.\.)?\}")


@dataclass(frozen=True)
class Field:
    """An argument: `given` by the row of a list that the button is in, or asked for."""

    name: str
    label: str = ""
    kind: FieldKind = "given"
    optional: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Change:
    """What was changed, for the audit log, in words, and a secret that is shown once.

    What the function itself has `recorded` is in the audit log already.
    """

    target: str
    before: Any = None
    after: Any = None
    said: str = "done"
    secret: str | None = field(default=None, repr=False)
    recorded: bool = False


@dataclass(frozen=True)
class Desk:
    """What actions work on: the service's folder, settings and people; devices are asked by a running one."""

    folder: ServiceFolder
    settings: ServiceSettings
    people: store.People
    diagnostics: Diagnostics | None = None

    def __enter__(self) -> "Desk":
        return self

    def __exit__(self, *_: object) -> None:
        self.people.close()


@dataclass(frozen=True)
class Action:
    """One action; `words` are those of the command after `edge-server`.

    `{field}` in a word stands for an argument, `{field...}` for several words; an option with an empty
    argument is left out. A token with a label selector may do the actions `on_device` to its devices, and no
    others. `grave` actions are marked on the page.
    """

    name: str
    title: str
    about: str
    words: str
    fields: tuple[Field, ...]
    execute: Callable[[Desk, Args, values.Actor, float], Change]
    on_device: bool = False
    grave: bool = False
    recorded: str = ""  # The word of the audit log, if it is not the name

    def check_arguments(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The arguments, complete; raises `ConfigError`."""
        known = {wanted.name for wanted in self.fields}
        if unknown := sorted(given.keys() - known):
            raise ConfigError(f"{self.name}: there is no argument '{unknown[0]}'")
        args = {wanted.name: given.get(wanted.name, "") for wanted in self.fields}
        for wanted in self.fields:
            _check(self.name, wanted, args[wanted.name])
        return args

    def words_in(self, folder: ServiceFolder) -> list[str]:
        """The command with its program and the service's folder, which stands before a `--`."""
        words = self.words.split()
        end = words.index("--") if "--" in words else len(words)
        return ["edge-server", *words[:end], "--service", str(folder.path), *words[end:]]

    def command(self, args: Args, folder: ServiceFolder) -> str:
        """The command that does the same, as typed in a shell; it asks for secrets at the terminal."""
        return shlex.join(fill_words(self.words_in(folder), args))


def _check(action: str, wanted: Field, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{action}: '{wanted.name}' must be a text")
    if not value.strip() and not wanted.optional:
        raise ConfigError(f"{action}: '{wanted.name}' is missing")
    if len(value) > LONGEST or (wanted.kind != "secret" and any(ord(letter) < 32 for letter in value)):
        raise ConfigError(f"{action}: '{wanted.name}' is too long, or has control characters")


def fill_words(words: Sequence[str], args: Args) -> list[str]:
    """Words with their arguments; an option whose argument is empty is left out with it."""
    filled: list[str] = []
    for word in words:
        whole = _PLACEHOLDER.fullmatch(word)
        if whole and whole[2]:
            filled += args.get(whole[1], "").split()
        elif whole and not args.get(whole[1]) and filled and filled[-1].startswith("--"):
            filled.pop()
        else:
            filled.append(_PLACEHOLDER.sub(lambda found: args.get(found[1], ""), word))
    return filled
