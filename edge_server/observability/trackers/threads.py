"""Threads that feed writers from snapshots; a slow or failing writer neither delays nor ends a run."""

import logging
import queue
import secrets
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_server.observability.snapshot import Snapshot
from edge_server.observability.trackers.writers import RunFacts, Writer
from edge_server.storage.records import RoundRecord, Summary

log = logging.getLogger(__name__)

PATIENCE_S = 30.0  # Seconds that the end of a run waits for a writer


class WriterThread:
    """Passes each closed round to one writer once; stops at the writer's first error, which is logged."""

    def __init__(self, name: str, writer: Writer, out: Path) -> None:
        self._name, self._writer, self._out = name, writer, out
        self._to_write: queue.SimpleQueue[RunFacts | RoundRecord | None] = queue.SimpleQueue()
        self._seen = -1
        self._summary: Summary | None = None
        # A daemon: a writer that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}", daemon=True)
        self._thread.start()

    def show(self, snapshot: Snapshot) -> None:
        """Queue the rounds closed since the last call, at first also those of earlier processes."""
        if self._seen < 0:
            self._seen = 0
            self._to_write.put(facts_of(snapshot, self._out))
        for record in snapshot.history[self._seen :]:
            self._to_write.put(record)
        self._seen = len(snapshot.history)
        self._summary = snapshot.summary

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until everything is written, at most `patience_s` seconds."""
        self._to_write.put(None)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            log.warning("%s has not written everything after %g s; giving up", self._name, patience_s)

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:
            # The text comes from a foreign library and may be long.
            why = str(error).partition("\n")[0][:300] or type(error).__name__
            log.warning("%s stopped writing, the run continues: %s", self._name, why)

    def _write(self) -> None:
        facts = self._to_write.get()
        if not isinstance(facts, RunFacts):
            return
        last = self._writer.begin(facts)
        while isinstance(record := self._to_write.get(), RoundRecord):
            if record.round > last:
                self._writer.round(record)
        self._writer.end(self._summary)


def facts_of(snapshot: Snapshot, out: Path) -> RunFacts:
    """The run's facts, with the settings of its folder."""
    try:
        settings = tomllib.loads((out / "federation.toml").read_text())
    except (OSError, ValueError) as error:
        log.warning("the run's settings cannot be read: %s", error)
        settings = {}
    name = f"{snapshot.run}-{folder_id(out)}"
    return RunFacts(snapshot.federation, snapshot.run, name, snapshot.rounds, out, flat(settings))


def folder_id(out: Path) -> str:
    """A random id of the run folder, drawn once and kept in `writers.id`."""
    path = out / "writers.id"
    if not path.exists():
        aside = path.with_suffix(".new")
        aside.write_text(secrets.token_hex(4))
        aside.replace(path)
    return path.read_text()


def flat(settings: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Settings by dotted key: `{"clients": {"fraction": 1}}` is `{"clients.fraction": 1}`."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{under}{key}."))
        else:
            found[under + key] = value
    return found
