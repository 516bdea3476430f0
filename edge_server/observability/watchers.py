"""The watchers of a run: the display, and the dashboard, metrics and trackers that the command asks for."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_server.observability.dashboard.cli_option import dashboard_watcher
from edge_server.observability.prometheus.cli_option import metrics_watcher
from edge_server.observability.snapshot import Watcher, WatcherGroup
from edge_server.observability.terminal.display import make_display
from edge_server.observability.trackers.registry import tracker_watcher


@contextlib.contextmanager
def watchers(args: argparse.Namespace, out: Path) -> Iterator[Watcher]:
    """All watchers of the run in `out` that `args` asks for; they close with the block, the display last."""
    with contextlib.ExitStack() as stack:
        shown = stack.enter_context
        opened = [shown(make_display(format=args.format))]
        if args.dashboard:
            opened.append(shown(dashboard_watcher(args, out)))
        if args.metrics:
            opened.append(shown(metrics_watcher(args.metrics, out, devices=args.metrics_devices)))
        if args.write:
            opened.append(shown(tracker_watcher(args.write, out)))
        yield WatcherGroup(*opened)
