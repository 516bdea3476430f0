"""Who watches a run: the display, and whatever else was asked for; each is told of the same snapshots."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from edge_server.observability.snapshot import Watcher, WatcherGroup

Opener = Callable[[argparse.Namespace, Path], AbstractContextManager[Watcher]]
"""From the words of the command and the run folder to somebody who watches as long as the block lasts."""


def _display(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.terminal.display import make_display

    return make_display(format=args.format)


def _dashboard(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.dashboard.cli_option import dashboard_watcher

    return dashboard_watcher(args, out) if args.dashboard else contextlib.nullcontext(WatcherGroup())


def _metrics(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.prometheus.cli_option import metrics_watcher

    return metrics_watcher(args.metrics, out) if args.metrics else contextlib.nullcontext(WatcherGroup())


def _writers(args: argparse.Namespace, out: Path) -> AbstractContextManager[Watcher]:
    from edge_server.observability.trackers.cli_option import writers_watcher

    return writers_watcher(args.write, out) if args.write else contextlib.nullcontext(WatcherGroup())


OPENERS: tuple[Opener, ...] = (_display, _dashboard, _metrics, _writers)


@contextlib.contextmanager
def watchers(args: argparse.Namespace, out: Path) -> Iterator[Watcher]:
    """All who watch the run in `out` that `args` asks for; they end with the block, the display last."""
    with contextlib.ExitStack() as stack:
        yield WatcherGroup(*(stack.enter_context(opened(args, out)) for opened in OPENERS))
