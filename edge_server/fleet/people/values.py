"""Frozen values of people.sqlite: users, sessions, API tokens, and who asks."""

from dataclasses import dataclass, field

from edge_server.fleet.people.roles import Role, may


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
