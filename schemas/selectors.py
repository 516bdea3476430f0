"""Selectors such as `site=barn,role in (camera,scale)`, which choose devices by their labels.

The syntax is that of Kubernetes label selectors; a comma means "and". The keys `device`, `federation` and
`site` need no label; a label `site` replaces the built-in one. The types of labels in messages are in
`base`; this module imports no pydantic, so that commands start quickly.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from schemas.errors import ConfigError

KEY_PATTERN = r"^[a-z][a-z0-9-]{0,31}$"
VALUE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
MAX_LABELS = 16
_KEY, _VALUE = re.compile(KEY_PATTERN), re.compile(VALUE_PATTERN)

Operator = Literal["in", "notin", "exists", "absent"]

_TERM = re.compile(
    r"(?P<not>!\s*)?(?P<key>[A-Za-z][A-Za-z0-9-]*)"
    r"(?:\s*(?P<sign>==|!=|=)\s*(?P<value>[^\s,()=!]+)"
    r"|\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?\s*\Z"
)
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class Requirement:
    """One condition of a selector on the label `key`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the condition; `notin` holds where the label is missing."""
        match self.operator:
            case "in":
                return labels.get(self.key) in self.values
            case "notin":
                return labels.get(self.key) not in self.values
            case "exists":
                return self.key in labels
            case "absent":
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "absent":
                return f"!{self.key}"
            case _ if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'in' else '!='}{self.values[0]}"
            case _:
                return f"{self.key} {self.operator} ({','.join(self.values)})"


@dataclass(frozen=True)
class Where:
    """A selector: a device is chosen when its labels meet every requirement."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __and__(self, other: "Where") -> "Where":
        return Where((*self.requirements, *other.requirements))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERY = Where()  # the selector that chooses every device


def parse_where(text: str) -> Where:
    """Parse a selector; an empty text chooses every device. Raises `ConfigError`."""
    if not text.strip():
        return EVERY
    return Where(tuple(_requirement(term.strip(), text) for term in _COMMA.split(text)))


def _requirement(term: str, text: str) -> Requirement:
    found = _TERM.match(term)
    if found is None or (found["not"] and (found["sign"] or found["word"])):
        raise ConfigError(
            f"'{term}' is not a condition on a label",
            key=f"'{text}'" if text.strip() != term else "",
            remedy="write site=barn, role!=camera, site in (barn,field), gpu or !gpu, with commas "
            "between them",
        )
    key = checked_key(found["key"])
    if found["sign"]:
        operator: Operator = "notin" if found["sign"] == "!=" else "in"
        return Requirement(key, operator, (checked_value(found["value"]),))
    if found["word"]:
        values = tuple(checked_value(value.strip()) for value in found["values"].split(","))
        return Requirement(key, "in" if found["word"] == "in" else "notin", values)
    return Requirement(key, "absent" if found["not"] else "exists")


def checked_key(key: str) -> str:
    """The key of a label; raises `ConfigError` if it is not valid."""
    if _KEY.fullmatch(key) is None:
        raise ConfigError(
            f"label '{key}': a key is 1 to 32 lower-case letters, digits and dashes, with a letter first"
        )
    return key


def checked_value(value: str) -> str:
    """The value of a label; raises `ConfigError` if it is not valid."""
    if _VALUE.fullmatch(value) is None:
        raise ConfigError(
            f"label value '{value}': 1 to 63 letters, digits, dots, dashes, underscores, with a letter or "
            "digit first"
        )
    return value


def parse_label(text: str) -> tuple[str, str]:
    """The key and value of `KEY=VALUE`; raises `ConfigError`."""
    key, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"'{text}': a label is KEY=VALUE, such as site=barn")
    return checked_key(key.strip()), checked_value(value.strip())


def selectable(
    labels: Mapping[str, str], *, device: str, federation: str = "", site: str = ""
) -> dict[str, str]:
    """The labels that a selector sees: a device's own, and the built-in ones."""
    built_in = {"device": device, **({"federation": federation} if federation else {})}
    return {**({"site": site} if site else {}), **labels, **built_in}
