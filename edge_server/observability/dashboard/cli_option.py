"""`--dashboard`: serves the dashboard of a run."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, OptionalAddress
from edge_server.observability.dashboard import bind_address

if TYPE_CHECKING:
    from edge_server.observability.snapshot import Watcher


DASHBOARD_TOKEN = Option(
    "--dashboard-token",
    help="token that the dashboard asks for, required if other machines can reach it (or "
    f"{bind_address.TOKEN_VARIABLE} in the environment); open it once as http://HOST:PORT/?token=TOKEN",
    metavar="TOKEN",
)
DASHBOARD = (
    Option(
        "--dashboard",
        help="show the run in the browser (default: 127.0.0.1:8265, or a free port if that is taken; "
        "port 0: any free port)",
        metavar="HOST:PORT",
        action=partial(
            OptionalAddress, read=bind_address.parse_bind_address, const=bind_address.DEFAULT_ADDRESS
        ),
    ),
    DASHBOARD_TOKEN,
)


@contextlib.contextmanager
def dashboard_watcher(args: argparse.Namespace, out: Path) -> "Iterator[Watcher]":
    """Serve the dashboard that `args` asks for, with `/metrics`; its address is printed once it answers."""
    from edge_server.observability.dashboard.server_thread import metrics_route, serve_dashboard
    from edge_server.observability.prometheus.collector import RunCollector
    from edge_server.observability.snapshot import WatcherGroup

    collector = RunCollector(out)
    more = [metrics_route(collector)]
    registry = getattr(args, "registry", None)
    with serve_dashboard(
        out, args.dashboard, token=token_of(args), live=True, registry=registry, more=more
    ) as host:
        print_address(host.url, args.format)
        yield WatcherGroup(host, collector)


def token_of(args: argparse.Namespace) -> str | None:
    return args.dashboard_token or os.environ.get(bind_address.TOKEN_VARIABLE) or None


def print_address(url: str, output_format: str) -> None:
    """Print the dashboard's URL, on standard error where standard output carries JSON."""
    print(f"dashboard {url}", file=sys.stderr if output_format == "json" else sys.stdout, flush=True)
