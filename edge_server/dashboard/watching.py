"""The dashboard as one who watches a run: what the words of a command ask for."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from edge_server.dashboard.listening import TOKEN_VARIABLE
from edge_server.snapshot import Watcher


@contextlib.contextmanager
def dashboard(args: argparse.Namespace, out: Path) -> Iterator[Watcher]:
    """The dashboard that `args` asks for; its address is told once it answers."""
    from edge_server.dashboard.hosting import hosted

    with hosted(out, args.dashboard, token=token_of(args), live=True) as host:
        tell_address(host.url, args.format)
        yield host


def token_of(args: argparse.Namespace) -> str | None:
    """The token of the command line, else the environment's."""
    return args.dashboard_token or os.environ.get(TOKEN_VARIABLE) or None


def tell_address(url: str, output_format: str) -> None:
    """Say where the dashboard is; programs have asked for JSON alone on standard output."""
    print(f"dashboard {url}", file=sys.stderr if output_format == "json" else sys.stdout, flush=True)
