"""`edge-server users`: who may use the page and the API of a service."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, Subparsers, add_verbs
from edge_client.system.plain_text import print_json, print_rows, say
from edge_server.cli.commands.fleet.serve import SERVICE
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.fleet.actions.action import Change, Desk

EXAMPLES = """\
examples:
  edge-server users add ada --role admin           the password is asked for
  openssl rand -base64 15 | tee ada.txt | edge-server users add ada --role admin
  edge-server users role ada operator
  edge-server users list

A viewer reads, an operator changes labels, jobs and rollouts, an admin also revokes devices and decides who
is let in. Passwords are read from the terminal, or from standard input; they are stored as argon2id hashes.
Every change is in the audit log (`edge-server audit`).
"""
ROLES = ("viewer", "operator", "admin")
NAME = Option("name", metavar="NAME")
ROLE = Option("--role", help="(default: %(default)s)", default="viewer", choices=ROLES)


def register(subparsers: Subparsers) -> None:
    about = "who may use the service's page and API"
    verbs = add_verbs(subparsers, "users", SERVICE, help=about, examples=EXAMPLES)
    new_role = Option("role", help=", ".join(ROLES), metavar="ROLE")
    verbs.add("list", _list, help="the users and their roles")
    verbs.add("add", _change, NAME, ROLE, help="add a user with a password")
    verbs.add("role", _change, NAME, new_role, help="change a role, also of open sessions")
    verbs.add("password", _change, NAME, help="set a new password; ends the sessions")
    verbs.add("unlock", _change, NAME, help="let a user try again after failed logins")
    verbs.add("remove", _change, NAME, help="remove a user; ends the sessions")


def _list(args: argparse.Namespace) -> int:
    with open_desk(args.service) as desk:
        users = desk.people.users()
    document = {"users": [{"user": user.name, "role": user.role, "kind": user.kind} for user in users]}
    rows = [(user.name, user.role, user.kind, day_text(user.made_at)) for user in users]
    return print_rows(args, document, ("user", "role", "login", "since"), rows)


def _change(args: argparse.Namespace) -> int:
    """Add, change or remove a user, as the verb says."""
    # What the extra brings is missed before a password is asked for.
    from edge_server.fleet.actions import table  # noqa: F401

    verb, given = args.users_verb, {"user": args.name}
    with open_desk(args.service) as desk:
        if verb in ("add", "role"):
            given["role"] = args.role
        if verb in ("add", "password"):
            given["password"] = read_password(args.name)
        print_change(args, perform_here(desk, f"users.{verb}", given))
    return 0


def print_change(args: argparse.Namespace, change: "Change") -> None:
    """Print what has changed, and a secret that is shown once."""
    if args.format == "json":
        secret = {"secret": change.secret} if change.secret else {}
        print_json({"target": change.target, "before": change.before, "after": change.after, **secret})
        return
    if change.secret:
        say(change.secret)
    # The secret alone goes to a file or a pipe.
    say(change.said, file=sys.stderr if change.secret else sys.stdout)


def open_desk(service: Path | None) -> "Desk":
    """The service's folder with settings and people; raises `ConfigError`."""
    from edge_server.fleet.actions.action import Desk
    from edge_server.fleet.people.store import People
    from edge_server.fleet.settings.service import load_service_settings
    from edge_server.storage.service_folder import open_service_folder

    folder = open_service_folder(service)
    return Desk(folder, load_service_settings(folder.settings), People(folder.people))


def perform_here(desk: "Desk", action: str, given: dict[str, str]) -> "Change":
    """Do an action as the user of this machine, whom the folder's permissions have let in."""
    from edge_server.fleet.actions.table import perform
    from edge_server.fleet.people.values import Actor, Role
    from edge_server.storage.audit_log import local_user

    return perform(desk, action, given, Actor(local_user(), Role.ADMIN), time.time())


def read_password(name: str) -> str:
    """A password, typed twice at a terminal or one line of standard input; never an argument."""
    import getpass

    if not sys.stdin.isatty():
        if typed := sys.stdin.readline().rstrip("\r\n"):
            return typed
        raise ConfigError(
            "standard input has no password", remedy="pipe one, as `openssl rand -base64 15` makes"
        )
    typed = getpass.getpass(f"password of {name}: ")
    if getpass.getpass("once more: ") != typed:
        raise ConfigError("the two passwords differ; nothing is changed")
    return typed


def day_text(at: float | None) -> str:
    """A time as date and time of day."""
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
