"""Finishing the record of a closed round once its model is tested: in the journal, then in the history."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge_client.training.results import Evaluation
from edge_server.coordinator.round_record import fields_of_test
from edge_server.coordinator.round_tests import RoundTest, RoundTests
from edge_server.coordinator.round_warnings import with_warnings
from edge_server.coordinator.run_storage import RunStorage
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_files import known_rounds


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
        self.earlier = [*known_rounds(storage.folder.history).values()]
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
