"""Giving up a closed round: the model before it comes back, without the devices whose updates spoiled it."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from edge_client.compression.decoding import decode_groups
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.round_recorder import RoundRecorder
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.validation.magnitudes import magnitudes_of
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.rounds.events import RollBack, RolledBack
from edge_server.rounds.rollback import choose_suspects, strike_rows
from edge_server.storage.journal import UndoneRound
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import RoundRecord
from schemas.errors import ConfigError, PeerError
from schemas.tensors.blobs import FlatGroups
from schemas.tensors.files import digest_of_tensors


class Rollback:
    """Undoes the last closed round of a run."""

    def __init__(
        self, model: ModelState, storage: RunStorage, publisher: ModelPublisher, recorder: RoundRecorder
    ) -> None:
        self._model, self._storage, self._publisher = model, storage, publisher
        self._recorder = recorder

    def undo(self, command: RollBack) -> RolledBack:
        """Go back to the state before the last closed round.

        The round is given up once the journal says so; a server that dies after that repeats the rest.
        """
        self._recorder.record_round()
        folder, storage = self._storage.folder, self._storage
        try:
            with contextlib.closing(JournalReader(folder.journal)) as reader:
                sha256 = reader.begun_with().get(command.undone - 1)
                kept = storage.archive.folder(command.undone)
                measures = measure_updates(reader, command.undone, kept, storage.unpacked)
            older = folder.load_state(command.undone - 1, sha256, keep=storage.keep)
        except ConfigError as error:
            return RolledBack(command, failed=str(error))
        out = choose_suspects(measures, command.able, command.fewest)
        sha256 = digest_of_tensors(FlatGroups({"model": older.params}))
        undone = UndoneRound(command.undone, command.attempt, sha256, out, command.why)
        storage.journal.undone(undone, strike_rows(command, out))
        self._model.go_back(older, undone)
        self._publisher.reset()
        # In this order: a model that is in its place again has its state next to it.
        durable = self._model.context.durable
        folder.save_checkpoint(self._model.state, durable=durable)
        self._model.save(command.undone, durable=durable)
        return RolledBack(command, out)


def measure_updates(
    reader: JournalReader, number: int, kept: Path, unpacked: UnpackedCache
) -> Mapping[str, Mapping[str, float]]:
    """The size of each update of a closed round, by device and measure.

    The updates are read from the archive (`kept`); without them, the norms in the journal
    count. Of a masked round only the names are known.
    """
    closed = next(closed for closed in reader.rounds() if closed.round == number)
    norms = {(row.device, row.digest): row.norms for row in reader.examined_updates() if row.reason is None}
    examples = {
        (u.device, u.blob.digest): u.metrics.examples for u, reason, _ in reader.updates() if not reason
    }
    found = {
        update.device: {
            **norms.get((update.device, update.digest), {}),
            "examples": float(examples.get((update.device, update.digest), 0)),
            **_largest(kept / update.digest, unpacked),
        }
        for update in closed.updates
    }
    with contextlib.suppress(ValueError):
        completed = RoundRecord.model_validate_json(closed.record).completed
        return {name: found.get(name, {}) for name in completed}
    return found


def _largest(path: Path, unpacked: UnpackedCache) -> dict[str, float]:
    """The largest magnitude in every group of an archived update; empty if it cannot be read."""
    with contextlib.suppress(OSError, PeerError):
        sizes = magnitudes_of(decode_groups(unpacked.groups(path)))
        return {
            f"{group}: largest": max((size.largest for size in arrays.values()), default=0.0)
            for group, arrays in sizes.items()
        }
    return {}
