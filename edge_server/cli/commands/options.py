"""Options shared by several verbs."""

import argparse
import logging
import sys
from pathlib import Path

from edge_client.cli.options import Option, log_options, tls_options
from edge_client.system.logging.setup import begin_log
from edge_server.observability.dashboard.cli_option import DASHBOARD
from edge_server.observability.prometheus.cli_option import METRICS, METRICS_DEVICES
from edge_server.observability.trackers.registry import WRITE


def config_words(hint: str = "override the file, e.g. rounds=3") -> tuple[Option, ...]:
    """The federation file or recipe, and its overrides."""
    return (
        Option("config", help="federation file, or a recipe's name", metavar="FEDERATION.toml|RECIPE"),
        Option("overrides", help=hint, default=(), metavar="KEY=VALUE", nargs="*"),
    )


def overrides_of(args: argparse.Namespace) -> list[str]:
    """The user's overrides, and those of `--seed`."""
    return [*args.overrides, *([f"federation.seed={args.seed}"] if args.seed is not None else [])]


def again(args: argparse.Namespace) -> str:
    """What begins anew after a run that has closed no round: a folder is used once."""
    return "the same command" + (" and another --out" if args.out else "")


WATCHING = (*DASHBOARD, METRICS, METRICS_DEVICES, WRITE, *log_options("warning, error on a terminal"))
"""The options for what shows a run."""
RUN_OPTIONS = (
    Option("--out", Path, "run folder (default: runs/NAME-TIME)", metavar="DIR"),
    Option("--seed", int, "makes a run repeatable (default: the file's)", metavar="N"),
    *WATCHING,
)
"""The options for the run folder and the initial model."""


FINAL_REGISTRY = Option(
    "--registry",
    Path,
    "registry for the final models (default: that of the run's service, else `registry` next to it)",
    metavar="DIR",
)


def begin_run_log(args: argparse.Namespace) -> None:
    """Log warnings; on a terminal with a live view only errors."""
    begin_log(args, level=logging.ERROR if sys.stdout.isatty() else logging.WARNING)


SERVER_BROKER = (
    Option(
        "--broker",
        help="the federation's broker (default: %(default)s)",
        default="mqtt://127.0.0.1:1883",
        metavar="URL",
    ),
    *tls_options("the server's"),
)
"""The options for a broker that others use, too."""


BROKER_OPTIONS = (
    Option(
        "--broker",
        help="mqtt://host:1883, or auto, mosquitto, embedded: one started on this machine (default: auto)",
        default="auto",
        metavar="URL",
    ),
    *tls_options("the server's"),
)
