"""`--write`: writes a run's rounds to TensorBoard, MLflow or Weights & Biases."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option

if TYPE_CHECKING:
    from edge_server.observability.snapshot import Watcher


WRITE = Option(
    "--write",
    help="write each round there: tensorboard=DIR, mlflow=URI, wandb=PROJECT; may be given several times",
    default=(),
    metavar="TO=WHERE",
    many=True,
)


@contextlib.contextmanager
def tracker_watcher(words: Sequence[str], out: Path) -> "Iterator[Watcher]":
    """Pass the run in `out` to the writers of `words` until the block ends, then wait for them."""
    from edge_server.observability.snapshot import WatcherGroup
    from edge_server.observability.trackers.registry import make_writer
    from edge_server.observability.trackers.threads import WriterThread

    writers = [(word.partition("=")[0], make_writer(word)) for word in words]
    threads = [WriterThread(name, writer, out) for name, writer in writers]
    try:
        yield WatcherGroup(*threads)
    finally:
        for thread in threads:
            thread.close()
