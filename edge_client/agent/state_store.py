"""The state folder of a device: what it contains, what is read at the start, when files are removed."""

import contextlib
import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.agent.session.events import BlobChecked, ChunkLost, Settled
from edge_client.agent.session.snapshot import SessionSnapshot, blobs_of
from edge_client.agent.session.state import Session
from edge_client.agent.settings import AgentSettings
from edge_client.storage import atomic_files
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.training.checkpoints import EpochCheckpoints
from edge_client.transport.chunk_transfer import WriteChunk
from schemas import errors, messages
from schemas.tensors.chunks import BlobRef

# Writes that a full or failing disk may refuse, which must never end the device.


def keep_chunk(store: BlobStore, chunk: WriteChunk) -> ChunkLost | None:
    """Write a chunk; returns the event if that fails."""
    try:
        store.write_chunk(chunk.ref, chunk.index, chunk.data, chunk.crc)
    except OSError as error:
        log.warning("chunk %d of %s cannot be kept: %s", chunk.index, chunk.ref.digest[:16], error)
        return ChunkLost(chunk.ref.digest, chunk.index)
    return None


def keep_blob(store: BlobStore, ref: BlobRef) -> BlobChecked | ChunkLost:
    """Verify a complete blob; if the disk fails, its last chunk is requested again and then retried."""
    try:
        return BlobChecked(ref.digest, store.verify(ref))
    except OSError as error:
        log.warning("blob %s cannot be kept: %s", ref.digest[:16], error)
        return ChunkLost(ref.digest, ref.chunks - 1)


def forget_others(store: BlobStore, needed: frozenset[str]) -> None:
    """Remove all blobs but those needed."""
    try:
        store.keep_only(needed)
    except OSError as error:
        log.warning("what is no longer needed cannot be removed: %s", error)


log = logging.getLogger(__name__)


class StateStore:
    """The state folder of one device, except certificates and finished models."""

    def __init__(self, settings: AgentSettings) -> None:
        atomic_files.sweep(settings.state)
        # A blob that a power cut damages is found by `load_snapshot`, and fetched or made again.
        self.blobs = BlobStore(settings.state / "blobs", durable=False, writes_over=True)
        self.private = PrivateState(settings.state / "private")
        self.checkpoints = EpochCheckpoints(settings.state / "epochs", interval_s=settings.checkpoint_s)
        self.features = settings.state / "features"
        self._settings = settings
        self._file = SnapshotFile(settings.state / "task.json")
        self._remembered: Session | None = None

    def load_snapshot(self) -> SessionSnapshot:
        """The session of an earlier process; removes partial files of older tasks, keeps complete blobs."""
        snapshot = self._file.load_snapshot(self._settings.federation, self._settings.device)
        if snapshot.task is not None and (why := snapshot.task.excess()):
            log.warning("the task of an earlier process is ignored: %s", why)
            snapshot = snapshot.model_copy(update={"task": None, "result": None})
        self.blobs.drop_parts(snapshot.blobs())
        self.blobs.drop_damaged()
        self.checkpoints.keep_only(snapshot.task)
        return snapshot

    def remember(self, session: Session) -> None:
        if self._remembered is not None and session.recalls_as(self._remembered):
            return
        self._remembered = session
        if self._file.save(session.snapshot):
            self.checkpoints.keep_only(session.task if session.result is None else None)

    def settle(self, settled: Settled) -> None:
        """Commit the private state of a round whose result was accepted; discard it otherwise."""
        result = settled.result
        if not isinstance(result, messages.Update):
            return
        finish = self.private.commit if settled.refusal is None else self.private.discard
        try:
            finish(result.run, result.round, result.attempt)
        except OSError as error:
            log.warning("round %d: the private state cannot be saved: %s", result.round, error)

    def check_room(self, task: messages.Task) -> None:
        """Raise `PeerError` if the missing blobs and the unpacked layers of a task do not fit on the disk.

        Features, which can be computed again, make room for them.
        """
        missing = {ref.digest: ref.size for ref in task.blobs.values() if ref.digest not in self.blobs}
        needed = sum(missing.values()) + sum(layer.unpacked or 0 for layer in (*task.layers, *task.frozen))
        # Files of other tasks go once this one is begun.
        others = self.blobs.bytes_without({ref.digest for ref in task.blobs.values()} - missing.keys())
        try:
            atomic_files.check_free(self.blobs.directory, needed - others)
        except errors.PeerError:
            features = [*self.features.glob("*")]
            for path in features:
                path.unlink(missing_ok=True)
            if not features:
                raise
            atomic_files.check_free(self.blobs.directory, needed - others)

    def make_room(self, session: Session) -> frozenset[str]:
        """Remove all blobs but those of the task and its result; returns the digests of those that remain."""
        results = (session.result or session.masks.trained, session.unanswered)
        refs = (ref for result in results for ref in blobs_of(session.task, result))
        forget_others(self.blobs, frozenset(ref.digest for ref in refs))
        return self.blobs.digests()

    def close(self) -> None:
        """Remove files that were kept to be overwritten; the next process removes what this one cannot."""
        with contextlib.suppress(OSError):
            self.blobs.close()


class SnapshotFile:
    """The snapshot file; the device goes on without one if it cannot be written or read.

    Writes are synced to disk if a power cut would lose a result, or the rounds in which masks were used.
    Losing any other change only costs a repeated offer or a repeated result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: SessionSnapshot | None = None

    def load_snapshot(self, federation: str, device: str) -> SessionSnapshot:
        """The last snapshot; an empty one if the file is damaged, or of another device or version."""
        empty = SessionSnapshot(federation=federation, device=device)
        try:
            memory = SessionSnapshot.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return empty
        except (OSError, ValidationError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return empty
        if (memory.federation, memory.device) != (federation, device):
            log.warning("%s is ignored: it belongs to %s in %s", self._path, memory.device, memory.federation)
            return empty
        return memory

    def save(self, memory: SessionSnapshot) -> bool:
        """Replace the snapshot; returns whether it has changed."""
        if memory == self._last:
            return False
        masked = self._last.masked if self._last is not None else {}
        durable = memory.result is not None or memory.masked != masked
        self._last = memory
        try:
            atomic_files.write_synced(self._path, memory.model_dump_json().encode(), durable=durable)
        except OSError as error:
            # Better no snapshot than an old one, which would bring back a task that is over.
            log.warning("%s cannot be written, a restart will begin the task anew: %s", self._path, error)
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True
