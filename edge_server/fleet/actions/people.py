"""Actions on users and tokens."""

from edge_server.fleet.actions.action import Args, Change, Desk
from edge_server.fleet.people import lockout, login, passwords, values
from schemas.base import is_name
from schemas.errors import ConfigError, nearest
from schemas.selectors import parse_where

DAY_S = 86_400.0
MAX_DAYS = 3650.0
USUAL_DAYS = "90"


def add_user(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    name, role = _checked_name(args["user"]), _role(args["role"])
    if desk.people.user(name) is not None:
        raise ConfigError(
            f"there is a user '{name}' already", remedy="`edge-server users role` changes the role"
        )
    passwords.check_password_rules(name, args["password"])
    user = values.User(name, role, now, passwords.hash_password(args["password"]))
    if not desk.people.add_user(user):
        raise ConfigError(f"there is a user '{name}' already")
    return Change(name, after={"role": role}, said=f"{name} is a user with the role {role}")


def remove_user(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    user = _find_user(desk, args["user"])
    _refuse_oneself(actor, user, "remove")
    desk.people.remove_user(user.name)
    return Change(user.name, before={"role": user.role}, said=f"{user.name} is removed, and logged out")


def set_role(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    user, role = _find_user(desk, args["user"]), _role(args["role"])
    _refuse_oneself(actor, user, "change the role of")
    if user.subject is not None:
        raise ConfigError(
            f"'{user.name}' has the role that the OpenID provider states",
            remedy="change [page.oidc] roles, or there",
        )
    desk.people.set_role(user.name, role)
    return Change(user.name, {"role": user.role}, {"role": role}, f"{user.name} has the role {role}")


def set_password(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    user = _find_user(desk, args["user"])
    _set_password(desk, user, args["password"])
    return Change(user.name, said=f"{user.name} has a new password, and is logged out")


def set_own_password(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    """Set one's own password; the old one is asked for, as a session may have been left open."""
    kind, _, name = actor.who.partition(":")
    if kind != "user":
        raise ConfigError("a token has no password")
    user = _find_user(desk, name)
    wait = desk.people.begin_attempt([(login.USER, user.name, lockout.USER_RULES)], now)
    if wait > 0:
        raise ConfigError("too many wrong passwords", remedy=f"try again in {wait:.0f} s")
    if not passwords.is_password(args["old_password"], user.password_hash):
        raise ConfigError("the old password is wrong")
    _set_password(desk, user, args["password"])
    desk.people.forget_failures(login.USER, user.name)
    return Change(user.name, said="your password is changed: log in with it")


def unlock_user(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    user = _find_user(desk, args["user"])
    count = desk.people.failures(login.USER, user.name).count
    desk.people.forget_failures(login.USER, user.name)
    return Change(user.name, {"failed": count}, {"failed": 0}, f"{user.name} may log in again")


def make_token(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    name, role, where = _checked_name(args["token"]), _role(args["role"]), str(parse_where(args["where"]))
    ends_at = now + _days(args["days"] or USUAL_DAYS) * DAY_S
    secret = passwords.new_api_token()
    if not desk.people.add_token(
        passwords.digest_of(secret), values.ApiToken(name, role, where, actor.who, now, ends_at)
    ):
        raise ConfigError(f"there is a token '{name}' already", remedy="name another, or revoke it first")
    after = {"role": role, "where": where, "ends_at": ends_at}
    return Change(
        name, after=after, said="this is shown once: store it where the program reads it", secret=secret
    )


def revoke_token(desk: Desk, args: Args, actor: values.Actor, now: float) -> Change:
    tokens = {token.name: token for token in desk.people.tokens()}
    token = tokens.get(args["token"])
    if token is None or not desk.people.remove_token(token.name):
        raise ConfigError(f"there is no token '{args['token']}'{nearest(args['token'], tokens)}")
    before = {"role": token.role, "where": token.where, "ends_at": token.ends_at}
    return Change(token.name, before=before, said=f"the token {token.name} is revoked")


def _set_password(desk: Desk, user: values.User, password: str) -> None:
    if user.subject is not None:
        raise ConfigError(f"'{user.name}' logs in at the OpenID provider and has no password here")
    passwords.check_password_rules(user.name, password)
    desk.people.set_password(user.name, passwords.hash_password(password))


def _find_user(desk: Desk, name: str) -> values.User:
    user = desk.people.user(name)
    if user is None:
        names = [known.name for known in desk.people.users()]
        raise ConfigError(f"there is no user '{name}'{nearest(name, names)}")
    return user


def _refuse_oneself(actor: values.Actor, user: values.User, what: str) -> None:
    """An admin of the page cannot lock everybody out; the command can, where the folder is at hand."""
    if actor.who == f"user:{user.name}":
        raise ConfigError(f"you cannot {what} yourself", remedy="another admin can, or `edge-server users`")


def _checked_name(name: str) -> str:
    if not is_name(name):
        raise ConfigError(f"'{name}': 1 to 64 letters, digits, dots, dashes, underscores")
    return name


def _role(text: str) -> values.Role:
    if text not in set(values.Role):
        raise ConfigError(f"'{text}' is not a role{nearest(text, values.Role)}")
    return values.Role(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= MAX_DAYS:
        raise ConfigError(f"'{text}' is not a number of days, above 0 and at most {MAX_DAYS:.0f}")
    return days
