"""The watchers of a run: the display, and the dashboard, metrics and trackers that the command asks for."""

import argparse
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from edge_server.observability.snapshot import Watcher, WatcherGroup

Opener = Callable[[argparse.Namespace, Path], AbstractContextManager[Watcher]]
"""Opens a watcher for the parsed command and the run folder."""


def open_display(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.terminal.display import make_display

    return make_display(format=args.format)


def open_dashboard(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.dashboard.cli_option import dashboard_watcher

    return dashboard_watcher(args, out) if args.dashboard else contextlib.nullcontext(WatcherGroup())


def open_metrics(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.prometheus.cli_option import metrics_watcher

    if not args.metrics:
        return contextlib.nullcontext(WatcherGroup())
    return metrics_watcher(args.metrics, out, devices=args.metrics_devices)


def open_trackers(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.trackers.registry import tracker_watcher

    return tracker_watcher(args.write, out) if args.write else contextlib.nullcontext(WatcherGroup())


OPENERS: tuple[Opener, ...] = (open_display, open_dashboard, open_metrics, open_trackers)


@contextlib.contextmanager
def watchers(args: argparse.Namespace, out: Path) -> Iterator[Watcher]:
    """All watchers of the run in `out` that `args` asks for; they close with the block, the display last."""
    with contextlib.ExitStack() as stack:
        yield WatcherGroup(*(stack.enter_context(opened(args, out)) for opened in OPENERS))
