"""`--write`: write a run's rounds to TensorBoard, MLflow or Weights & Biases."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option
from schemas.errors import ConfigError, nearest

if TYPE_CHECKING:
    from edge_server.observability.snapshot import Watcher
    from edge_server.observability.trackers.writers import Writer

WRITE = Option(
    "--write",
    help="write each round there: tensorboard=DIR, mlflow=URI, wandb=PROJECT; may be given several times",
    default=(),
    metavar="TO=WHERE",
    many=True,
)


def make_writer(word: str) -> "Writer":
    """The writer for `NAME=TARGET`; raises `ConfigError` for an unknown name or a missing package."""
    from edge_server.observability.trackers.writers import WRITERS

    name, _, target = word.partition("=")
    if name not in WRITERS:
        raise ConfigError(f"there is no writer '{name}'{nearest(name, WRITERS)}", key=f"--write {word}")
    if not target:
        raise ConfigError(
            "name the destination, for instance --write tensorboard=runs/tensorboard", key=f"--write {word}"
        )
    try:
        return WRITERS[name](target)
    except ModuleNotFoundError as error:
        remedy = f"pip install 'edge-federation[{name}]'"
        raise ConfigError(
            f"this needs {error.name}, which is not installed", key=f"--write {word}", remedy=remedy
        ) from error


@contextlib.contextmanager
def tracker_watcher(words: Sequence[str], out: Path) -> "Iterator[Watcher]":
    """Pass the run in `out` to the writers of `words` until the block ends, then wait for them."""
    from edge_server.observability.snapshot import WatcherGroup
    from edge_server.observability.trackers.writers import WriterThread

    writers = [(word.partition("=")[0], make_writer(word)) for word in words]
    threads = [WriterThread(name, writer, out) for name, writer in writers]
    try:
        yield WatcherGroup(*threads)
    finally:
        for thread in threads:
            thread.close()
