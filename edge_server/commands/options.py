"""Options that several verbs share."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from edge_client.commands.options import add_tls_options
from edge_server.dashboard.listening import TOKEN_VARIABLE, USUAL, listen_address

RUNS = Path("runs")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Where the run folder goes, and what it starts from."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="run folder (default: runs/NAME-TIME)")
    parser.add_argument("--seed", type=int, metavar="N", help="makes a run repeatable (default: the file's)")
    add_dashboard_options(parser)


def add_dashboard_options(parser: argparse.ArgumentParser) -> None:
    """The run as a page in the browser."""
    parser.add_argument(
        "--dashboard",
        nargs="?",
        type=listen_address,
        const=USUAL,
        metavar="HOST:PORT",
        help="show the run in the browser (default: 127.0.0.1:8265, or a free port where that is taken; "
        "port 0 is any free one)",
    )
    add_token_option(parser)


def add_token_option(parser: argparse.ArgumentParser) -> None:
    """What the dashboard asks browsers for."""
    parser.add_argument(
        "--dashboard-token",
        metavar="TOKEN",
        help=f"what the dashboard asks for, needed where other machines reach it (or {TOKEN_VARIABLE} in the "
        "environment); open it once as http://HOST:PORT/?token=TOKEN",
    )


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Which broker to use."""
    parser.add_argument(
        "--broker",
        default="auto",
        metavar="URL",
        help="mqtt://host:1883, or auto, mosquitto, embedded: one started on this machine (default: auto)",
    )
    add_tls_options(parser, whose="the server's")


def run_folder(out: Path | None, federation: str) -> Path:
    """The folder that the user names, or one by name and time."""
    return out or RUNS / run_name(federation)


def run_name(federation: str) -> str:
    """A name for a run that starts now."""
    return f"{federation[:40]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
