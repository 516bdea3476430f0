"""`edge-server rollout`: bring a model version to the devices, group by group."""

import argparse
import json
import logging
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli import options
from edge_client.cli.app import DONE, FAILED, INTERRUPTED
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import say
from edge_server.cli.commands.fleet.inventory_options import where_option
from edge_server.cli.commands.fleet.serve import SERVICE
from edge_server.cli.commands.models import REGISTRY, registry_folder
from edge_server.observability.prometheus.cli_option import METRICS, rollout_watcher

if TYPE_CHECKING:
    from edge_client.transport.broker_link import BrokerAddress
    from edge_server.releases.registry.registry import Registry, Version
    from edge_server.releases.rollout.journal import RolloutJournal
    from edge_server.releases.rollout.progress import Progress
    from edge_server.releases.rollout.service import Show
    from edge_server.releases.rollout.state import Rollout, RolloutRules, TierFile
    from schemas.messages.client_update import UpdateTerms
    from schemas.messages.rollout import TrialTerms

HELP = "bring a model to the devices, group by group"
EXAMPLES = """\
examples:
  edge-server rollout home-20261121-180000 --broker mqtt://server:1883 --canary 10% --success 0.95
  edge-server rollout home-20261121-180000 --broker mqtt://server:1883 --canary 1 --groups 3 --watch 3600
  edge-server rollout home-20261121-180000 --broker mqtt://server:1883 --where site=barn
  edge-server rollout --broker mqtt://server:1883          the active version, to devices that serve another
  edge-server rollout home-20261121-180000 --withdraw      return each device to its previous model

The online devices are divided into a canary group and further groups, in an order that depends only on the
devices and the version. The devices of the canary group fetch the file of their tier, check its digest and
signature, and compare it with their current model on their own examples. If it is not worse, they switch to
it without dropping a request, watch it, and keep it or return to the previous model. When the share --success
of a group has kept it, the next group starts. When more than --error have failed, the rollout stops and all
devices that have switched return: a model that failed in one group reaches no other.

A version whose rollout has finished is the active one. After Ctrl-C or a kill the same command continues the
rollout. A training run may be in progress at the same time.

Versions of a service's jobs lie in its own registry: with --service DIR, or $EDGE_SERVICE, the command takes
them, and the broker and certificate of service.toml. On a broker with certificates the rollout uses its own,
edge-rollout (AUTHORITY/rollout, from `edge-server enroll`).

exit codes: 0 every group has kept the model, or every device to be withdrawn has returned, 1 stopped, 2 bad
usage, 130 interrupted
"""


def _size(text: str) -> str:
    from edge_server.releases.rollout.state import is_size

    if not is_size(text):
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number of devices nor a share such as 10%")
    return text


COUNT = {"ge": 0, "le": 100_000}
BROKER = (
    options.Option(
        "--broker",
        help="the devices' broker (default: that of the service whose registry it is, else mqtt://127.0.0.1:1883)",
        metavar="URL",
    ),
    *options.tls_options("the rollout's"),
)
GROUPS = options.Group(
    (
        options.Option(
            "--canary", _size, "devices in the canary group (default: 10%%, at least one)", "10%", "N|P%"
        ),
        options.count_option("--groups", "number of further groups (default: %(default)s)", 2),
        options.share_option(
            "--success",
            "share of a group that must keep the model before the next group starts (default: %(default)s)",
            0.95,
        ),
        options.share_option("--error", "share of a group that may fail (default: 1 - success)"),
        options.count_option("--expect", "wait until N devices are online (default: 1)", 1),
        options.Option(
            "--only",
            options.device_name,
            "only this device (repeatable); the active version stays unchanged",
            (),
            "DEVICE",
            many=True,
        ),
        where_option("only devices that match, the active version stays unchanged"),
    ),
    "groups",
)
PACE = options.Group(
    (
        options.count_option("--at-once", "devices that fetch at the same time (default: 32)", 32),
        options.seconds_option(
            "--gather",
            "time for devices to report (default: 5 s)",
            5.0,
            options.SECONDS_OR_0,
            dest="gather_s",
        ),
        options.seconds_option(
            "--away-after",
            "leave out a device that is silent for S seconds before it has switched (default: 600 s)",
            600.0,
            dest="away_s",
        ),
        options.seconds_option(
            "--silent-after",
            "a device that is silent for S seconds after its watch counts as failed (default: 300 s)",
            300.0,
            dest="silent_s",
        ),
        options.seconds_option(
            "--give-up",
            "exit with 1 after S seconds without the broker or any device to continue with (default: 1800 s)",
            1800.0,
        ),
    ),
    "pace",
)
TERMS = options.Group(
    (
        options.count_option(
            "--examples",
            "most examples for the comparison (default: %(default)s)",
            200,
            {"ge": 0, "le": 100_000},
        ),
        options.share_option(
            "--accuracy-drop", "accuracy that may be lost, beyond chance (default: %(default)s)", 0.02
        ),
        options.Option(
            "--latency-ratio",
            float,
            "largest ratio of latencies for one image (default: %(default)s)",
            1.5,
            "X",
            {"ge": 1, "le": 1000},
        ),
        options.share_option(
            "--error-rate",
            "share of requests that may fail in addition to the previous share (default: %(default)s)",
            0.01,
        ),
        options.count_option(
            "--crashes",
            "crashes of the service allowed while watched (default: 0)",
            0,
            {"ge": 0, "le": 100_000},
        ),
        options.seconds_option(
            "--watch",
            "time that the model is watched (default: 300 s)",
            300.0,
            options.SECONDS_OR_0,
            dest="watch_s",
        ),
    ),
    "conditions on each device, compared with its current model",
)
OPTIONS = (
    options.Option(
        "version",
        help="one of `edge-server models list` (default: the active one)",
        metavar="VERSION",
        nargs="?",
    ),
    REGISTRY,
    options.Option(
        "--federation", help="federation of the active version, if several have one", metavar="NAME"
    ),
    *BROKER,
    GROUPS,
    PACE,
    TERMS,
    options.Option("--withdraw", bool, "return every device of this version to its previous model"),
    SERVICE,
    METRICS,
    *options.log_options("warning"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.releases.registry.registry import Registry
    from edge_server.releases.rollout.open import offered_files, rollout_lock, wanted_version
    from edge_server.releases.rollout.progress import Progress

    begin_log(args, level=logging.WARNING)
    registry = Registry.existing(registry_folder(args))
    version = wanted_version(registry, args.version, args.federation)
    files = offered_files(registry, version)
    progress = Progress(sys.stdout, as_json=args.format == "json")
    with rollout_lock(registry, version.federation):
        rollout = _open_rollout(args, registry, version, files)
        if args.withdraw:
            progress.mark_shown(rollout)
        paths = {file.ref.digest: registry.onnx(version.version, tier) for tier, file in files.items()}
        ended = _serve(args, registry, version, rollout, paths, progress)
        return INTERRUPTED if ended is None else _end(args, registry, version, ended)


def rules_of(args: argparse.Namespace, terms: "type[TrialTerms | UpdateTerms]") -> "RolloutRules":
    """The rules that the options say; `terms` is the class of their terms."""
    from edge_server.releases.rollout.state import RolloutRules
    from schemas.selectors import parse_where

    stated = {**vars(args), "where": str(parse_where(args.where or ""))}
    stated["terms"] = terms(**{name: stated[name] for name in terms.model_fields})
    return RolloutRules(**{name: stated[name] for name in RolloutRules.model_fields})


def _open_rollout(
    args: argparse.Namespace, registry: "Registry", version: "Version", files: "dict[int, TierFile]"
) -> "Rollout":
    """A new rollout, an unfinished one, or one to withdraw."""
    from edge_server.releases.rollout.journal import RolloutJournal
    from edge_server.releases.rollout.open import begin_or_continue, model_rollout, reopen, with_labels
    from edge_server.releases.rollout.state import RolloutRules
    from edge_server.storage.service_folder import ServiceFolder, default_service_folder
    from schemas.messages.rollout import TrialTerms

    journal = RolloutJournal(registry)
    if args.withdraw:
        return withdraw(journal, reopen(journal, model_rollout(version, RolloutRules(), files)))
    rules = rules_of(args, TrialTerms)
    rollout, left = begin_or_continue(journal, model_rollout(version, rules, files))
    if left and rollout.rules != rules:
        say(
            "edge-server: the rollout continues by the rules that it was begun with; --withdraw ends it",
            file=sys.stderr,
        )
    return with_labels(rollout, ServiceFolder(args.service or default_service_folder()))


def find_broker(args: argparse.Namespace, registry: "Registry", federation: str) -> "BrokerAddress":
    """The broker that the options name, else that of the registry's service."""
    from edge_client.transport.broker_link import TlsFiles, parse_address
    from edge_server.fleet.settings.service import load_service_settings
    from edge_server.storage.service_folder import ServiceFolder

    settings = load_service_settings(ServiceFolder(registry.folder.parent).settings)
    if args.broker is None and settings.federations:
        return settings.federation(federation).address("rollout")
    return parse_address(args.broker or "mqtt://127.0.0.1:1883", TlsFiles(args.ca, args.cert, args.key))


def _serve(
    args: argparse.Namespace,
    registry: "Registry",
    version: "Version",
    rollout: "Rollout",
    paths: dict[str, Path],
    progress: "Progress",
) -> "Rollout | None":
    from edge_server.releases.rollout.journal import RolloutJournal
    from edge_server.releases.rollout.run_events import RolloutEvents, run_of

    address = find_broker(args, registry, version.federation)
    events = RolloutEvents(run_of(registry, version))

    def both(rollout: "Rollout", no_link: str) -> None:
        events.show(rollout)
        progress.show(rollout, no_link)

    events.show(rollout)
    with closing(events), rollout_watcher(args.metrics, both) as show:
        return run_rollout(rollout, RolloutJournal(registry), address, paths, show, give_up_s=args.give_up)


def withdraw(journal: "RolloutJournal", loaded: "Rollout") -> "Rollout":
    """The rollout, stopped by hand, as the journal has it now."""
    from edge_server.releases.rollout.machine import stop_rollout

    stopping = stop_rollout(loaded, "withdrawn by hand", time.monotonic())
    journal.save(loaded, stopping)
    return stopping


def run_rollout(
    rollout: "Rollout",
    journal: "RolloutJournal",
    address: "BrokerAddress",
    paths: "dict[str, Path]",
    show: "Show",
    *,
    give_up_s: float,
) -> "Rollout | None":
    """The rollout as it has ended; None if the user has interrupted it, which is said."""
    from edge_server.coordinator.launch import stopped_by_signals
    from edge_server.releases.rollout.service import Interrupted, RolloutService

    service = RolloutService(rollout, journal, address, paths, show, give_up_s=give_up_s)
    try:
        with stopped_by_signals(service.interrupt):
            return service.run()
    except Interrupted as pause:
        say(f"edge-server: {pause}", file=sys.stderr)
        return None


def _end(args: argparse.Namespace, registry: "Registry", version: "Version", ended: "Rollout") -> int:
    """Record the active version, and print the outcome."""
    from edge_server.releases.rollout.progress import summary
    from edge_server.releases.rollout.state import RolloutPhase

    finished, active = ended.phase is RolloutPhase.FINISHED, ""
    if ended.rules.is_partial:
        pass  # what a few devices serve is not what all are meant to
    elif finished:
        registry.set_active(version)
        active = f"{version.federation}: active is {version.version}"
    elif registry.clear_active(version):
        active = f"{version.federation}: no version is active now; `edge-server models set-active` names one"
    if args.format == "json":
        say(json.dumps(summary(ended)), flush=True)
    elif active:
        say(active)
    return DONE if (not ended.left_with_it if args.withdraw else finished) else FAILED
