"""`edge-server tokens`: tokens for programs that use a service's API."""

import argparse

from edge_client.cli.options import ABOVE_0, Option, Subparsers, add_verbs
from edge_client.system.plain_text import print_rows
from edge_server.cli.commands.fleet import serve, users

EXAMPLES = """\
examples:
  edge-server tokens make grafana > grafana.token            reads everything, for 90 days
  edge-server tokens make barn-labels --role operator --where site=barn --days 30
  curl -H "Authorization: Bearer $(cat grafana.token)" http://127.0.0.1:8270/api/devices
  edge-server tokens revoke grafana

A token is shown once and stored as a digest. With --where it is good for those devices alone, and for
nothing else.
"""
USUAL_DAYS = 90.0


def register(subparsers: Subparsers) -> None:
    about = "tokens for programs that use the API"
    verbs = add_verbs(subparsers, "tokens", serve.SERVICE, help=about, examples=EXAMPLES)
    where = Option("--where", help="only devices with these labels", default="", metavar="SELECTOR")
    days = Option("--days", float, "until its end (default: 90)", USUAL_DAYS, "N", ABOVE_0)
    verbs.add("list", _list, help="the tokens, their roles and ends")
    verbs.add("make", _make, users.NAME, users.ROLE, where, days, help="make a token")
    verbs.add("revoke", _revoke, users.NAME, help="revoke a token")


def _list(args: argparse.Namespace) -> int:
    with users.open_desk(args.service) as desk:
        tokens = desk.people.tokens()
    document = [
        {
            "token": token.name,
            "role": token.role,
            "where": token.where,
            "ends_at": token.ends_at,
            "used_at": token.used_at,
        }
        for token in tokens
    ]
    rows = [
        (t.name, t.role, t.where or "all", t.made_by, users.day_text(t.ends_at), users.day_text(t.used_at))
        for t in tokens
    ]
    return print_rows(
        args, {"tokens": document}, ("token", "role", "devices", "made by", "ends", "used"), rows
    )


def _make(args: argparse.Namespace) -> int:
    given = {"token": args.name, "role": args.role, "where": args.where, "days": f"{args.days:g}"}
    with users.open_desk(args.service) as desk:
        users.print_change(args, users.perform_here(desk, "tokens.make", given))
    return 0


def _revoke(args: argparse.Namespace) -> int:
    with users.open_desk(args.service) as desk:
        users.print_change(args, users.perform_here(desk, "tokens.revoke", {"token": args.name}))
    return 0
