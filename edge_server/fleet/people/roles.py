"""Roles, and the least role of every action of the page, the API and the commands."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

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
