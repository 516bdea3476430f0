"""Actions on alerts: silences."""

from contextlib import closing

from edge_server.config.measures import parse_digits, parse_duration
from edge_server.fleet.actions.action import Args, Change, Desk
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.people.values import Actor
from schemas.errors import ConfigError
from schemas.selectors import parse_where

KINDS = ("device", "job", "run")


def silence(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    where, until = str(parse_where(args["where"])), now + parse_duration(args["lasts"])
    with closing(AlertStore(desk.folder.alerts)) as store:
        begun = store.silence(where, args["reason"], actor.who, now=now, until=until)
    after = {"number": begun.number, "until": until, "reason": args["reason"]}
    return Change(where, after=after, said=f"silence {begun.number} has begun")


def acknowledge(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    key = args["rule"], args["kind"], args["federation"], args["name"]
    if args["kind"] not in KINDS:
        raise ConfigError(f"'{args['kind']}' is not a kind of subject: {', '.join(KINDS)}")
    with closing(AlertStore(desk.folder.alerts)) as store:
        if not store.acknowledge(key, actor.who, now=now):
            raise ConfigError(
                f"there is no alert '{args['rule']}' of {args['kind']} {args['name']} in the federation "
                f"'{args['federation']}'",
                remedy="`edge-server alerts list` has them",
            )
    return Change(
        f"{args['federation']}/{args['name']}",
        after={"alert": args["rule"]},
        said=f"{args['rule']} of {args['name']} is acknowledged",
    )


def end_silence(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    number = parse_digits(args["number"])
    with closing(AlertStore(desk.folder.alerts)) as store:
        if number is None or not store.end_silence(number, now=now):
            raise ConfigError(f"there is no silence {args['number']} now")
    return Change(args["number"], said=f"silence {args['number']} has ended")
