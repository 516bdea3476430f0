"""Logging in with a local password, and who asks with a session or a token."""

from dataclasses import dataclass

from edge_server.fleet.people.lockout import ADDRESS_RULES, USER_RULES
from edge_server.fleet.people.openid import KnownIdentity
from edge_server.fleet.people.passwords import (
    digest_of,
    hash_password,
    is_password,
    needs_rehash,
    new_session_id,
)
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Actor, Session, SessionLengths, User, token_is_alive

SEEN_EVERY_S = 60.0  # The last use of a session or token is written at most this often
USER, ADDRESS = "user", "address"


@dataclass(frozen=True)
class LoginRefused:
    """Why somebody is not let in; `wait_s` is set while too many logins have failed."""

    why: str
    wait_s: float = 0.0


def log_in(
    people: People, name: str, password: str, *, address: str, lengths: SessionLengths, now: float
) -> str | LoginRefused:
    """The id of a new session, or why there is none.

    A failure is counted before the password is checked, so that logins at the same time cannot be more
    than the rules allow.
    """
    wait = people.begin_attempt([(USER, name, USER_RULES), (ADDRESS, address, ADDRESS_RULES)], now)
    if wait > 0:
        return LoginRefused("too many failed logins", wait)
    user = people.user(name)
    if not is_password(password, user.password_hash if user else None) or user is None:
        return LoginRefused("user or password is wrong")
    people.forget_failures(USER, name)
    people.uncount_failure(ADDRESS, address)
    _strengthen(people, user, password)
    return begin_session(people, user, lengths=lengths, now=now)


def log_in_known(
    people: People, identity: KnownIdentity, *, lengths: SessionLengths, now: float
) -> str | LoginRefused:
    """The id of a new session of a user of the OpenID provider, whose role is that of the ID token."""
    user = people.user_of_subject(identity.subject)
    if user is None:
        user = User(identity.name, identity.role, now, subject=identity.subject)
        if not people.add_user(user):
            return LoginRefused(
                f"there is another user '{identity.name}'; an admin removes it with "
                f"`edge-server users remove {identity.name}`"
            )
    elif user.role != identity.role:
        people.set_role(user.name, identity.role)
    return begin_session(people, user, lengths=lengths, now=now)


def begin_session(people: People, user: User, *, lengths: SessionLengths, now: float) -> str:
    """The id of a new session; only its digest is stored."""
    session_id = new_session_id()
    people.add_session(digest_of(session_id), Session(user.name, now, now), lengths)
    return session_id


def actor_of_session(people: People, session_id: str, lengths: SessionLengths, now: float) -> Actor | None:
    """Who has this session; None if it has ended."""
    digest = digest_of(session_id)
    found = people.session(digest)
    if found is None:
        return None
    session, user = found
    if not lengths.is_alive(session, now):
        people.end_session(digest)
        return None
    if now - session.seen_at >= min(SEEN_EVERY_S, lengths.idle_s / 4):
        people.touch_session(digest, now)
    return Actor(f"user:{user.name}", user.role)


def actor_of_token(people: People, secret: str, now: float) -> Actor | None:
    """Who has this token; None if it is unknown or has ended."""
    token = people.token(digest_of(secret))
    if token is None or not token_is_alive(token, now):
        return None
    if token.used_at is None or now - token.used_at >= SEEN_EVERY_S:
        people.use_token(token.name, now)
    return Actor(f"token:{token.name}", token.role, token.where)


def _strengthen(people: People, user: User, password: str) -> None:
    """Hash the password again if the parameters have become stronger."""
    if user.password_hash is not None and needs_rehash(user.password_hash):
        people.set_rehashed(user.name, user.password_hash, hash_password(password))
