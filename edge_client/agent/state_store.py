"""What a device has on its disk, what it reads of that when it wakes up, and what goes when."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from edge_client.agent.disk_errors import forget_others, settle
from edge_client.agent.session.events import Settled
from edge_client.agent.session.snapshot import SessionSnapshot, blobs_of
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.session_store import SnapshotFile
from edge_client.agent.settings import AgentSettings
from edge_client.storage.atomic_files import sweep
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.training.checkpoints import EpochCheckpoints


class StateStore:
    """The state folder of one device, with all that lies in it but certificates and finished models."""

    def __init__(self, settings: AgentSettings) -> None:
        sweep(settings.state)
        # What a power cut takes of a blob, or writes over, is missed in `wake`, and fetched or made anew.
        self.store = BlobStore(settings.state / "blobs", durable=False, writes_over=True)
        self.private = PrivateState(settings.state / "private")
        self.checkpoints = EpochCheckpoints(settings.state / "epochs", interval_s=settings.checkpoint_s)
        self._settings = settings
        self._memory = SnapshotFile(settings.state / "task.json")
        self._remembered: Session | None = None

    def wake(self) -> SessionSnapshot:
        """What an earlier process was at; what is left of older tasks goes, finished blobs stay."""
        memory = self._memory.load(self._settings.federation, self._settings.device)
        self.store.drop_parts(memory.blobs())
        self.store.drop_damaged()
        self.checkpoints.keep_only(memory.task)
        return memory

    def remember(self, session: Session) -> None:
        """Put down what a later process must know."""
        if self._remembered is not None and session.recalls_as(self._remembered):
            return
        self._remembered = session
        if self._memory.save(session.memory):
            self.checkpoints.keep_only(session.task if session.result is None else None)

    def settle(self, settled: Settled, session: Session) -> Session:
        """Let what was kept of a round count, or not, and make room where nothing is under way."""
        settle(self.private, settled)
        # An answer may come late, and a worker's own files must not be taken from under it.
        return session if session.phase is SessionPhase.WORKING else self.make_room(session)

    def make_room(self, session: Session) -> Session:
        """Forget the blobs that nobody is going to ask for; those of the task and its result stay."""
        result = session.result or session.masks.trained
        forget_others(self.store, frozenset(ref.digest for ref in blobs_of(session.task, result)))
        return replace(session, held=self.store.digests())

    def close(self) -> None:
        """Remove what was only kept to be written over; what cannot be is removed by the next process."""
        with contextlib.suppress(OSError):
            self.store.close()
