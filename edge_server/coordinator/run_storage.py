"""The open files of a run: blobs, unpacked updates, journal, event list, archive; and its object store."""

import logging
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from edge_client.storage.atomic_files import sync
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.storage.background_delete import BackgroundDelete
from edge_server.storage.event_list.recorder import EventRecorder
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import ExaminedUpdate, JournalReader, read_examined
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.update_archive import UpdateArchive
from edge_server.strategy.aggregation.array_stores import FileArrays, NewArrayStore
from edge_server.transport.object_store.store import ObjectStore

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
