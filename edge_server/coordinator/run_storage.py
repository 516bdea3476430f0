"""The open files of a run: blobs, unpacked updates, journal, event list, archive; and its object store."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from edge_client.storage.atomic_files import sync
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.tasks.task_assigner import TaskAssigner
from edge_server.coordinator.validation.contents import UnpackedCache
from edge_server.rounds.device_messages import drop_lost_blobs
from edge_server.rounds.state import Federation
from edge_server.storage.event_list import EventRecorder
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import ExaminedUpdate, JournalReader, read_examined
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_files import BackgroundDelete
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.update_archive import UpdateArchive
from edge_server.strategy.aggregation.array_stores import FileArrays, NewArrayStore
from edge_server.transport.object_store.store import ObjectStore
from schemas.messages import Task
from schemas.messages.tasks import GRAPH


class BlobRepair:
    """Makes the blobs of open tasks again."""

    def __init__(
        self, model: ModelState, store: BlobStore, assigning: TaskAssigner, publisher: ModelPublisher
    ) -> None:
        self._model, self._store = model, store
        self._assigning, self._publisher = assigning, publisher

    def repair(self, digests: Iterable[str], tasks: Sequence[Task]) -> frozenset[str]:
        """Make damaged or missing blobs of the open `tasks` again; returns those that cannot be made."""

        def make_again(damaged: frozenset[str]) -> None:
            if damaged & self._publisher.digests:
                self._publisher.reset()
            needed = [task for task in tasks if any(ref.digest in damaged for ref in task.blobs.values())]
            # Sub-models of one planning share blobs, so all of its tasks are needed.
            attempts = {task.attempt for task in needed}
            planned = [task for task in tasks if task.attempt in attempts]
            self._assigning.restore_blobs(
                planned, self._model.state, tiers=lambda: self._model.tier_specs().values()
            )
            self._draw_graphs(needed)

        return repair_blobs(self._store, digests, make_again)

    def repair_all(self, federation: Federation) -> Federation:
        """Check every blob that a recovered run needs: those of open tasks, and the accepted updates."""
        tasks = open_tasks(federation)
        sent = [update.sent_blob for update in federation.updates.values()]
        updates = [ref.digest for ref in sent if ref is not None]
        named = [ref.digest for task in tasks for ref in task.blobs.values()]
        return drop_lost_blobs(federation, self.repair([*named, *updates], tasks))

    def _draw_graphs(self, tasks: Iterable[Task]) -> None:
        specs = {task.spec.model_dump_json(): task.spec for task in tasks if GRAPH in task.blobs}
        for spec in specs.values():
            graph = self._model.network.graph(self._model.state.params, spec)
            if graph is not None:
                self._store.put_blob(graph)


def open_tasks(federation: Federation) -> list[Task]:
    """The tasks of all participants."""
    return [participant.assignment.task for participant in federation.participants.values()]


def repair_blobs(
    store: BlobStore, digests: Iterable[str], make_again: Callable[[frozenset[str]], None]
) -> frozenset[str]:
    """The damaged or missing blobs that `make_again` does not restore."""
    damaged = frozenset(digest for digest in digests if not store.is_sound(digest))
    if not damaged:
        return damaged
    for digest in sorted(damaged):
        state = "is not the blob of its name" if digest in store else "is gone"
        log.warning("%s %s: it is made again", store.blob_path(digest), state)
        store.blob_path(digest).unlink(missing_ok=True)
    make_again(damaged)
    lost = frozenset(digest for digest in damaged if digest not in store)
    for digest in sorted(lost):
        log.warning("blob %s cannot be made again: the device that sent it is asked for it", digest)
    return lost


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStorage:
    """Opened once for a run, closed once; `object_store` is None where chunks travel through the broker."""

    folder: RunFolder
    store: BlobStore
    unpacked: UnpackedCache
    disposal: BackgroundDelete
    journal: Journal
    events: EventRecorder
    archive: UpdateArchive
    object_store: ObjectStore | None

    @property
    def keep(self) -> NewArrayStore:
        """Makes stores in the run folder for arrays too large for memory."""
        return partial(FileArrays, self.folder.path)

    def forget_blobs(self, keep: frozenset[str] = frozenset()) -> None:
        """Delete the blobs of earlier rounds, except those to `keep`."""
        self.store.keep_only(keep, remove=self.disposal.take)
        if self.object_store is not None:
            self.object_store.forget(keep)
        self.unpacked.keep_only(keep)

    def examined_updates(self) -> list[ExaminedUpdate]:
        return read_examined(self.folder.journal)

    def add_to_history(self, record: RoundRecord) -> None:
        """Append a line to the history; rewrite the file if another process has changed it."""
        if self.folder.add_round(record):
            return
        log.warning("%s was changed by another process: rewritten from the journal", self.folder.history)
        with closing(JournalReader(self.folder.journal)) as reader:
            self.folder.rewrite_history(
                RoundRecord.model_validate_json(closed.record) for closed in reader.rounds() if closed.tested
            )

    def finish(self, summary: Summary, *, keep: frozenset[str]) -> None:
        """Write the summary, delete the blobs except those to `keep`, and close the files.

        A folder with a summary is never completed from the journal again, so the history is on disk before.
        """
        if self.folder.history.exists():
            sync(self.folder.history)
        self.folder.write_summary(summary)
        self.forget_blobs(keep)
        self.unpacked.remove()
        self.close()

    def close(self) -> None:
        self.store.close()
        self.disposal.close()
        self.journal.close()
        self.events.close()


def open_storage(
    folder: RunFolder,
    *,
    durable: bool,
    archive_bytes: int,
    object_store: ObjectStore | None,
    hashes: bool = True,
) -> RunStorage:
    """Open a run's files; `archive_bytes` is the budget of the update archive, 0 for none.

    With `hashes` updates are hashed while they arrive; other processes that verify them need no hash.
    """
    store = BlobStore(folder.blobs, durable=durable, only_writes=not hashes, writes_over=durable)
    folder.write_over(store.spares)
    return RunStorage(
        folder,
        store,
        UnpackedCache(folder.unpacked, anew=True),
        BackgroundDelete(folder.disposal),
        Journal(folder.journal, durable=durable),
        EventRecorder(folder.events),
        UpdateArchive(folder.spool, archive_bytes, spares=store.spares),
        object_store,
    )
