"""Frozen values of people.sqlite: users, sessions, API tokens, and who asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from schemas.base import is_name
from schemas.errors import EdgeError, InvariantError


class NotAllowed(EdgeError):
    """Somebody may not do what was asked for."""


class Role(StrEnum):
    """A viewer reads, an operator runs the fleet, an admin decides who is let in."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


_ORDER = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)

MIN_ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "devices.read": Role.VIEWER,
        "jobs.read": Role.VIEWER,
        "rollouts.read": Role.VIEWER,
        "alerts.read": Role.VIEWER,
        "own.password": Role.VIEWER,
        "audit.read": Role.OPERATOR,
        "devices.label": Role.OPERATOR,
        "devices.note": Role.OPERATOR,
        "devices.doctor": Role.OPERATOR,
        "devices.logs": Role.OPERATOR,
        "joblog.read": Role.OPERATOR,
        "jobs.add": Role.OPERATOR,
        "jobs.start": Role.OPERATOR,
        "jobs.pause": Role.OPERATOR,
        "jobs.stop": Role.OPERATOR,
        "rollouts.start": Role.OPERATOR,
        "rollouts.stop": Role.OPERATOR,
        "rollouts.withdraw": Role.OPERATOR,
        "alerts.acknowledge": Role.OPERATOR,
        "alerts.silence": Role.OPERATOR,
        "alerts.unsilence": Role.OPERATOR,
        "devices.revoke": Role.ADMIN,
        "users.read": Role.ADMIN,
        "users.add": Role.ADMIN,
        "users.remove": Role.ADMIN,
        "users.role": Role.ADMIN,
        "users.password": Role.ADMIN,
        "users.unlock": Role.ADMIN,
        "tokens.make": Role.ADMIN,
        "tokens.revoke": Role.ADMIN,
    }
)
"""Every action and the least role that may do it; what is not listed, nobody may do."""


def may(role: Role, action: str) -> bool:
    least = MIN_ROLES.get(action)
    return least is not None and rank(role) >= rank(least)


def rank(role: Role) -> int:
    return _ORDER.index(role)


def least_role(action: str) -> Role:
    if action not in MIN_ROLES:
        raise InvariantError(f"the action '{action}' has no least role in LEAST")
    return MIN_ROLES[action]


def check_role(role: Role, action: str) -> None:
    least = least_role(action)
    if rank(role) < rank(least):
        needed = least if least is Role.ADMIN else f"{least} or admin"
        raise NotAllowed(f"the role {role} may not do this ({action}): it needs {needed}")


@dataclass(frozen=True)
class User:
    """A user; `subject` is the identity at the OpenID provider, of a user without a local password."""

    name: str
    role: Role
    made_at: float
    password_hash: str | None = field(default=None, repr=False)
    subject: str | None = None

    @property
    def kind(self) -> str:
        return "oidc" if self.subject is not None else "local"


@dataclass(frozen=True)
class Session:
    """A browser that has logged in."""

    user: str
    made_at: float
    seen_at: float


@dataclass(frozen=True)
class ApiToken:
    """A program's token: its role, the label selector of its devices (empty: all), and its end."""

    name: str
    role: Role
    where: str
    made_by: str
    made_at: float
    ends_at: float
    used_at: float | None = None


@dataclass(frozen=True)
class SessionLengths:
    """Seconds after which a session ends: without a request, and at the latest."""

    idle_s: float = 3600.0
    longest_s: float = 43_200.0

    def is_alive(self, session: Session, now: float) -> bool:
        """Whether the session still counts; one from the future (a clock that was set back) does not."""
        idle, age = now - session.seen_at, now - session.made_at
        return -self.idle_s <= idle < self.idle_s and -self.idle_s <= age < self.longest_s


@dataclass(frozen=True)
class Actor:
    """Who asks: `who` as in the audit log, the role, a token's label selector (empty: every device)."""

    who: str
    role: Role
    where: str = ""

    def may(self, action: str) -> bool:
        return may(self.role, action)


def token_is_alive(token: ApiToken, now: float) -> bool:
    return now < token.ends_at


def role_of_claims(claims: Mapping[str, Any], claim: str, roles: Mapping[str, Role]) -> Role | None:
    """The highest role that a value of `claim` is mapped to; None without one.

    `claim` may name a nested claim: `realm_access.roles`. Its value is a text or a list of texts.
    """
    value: Any = claims
    for part in claim.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    values = value if isinstance(value, (list, tuple)) else [value]
    found = [roles[text] for text in values if isinstance(text, str) and text in roles]
    return max(found, key=rank, default=None)


def name_of_claims(claims: Mapping[str, Any], claim: str) -> str | None:
    """The user's name; the part before `@` of an address is not enough, as domains differ."""
    value = claims.get(claim)
    if not isinstance(value, str):
        return None
    name = value.replace("@", ".at.")
    return name if is_name(name) else None
