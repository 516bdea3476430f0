"""Blobs whose files are gone or damaged: logged, removed, and made again where that is possible."""

import logging
from collections.abc import Callable, Iterable, Sequence

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.tasks.task_assigner import TaskAssigner
from edge_server.rounds.device_messages import drop_lost_blobs
from edge_server.rounds.state import Federation
from schemas.messages import Task
from schemas.messages.tasks import GRAPH

log = logging.getLogger(__name__)


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
