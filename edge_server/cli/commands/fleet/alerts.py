"""`edge-server alerts`: open alerts, tests of receivers, and silences."""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.options import Option, Subparsers, add_verb, add_verbs
from edge_client.security.identity.validity import format_utc
from edge_client.system.plain_text import print_json, print_result, print_table, say
from edge_server.cli.commands.fleet import serve, users

if TYPE_CHECKING:
    from edge_server.fleet.alerts.alert import Acknowledgement, Alert, Key, Silence
    from edge_server.fleet.alerts.store import AlertStore, Waiting

EXAMPLES = """\
examples:
  edge-server alerts list
  edge-server alerts test ops-mail
  edge-server alerts acknowledge "silent for 2 h" pi-7
  edge-server alerts silence --where site=barn --for 2h --reason "new router"
  edge-server alerts silence --end 3

The rules and receivers are in service.toml of the folder of `edge-server serve`, which evaluates them:
  [[alerts.rules]]
  when = "silent-for"
  value = "2h"

  [alerts.receivers.ops]
  kind = "webhook"
  url = "https://ops.example/hook"
"""


def register(subparsers: Subparsers) -> None:
    verbs = add_verbs(
        subparsers,
        "alerts",
        serve.SERVICE,
        help="list alerts, test their receivers, silence them",
        description="Alerts of `edge-server serve`.",
        examples=EXAMPLES,
    )
    about = "alerts that are not resolved, silences, and notifications that wait"
    verbs.add("list", list_alerts, help=about, example="list --format json")
    about, example = "send a test to one receiver", "test ops-mail"
    receiver = Option("receiver", help="name of the receiver in service.toml", metavar="RECEIVER")
    verbs.add("test", test_receiver, receiver, help=about, example=example)
    _add_acknowledge(verbs.verbs)
    _add_silence(verbs.verbs)


def _add_acknowledge(verbs: Subparsers) -> None:
    add_verb(
        verbs,
        "acknowledge",
        acknowledge,
        (
            Option("rule", help="the alert, as `alerts list` names it", metavar="ALERT"),
            Option("name", help="the device, job or run", metavar="SUBJECT"),
            Option("--kind", help="what SUBJECT is", default="device", choices=("device", "job", "run")),
            Option("--federation", help="its federation, if the service has several", metavar="NAME"),
            serve.SERVICE,
        ),
        help="repeat an alert no more until it is resolved",
        examples='examples:\n  edge-server alerts acknowledge "silent for 2 h" pi-7\n',
    )


def _add_silence(verbs: Subparsers) -> None:
    add_verb(
        verbs,
        "silence",
        silence,
        (
            Option("--where", help="the devices, such as site=barn or device=pi-7", metavar="SELECTOR"),
            Option("--for", help="how long, such as 30min, 2h or 3d", metavar="TIME", dest="lasts"),
            Option("--reason", help="why, for the list and the audit log", default="", metavar="TEXT"),
            Option("--end", int, "end the silence of this number instead", metavar="NUMBER"),
            serve.SERVICE,
        ),
        help="send no alerts of some devices for a while",
        examples='examples:\n  edge-server alerts silence --where site=barn --for 2h --reason "new router"\n',
    )


def list_alerts(args: argparse.Namespace) -> int:
    from contextlib import closing

    from edge_server.fleet.alerts.store import AlertStore

    now = time.time()
    with closing(AlertStore(serve.service_folder(args).alerts)) as store:
        alerts, silences, waiting = list(store.alerts().values()), store.silences(now), store.waiting()
        seen = store.acknowledgements()
    if args.format == "json":
        print_json(_document(alerts, seen, silences, waiting))
        return 0
    _print_alerts(alerts, [alert.state(silences, seen, now) for alert in alerts])
    for entry in silences:
        until = format_utc(entry.until)
        say(f"silence {entry.number}: {entry.where or 'everything'} until {until}: {entry.reason}")
    for row in waiting:
        error = f": {row.error}" if row.error else ""
        say(f"waits for {row.notification.receiver}: {row.notification.rule}{error}")
    return 0


def _print_alerts(alerts: "list[Alert]", states: list[str]) -> None:
    if not alerts:
        say("no alerts")
        return
    rows = [
        (
            alert.subject.name,
            alert.subject.site or "-",
            alert.severity,
            alert.rule,
            state,
            format_utc(alert.since),
            alert.text,
            alert.remedy,
        )
        for alert, state in zip(alerts, states, strict=True)
    ]
    print_table(("subject", "site", "severity", "alert", "state", "since", "what", "next"), rows)


def _document(
    alerts: "list[Alert]",
    seen: "Mapping[Key, Acknowledgement]",
    silences: "tuple[Silence, ...]",
    waiting: "list[Waiting]",
) -> dict[str, Any]:
    by = {key: entry.model_dump(mode="json") for key, entry in seen.items()}
    return {
        "alerts": [{**alert.model_dump(mode="json"), "acknowledged": by.get(alert.key)} for alert in alerts],
        "silences": [entry.model_dump(mode="json") for entry in silences],
        "waiting": [
            {
                "receiver": row.notification.receiver,
                "rule": row.notification.rule,
                "made_at": row.made_at,
                "attempts": row.attempts,
                "due_at": row.due_at,
                "error": row.error,
            }
            for row in waiting
        ],
    }


def test_receiver(args: argparse.Namespace) -> int:
    from edge_server.fleet.alerts.alert_trial import try_receiver
    from edge_server.fleet.settings.service import load_service_settings

    folder = serve.service_folder(args)
    try_receiver(folder, load_service_settings(folder.settings), args.receiver, now=time.time())
    return print_result(
        args, {"receiver": args.receiver, "delivered": True}, f"{args.receiver}: took the test"
    )


def acknowledge(args: argparse.Namespace) -> int:
    with users.open_desk(args.service) as desk:
        several = desk.settings.federations
        federation = args.federation or (desk.settings.federation(None).name if several else "")
        given = {"rule": args.rule, "kind": args.kind, "name": args.name, "federation": federation}
        change = users.perform_here(desk, "alerts.acknowledge", given)
    return print_result(args, {**given, "acknowledged": True}, change.said)


def silence(args: argparse.Namespace) -> int:
    from contextlib import closing

    from edge_server.fleet.alerts.store import AlertStore
    from schemas.errors import ConfigError

    folder = serve.service_folder(args)
    if args.end is None and (args.where is None or args.lasts is None or not args.reason):
        raise ConfigError(
            "alerts silence", remedy='name --where SELECTOR, --for TIME and --reason "...", or --end NUMBER'
        )
    if args.end is not None and (args.where, args.lasts) != (None, None):
        raise ConfigError("alerts silence: --end ends a silence", remedy="leave out --where and --for")
    with closing(AlertStore(folder.alerts)) as store:
        return _end(args, store, folder.audit) if args.end is not None else _begin(args, store, folder.audit)


def _begin(args: argparse.Namespace, store: "AlertStore", audit: Path) -> int:
    from edge_server.config.measures import parse_duration
    from edge_server.storage import audit_log
    from schemas.selectors import parse_where

    where, now, who = str(parse_where(args.where)), time.time(), audit_log.local_user()
    until = now + parse_duration(args.lasts)
    begun = store.silence(where, args.reason, who, now=now, until=until)
    after = {"number": begun.number, "until": until, "reason": args.reason}
    audit_log.append_entry(audit, who=who, what="silence alerts", target=where, after=after)
    line = f"silence {begun.number}: {where or 'everything'} until {format_utc(until)}"
    return print_result(args, begun.model_dump(mode="json"), line)


def _end(args: argparse.Namespace, store: "AlertStore", audit: Path) -> int:
    from edge_server.storage import audit_log
    from schemas.errors import ConfigError

    if not store.end_silence(args.end, now=time.time()):
        raise ConfigError(
            f"there is no silence {args.end} now", remedy="`edge-server alerts list` has their numbers"
        )
    audit_log.append_entry(
        audit, who=audit_log.local_user(), what="end silence of alerts", target=str(args.end)
    )
    return print_result(args, {"ended": args.end}, f"silence {args.end}: ended")
