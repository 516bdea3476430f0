"""`edge-server client-release rollout`: bring a release of the client to the boards, group by group."""

import argparse
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from edge_client.cli import app, options
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import say
from edge_server.cli.commands.fleet.serve import SERVICE, service_folder
from edge_server.cli.commands.rollout import GROUPS, PACE, rules_of, run_rollout, withdraw

if TYPE_CHECKING:
    from edge_client.transport.broker_link import BrokerAddress
    from edge_server.releases.client.store import ReleaseStore, StoredRelease
    from edge_server.releases.rollout.state import Rollout
    from edge_server.storage.service_folder import ServiceFolder

EXAMPLES = """\
examples:
  edge-server client-release rollout 0.2.0 --canary 10% --groups 2 --success 0.95
  edge-server client-release rollout 0.2.0 --where 'site=barn,role!=camera' --watch 3600
  edge-server client-release rollout 0.2.0 --withdraw      return each board to its former client

The boards are divided into a canary group and further groups, as in `edge-server rollout`, with the same
rules: when the share --success of a group has kept the release, the next group starts; when more than --error
have failed, all boards that have switched return. After Ctrl-C or a kill the same command continues.

--where chooses boards by their labels; those of the inventory win over what a board says. On a broker with
certificates the rollout uses edge-updates (AUTHORITY/updates).

exit codes: 0 every group has kept the release, or every board to be withdrawn has returned, 1 stopped, 2 bad
usage, 130 interrupted
"""


TERMS = options.Group(
    (
        options.seconds_option(
            "--watch",
            "time that a board must have been connected before it keeps the release (default: 300 s)",
            300.0,
            options.SECONDS_OR_0,
            dest="watch_s",
        ),
        options.seconds_option(
            "--connect-within",
            "time without a connection or a sign of life after which a board goes back (default: 600 s)",
            600.0,
            dest="connect_s",
        ),
        options.count_option(
            "--starts", "most starts of the new client while it is watched (default: %(default)s)", 3
        ),
    ),
    "conditions on each board",
)
OPTIONS = (
    options.Option("release", help="one of `edge-server client-release list`", metavar="RELEASE"),
    SERVICE,
    options.Option(
        "--broker", help="the boards' broker (default: that of the federation in service.toml)", metavar="URL"
    ),
    *options.tls_options("the rollout's"),
    GROUPS,
    PACE,
    TERMS,
    options.Option("--withdraw", bool, "return every board of this release to its former client"),
    *options.log_options("warning"),
)


def register(verbs: options.Subparsers) -> None:
    options.add_verb(
        verbs,
        "rollout",
        execute,
        OPTIONS,
        help="bring a release to the boards, group by group",
        examples=EXAMPLES,
    )


def execute(args: argparse.Namespace) -> int:
    from edge_server.releases.client.store import ReleaseStore
    from edge_server.releases.rollout.journal import RolloutJournal
    from edge_server.releases.rollout.open import rollout_lock
    from edge_server.releases.rollout.progress import Progress

    begin_log(args, level=logging.WARNING)
    folder = service_folder(args)
    store = ReleaseStore(folder.releases)
    stored = store.checked_release(args.release)
    address = _address(args, folder, stored)
    progress = Progress(sys.stdout, as_json=args.format == "json")
    with rollout_lock(store, stored.federation):
        rollout = _open_rollout(args, folder, store, stored)
        if args.withdraw:
            progress.mark_shown(rollout)
        paths, journal = {stored.ref.digest: stored.archive}, RolloutJournal(store)
        ended = run_rollout(rollout, journal, address, paths, progress.show, give_up_s=args.give_up)
    return app.INTERRUPTED if ended is None else _end(args, folder, ended)


def _address(args: argparse.Namespace, folder: "ServiceFolder", stored: "StoredRelease") -> "BrokerAddress":
    """The broker that the options name, else that of the federation in service.toml."""
    from edge_server.fleet.settings.service import load_service_settings

    if args.broker is not None:
        return options.read_broker_option(args)
    return load_service_settings(folder.settings).federation(stored.federation).address("updates")


def _open_rollout(
    args: argparse.Namespace, folder: "ServiceFolder", store: "ReleaseStore", stored: "StoredRelease"
) -> "Rollout":
    """A new rollout, an unfinished one, or one to withdraw."""
    from edge_server.releases.client.offering import new_rollout
    from edge_server.releases.rollout.journal import RolloutJournal
    from edge_server.releases.rollout.open import begin_or_continue, reopen, with_labels
    from schemas.messages.client_update import UpdateTerms

    journal = RolloutJournal(store)
    rules = rules_of(args, UpdateTerms)
    fresh = new_rollout(stored, rules)
    if args.withdraw:
        stopping = withdraw(journal, reopen(journal, fresh))
        _record(folder, "client rollout withdrawn", stopping)
        return stopping
    rollout, left = begin_or_continue(journal, fresh)
    if not left:
        after = {
            "rollout": rollout.id,
            "where": rules.where,
            "only": list(rules.only),
            "canary": rules.canary,
        }
        _record(folder, "client rollout begun", rollout, after=after)
    elif rollout.rules != rules:
        say(
            "edge-server: the rollout continues by the rules that it was begun with; --withdraw ends it",
            file=sys.stderr,
        )
    return with_labels(rollout, folder)


def _end(args: argparse.Namespace, folder: "ServiceFolder", ended: "Rollout") -> int:
    """Record the outcome, and print it."""
    from edge_server.releases.rollout.progress import summary
    from edge_server.releases.rollout.state import RolloutPhase

    outcome = summary(ended)
    _record(folder, f"client rollout {ended.phase}", ended, after={"why": ended.why, **outcome["devices"]})
    if args.format == "json":
        say(json.dumps(outcome), flush=True)
    finished = ended.phase is RolloutPhase.FINISHED
    return app.DONE if (not ended.left_with_it if args.withdraw else finished) else app.FAILED


def _record(folder: "ServiceFolder", what: str, rollout: "Rollout", *, after: Any = None) -> None:
    """Append to the audit log."""
    from edge_server.storage import audit_log

    audit_log.append_entry(
        folder.audit, who=audit_log.local_user(), what=what, target=rollout.version, after=after
    )
