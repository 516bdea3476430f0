"""Options shared by several verbs."""

import argparse
import logging
import sys
from pathlib import Path

from edge_client.cli.commands.options import add_tls_options
from edge_client.system.logging.setup import add_log_options, begin_log
from edge_server.observability.dashboard.cli_option import add_dashboard_options
from edge_server.observability.prometheus.cli_option import add_metrics_devices_option, add_metrics_option
from edge_server.observability.trackers.cli_option import add_write_option


def add_config_words(parser: argparse.ArgumentParser, hint: str = "override the file, e.g. rounds=3") -> None:
    """Add the federation file or recipe, and its overrides."""
    parser.add_argument(
        "config", metavar="FEDERATION.toml|RECIPE", help="federation file, or a recipe's name"
    )
    parser.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=hint)


def overrides_of(args: argparse.Namespace) -> list[str]:
    """The user's overrides, and those of `--seed`."""
    return [*args.overrides, *([f"federation.seed={args.seed}"] if args.seed is not None else [])]


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run folder and the initial model."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="run folder (default: runs/NAME-TIME)")
    parser.add_argument("--seed", type=int, metavar="N", help="makes a run repeatable (default: the file's)")
    add_run_watching(parser)


def add_final_registry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--registry",
        type=Path,
        metavar="DIR",
        help="registry for the final models (default: that of the run's service, else `registry` next to it)",
    )


def add_run_watching(parser: argparse.ArgumentParser) -> None:
    """Add the options for what shows a run."""
    add_dashboard_options(parser)
    add_metrics_option(parser)
    add_metrics_devices_option(parser)
    add_write_option(parser)
    add_log_options(parser, level="warning, error on a terminal")


def begin_run_log(args: argparse.Namespace) -> None:
    """Log warnings; on a terminal with a live view only errors."""
    begin_log(args, level=logging.ERROR if sys.stdout.isatty() else logging.WARNING)


def add_server_broker(parser: argparse.ArgumentParser) -> None:
    """Add the options for a broker that others use, too."""
    parser.add_argument(
        "--broker",
        default="mqtt://127.0.0.1:1883",
        metavar="URL",
        help="the federation's broker (default: %(default)s)",
    )
    add_tls_options(parser, whose="the server's")


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--broker",
        default="auto",
        metavar="URL",
        help="mqtt://host:1883, or auto, mosquitto, embedded: one started on this machine (default: auto)",
    )
    add_tls_options(parser, whose="the server's")
