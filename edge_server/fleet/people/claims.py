"""From the claims of an ID token to a user's name and role; pure."""

from collections.abc import Mapping
from typing import Any

from edge_server.fleet.people.values import Role, rank
from schemas.base import is_name


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
