"""people.sqlite: users, sessions, API tokens and failed logins; usable from any thread."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_server.fleet.people.lockout import Failures, LockoutRules, wait_s, with_failure
from edge_server.fleet.people.values import ApiToken, Role, Session, SessionLengths, User
from edge_server.storage.sqlite_file import SqliteFile

MIGRATIONS = (
    """
CREATE TABLE users (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, made_at REAL NOT NULL, password_hash TEXT,
    subject TEXT UNIQUE);
CREATE TABLE sessions (
    digest BLOB PRIMARY KEY, user TEXT NOT NULL, made_at REAL NOT NULL, seen_at REAL NOT NULL);
CREATE INDEX sessions_of_users ON sessions(user);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, role TEXT NOT NULL, selector TEXT NOT NULL,
    made_by TEXT NOT NULL, made_at REAL NOT NULL, ends_at REAL NOT NULL, used_at REAL);
CREATE TABLE failures (
    kind TEXT NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, last_at REAL NOT NULL,
    PRIMARY KEY (kind, name))
""",
)
MAX_FAILURES = 10_000
"""Names and addresses with failed logins that are remembered; the oldest are forgotten first."""
FORGET_OLDEST = """
DELETE FROM failures WHERE rowid IN
    (SELECT rowid FROM failures ORDER BY last_at DESC, count LIMIT -1 OFFSET ?)
"""
_USER = "name, role, made_at, password_hash, subject"
_TOKEN = "name, role, selector, made_by, made_at, ends_at, used_at"


class People:
    """The store; every method is one transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SqliteFile(path, MIGRATIONS)

    def __enter__(self) -> "People":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    # --- users ---
    def users(self) -> list[User]:
        return [_user(row) for row in self._file.rows(f"SELECT {_USER} FROM users ORDER BY name")]

    def user(self, name: str) -> User | None:
        rows = self._file.rows(f"SELECT {_USER} FROM users WHERE name = ?", name)
        return _user(rows[0]) if rows else None

    def user_of_subject(self, subject: str) -> User | None:
        rows = self._file.rows(f"SELECT {_USER} FROM users WHERE subject = ?", subject)
        return _user(rows[0]) if rows else None

    def add_user(self, user: User) -> bool:
        """Add a user; False if the name or the subject is taken."""
        values = (user.name, user.role, user.made_at, user.password_hash, user.subject)
        return self._file.change(f"INSERT OR IGNORE INTO users ({_USER}) VALUES (?, ?, ?, ?, ?)", *values)

    def remove_user(self, name: str) -> bool:
        """Remove a user and the user's sessions; False if there is none."""
        with self._file.writing() as connection:
            connection.execute("DELETE FROM sessions WHERE user = ?", (name,))
            return connection.execute("DELETE FROM users WHERE name = ?", (name,)).rowcount > 0

    def set_role(self, name: str, role: Role) -> bool:
        """Change a role, also of open sessions; False if there is no such user."""
        return self._file.change("UPDATE users SET role = ? WHERE name = ?", role, name)

    def set_password(self, name: str, password_hash: str, *, keep: bytes | None = None) -> bool:
        """Change a local password and end the user's sessions, except the one with the digest `keep`."""
        with self._file.writing() as connection:
            changed = connection.execute(
                "UPDATE users SET password_hash = ? WHERE name = ? AND subject IS NULL", (password_hash, name)
            )
            ended = "DELETE FROM sessions WHERE user = ? AND digest IS NOT ?"
            connection.execute(ended, (name, keep))
            return changed.rowcount > 0

    def set_rehashed(self, name: str, before: str, after: str) -> None:
        """Store the same password with stronger parameters; sessions go on."""
        self._file.change(
            "UPDATE users SET password_hash = ? WHERE name = ? AND password_hash = ?", after, name, before
        )

    # --- sessions ---
    def add_session(self, digest: bytes, session: Session, lengths: SessionLengths) -> None:
        """Begin a session, and forget the ended ones."""
        with self._file.writing() as connection:
            connection.execute(
                "DELETE FROM sessions WHERE seen_at <= ? OR made_at <= ?",
                (session.made_at - lengths.idle_s, session.made_at - lengths.longest_s),
            )
            connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                (digest, session.user, session.made_at, session.seen_at),
            )

    def session(self, digest: bytes) -> tuple[Session, User] | None:
        rows = self._file.rows(
            "SELECT user, sessions.made_at, seen_at, name, role, users.made_at, password_hash, subject "
            "FROM sessions JOIN users ON user = name WHERE digest = ?",
            digest,
        )
        return (Session(*rows[0][:3]), _user(rows[0][3:])) if rows else None

    def touch_session(self, digest: bytes, now: float) -> None:
        self._file.change("UPDATE sessions SET seen_at = ? WHERE digest = ?", now, digest)

    def end_session(self, digest: bytes) -> bool:
        return self._file.change("DELETE FROM sessions WHERE digest = ?", digest)

    # --- tokens ---
    def tokens(self) -> list[ApiToken]:
        """Every token, by name, without its secret."""
        return [_token(row) for row in self._file.rows(f"SELECT {_TOKEN} FROM tokens ORDER BY name")]

    def token(self, digest: bytes) -> ApiToken | None:
        rows = self._file.rows(f"SELECT {_TOKEN} FROM tokens WHERE digest = ?", digest)
        return _token(rows[0]) if rows else None

    def add_token(self, digest: bytes, token: ApiToken) -> bool:
        """Add a token; False if the name is taken."""
        values = (token.name, token.role, token.where, token.made_by, token.made_at, token.ends_at)
        return self._file.change(
            f"INSERT OR IGNORE INTO tokens (digest, {_TOKEN}) VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
            digest,
            *values,
        )

    def remove_token(self, name: str) -> bool:
        """Remove a token; False if there is none."""
        return self._file.change("DELETE FROM tokens WHERE name = ?", name)

    def use_token(self, name: str, now: float) -> None:
        self._file.change("UPDATE tokens SET used_at = ? WHERE name = ?", now, name)

    # --- failed logins ---
    def failures(self, kind: str, name: str) -> Failures:
        with self._file.reading() as connection:
            return _failures(connection, kind, name)

    def begin_attempt(self, limits: Sequence[tuple[str, str, LockoutRules]], now: float) -> float:
        """Count a failure of each kind and name in advance, unless one must wait; returns those seconds.

        Both happen in one transaction: logins at the same time cannot be more than the rules allow.
        """
        with self._file.writing() as connection:
            found = [_failures(connection, kind, name) for kind, name, _ in limits]
            waits = [wait_s(known, rules, now) for known, (_, _, rules) in zip(found, limits, strict=True)]
            if max(waits, default=0.0) > 0:
                return max(waits)
            for known, (kind, name, _) in zip(found, limits, strict=True):
                row = (kind, name, with_failure(known, now).count, now)
                connection.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", row)
            connection.execute(FORGET_OLDEST, (MAX_FAILURES,))
        return 0.0

    def uncount_failure(self, kind: str, name: str) -> None:
        """Take back one failure: the login that was counted in advance has succeeded."""
        self._file.change(
            "UPDATE failures SET count = max(0, count - 1) WHERE kind = ? AND name = ?", kind, name
        )

    def forget_failures(self, kind: str, name: str) -> bool:
        """Let a user or an address try again at once."""
        return self._file.change("DELETE FROM failures WHERE kind = ? AND name = ?", kind, name)


def _failures(connection: sqlite3.Connection, kind: str, name: str) -> Failures:
    query = "SELECT count, last_at FROM failures WHERE kind = ? AND name = ?"
    row = connection.execute(query, (kind, name)).fetchone()
    return Failures(*row) if row else Failures()


def _user(row: Any) -> User:
    name, role, *rest = row
    return User(name, Role(role), *rest)


def _token(row: Any) -> ApiToken:
    name, role, *rest = row
    return ApiToken(name, Role(role), *rest)
