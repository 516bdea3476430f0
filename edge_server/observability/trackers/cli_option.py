"""`--write`: from the words of a command to the writers that are told of its run."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_server.observability.snapshot import Watcher


def add_write_option(parser: argparse.ArgumentParser) -> None:
    """Add `--write`."""
    parser.add_argument(
        "--write",
        action="append",
        default=[],
        metavar="TO=WHERE",
        help="write each round there: tensorboard=DIR, mlflow=URI, wandb=PROJECT; may be given several times",
    )


@contextlib.contextmanager
def writers_watcher(words: Sequence[str], out: Path) -> Iterator[Watcher]:
    """Tell these writers of the run in `out`, as long as the block lasts, and wait for them at its end."""
    from edge_server.observability.snapshot import WatcherGroup
    from edge_server.observability.trackers.registry import make_writer
    from edge_server.observability.trackers.threads import WriterThread

    made = [(word.partition("=")[0], make_writer(word)) for word in words]
    writings = [WriterThread(name, writer, out) for name, writer in made]
    try:
        yield WatcherGroup(*writings)
    finally:
        for writing in writings:
            writing.close()
