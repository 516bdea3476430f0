"""Finishing the record of a closed round once its model is tested: in the journal, then in the history."""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_client.compression.decoding import decode_groups
from edge_client.training.results import Evaluation
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.round_record import fields_of_test
from edge_server.coordinator.round_tests import RoundTest, RoundTests
from edge_server.coordinator.round_warnings import with_warnings
from edge_server.coordinator.run_storage import RunStorage
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.validation import consistency, contents
from edge_server.rounds import events, rollback
from edge_server.storage import journal, run_files
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import RoundRecord
from schemas.errors import ConfigError, PeerError
from schemas.tensors.files import FlatGroups, digest_of_tensors


@dataclass(frozen=True, eq=False)
class _Open:
    """A closed round that has no line of history yet; `complete` if the journal has all of its record."""

    record: RoundRecord
    test: RoundTest
    outputs: tuple[str, ...]
    complete: bool


class RoundRecorder:
    """Records the rounds of one run in order; at most the last closed one is open.

    The round's model is that of the run until the next one is closed, so that its test can be repeated.
    `earlier` are the recorded rounds, in order.
    """

    def __init__(self, storage: RunStorage, tests: RoundTests, *, last_round: int) -> None:
        self._storage, self._tests, self._last_round = storage, tests, last_round
        self.earlier = [*run_files.known_rounds(storage.folder.history).values()]
        self._lock = threading.Lock()
        self._open: _Open | None = None
        self._recorded: queue.SimpleQueue[RoundRecord] = queue.SimpleQueue()

    def with_warnings(self, record: RoundRecord) -> RoundRecord:
        """The record of a tested round with its warnings; the rounds before are recorded."""
        return with_warnings(record, self.earlier, last=self._last_round)

    def on_closed_round(self, record: RoundRecord, test: RoundTest, outputs: tuple[str, ...]) -> None:
        """Take a round that is closed in the journal; `record` has what was found by then."""
        complete = test.found is not None
        self._open = _Open(record, test, outputs, complete)
        if complete:
            self._recorded.put(record)

    def resume(self, record: RoundRecord, outputs: tuple[str, ...]) -> None:
        """Test the model of the last closed round again, whose test an earlier process did not finish."""
        self._open = _Open(record, self._tests.begin(record.round), outputs, complete=False)

    @property
    def is_open(self) -> bool:
        """Whether the last closed round has no line of history yet."""
        return self._open is not None

    @property
    def is_due(self) -> bool:
        """Whether a round waits only to be recorded."""
        return self._open is not None and self._open.test.is_done

    def when_due(self, call: Callable[[], None]) -> None:
        """Call once the open round, if there is one, can be recorded; from any thread."""
        if self._open is not None:
            self._open.test.when_done(call)

    def record_round(self) -> None:
        with self._lock:
            waiting = self._open
            if waiting is None:
                return
            record = waiting.record
            if not waiting.complete:
                record = self.with_warnings(
                    with_test(record, self._tests.result(waiting.test), waiting.outputs)
                )
                self._storage.journal.write_test(record.round, record.model_dump_json())
            self._storage.add_to_history(record)
            self.earlier.append(record)
            self._open = None
            if not waiting.complete:
                self._recorded.put(record)

    def take(self) -> list[RoundRecord]:
        """The records that have become complete since the last call."""
        taken = []
        while not self._recorded.empty():
            taken.append(self._recorded.get_nowait())
        return taken


def with_test(record: RoundRecord, found: Mapping[int, Evaluation], outputs: tuple[str, ...]) -> RoundRecord:
    """The record with the figures of its test."""
    whole = found.get(0)
    unfit = whole is not None and bool(whole.examples) and whole.loss is None
    change = {**fields_of_test(found, outputs), "diverged": record.diverged or unfit}
    return RoundRecord.model_validate({**dict(record), **change})


# Giving up a closed round: the model before it comes back, without the devices whose updates spoiled it.
class Rollback:
    """Undoes the last closed round of a run."""

    def __init__(
        self, model: ModelState, storage: RunStorage, publisher: ModelPublisher, recorder: RoundRecorder
    ) -> None:
        self._model, self._storage, self._publisher = model, storage, publisher
        self._recorder = recorder

    def undo(self, command: events.RollBack) -> events.RolledBack:
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
            return events.RolledBack(command, failed=str(error))
        out = rollback.choose_suspects(measures, command.able, command.fewest)
        sha256 = digest_of_tensors(FlatGroups({"model": older.params}))
        undone = journal.UndoneRound(command.undone, command.attempt, sha256, out, command.why)
        storage.journal.undone(undone, rollback.strike_rows(command, out))
        self._model.go_back(older, undone)
        self._publisher.reset()
        # In this order: a model that is in its place again has its state next to it.
        durable = self._model.context.durable
        folder.save_checkpoint(self._model.state, durable=durable)
        self._model.save(command.undone, durable=durable)
        return events.RolledBack(command, out)


def measure_updates(
    reader: JournalReader, number: int, kept: Path, unpacked: contents.UnpackedCache
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


def _largest(path: Path, unpacked: contents.UnpackedCache) -> dict[str, float]:
    """The largest magnitude in every group of an archived update; empty if it cannot be read."""
    with contextlib.suppress(OSError, PeerError):
        sizes = consistency.magnitudes_of(decode_groups(unpacked.groups(path)))
        return {
            f"{group}: largest": max((size.largest for size in arrays.values()), default=0.0)
            for group, arrays in sizes.items()
        }
    return {}
