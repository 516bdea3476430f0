"""The slow half of a server: planning, checking, aggregating and exporting, with no network in it.

The server runs these parts one job at a time, in one thread (`jobs.py`).
"""

from dataclasses import dataclass

from edge_server.coordinator.aggregator import Aggregator
from edge_server.coordinator.aggregators.pool import AggregatorPool
from edge_server.coordinator.exporter import EarlyGraphs, Exporter
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.planner import Planner
from edge_server.coordinator.round_recorder import Rollback, RoundRecorder
from edge_server.coordinator.round_tests import RoundTests
from edge_server.coordinator.run_context import RunContext
from edge_server.coordinator.run_storage import BlobRepair, RunStorage
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.tier_assignment import TierAssigner
from edge_server.coordinator.validation.checker import UpdateChecker
from edge_server.coordinator.validation.site_sums import SumChecker
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage.records import Summary
from schemas.values import Reason


@dataclass(frozen=True)
class Coordinator:
    """The parts of one run over one model state."""

    context: RunContext
    storage: RunStorage
    model: ModelState
    signer: ManifestSigner
    tiering: TierAssigner
    planner: Planner
    checker: UpdateChecker
    sums: SumChecker
    aggregator: Aggregator
    aggregators: AggregatorPool
    tests: RoundTests
    recorder: RoundRecorder
    rollback: Rollback
    exporter: Exporter
    early_graphs: EarlyGraphs
    repair: BlobRepair
    publisher: ModelPublisher

    def strike(self, device: str, round_number: int, reason: str) -> None:
        """Journal what counts against a device, or suggests a smaller tier for it."""
        self.storage.journal.struck(device, round_number, reason)
        if reason == Reason.NO_MEMORY:
            self.tiering.short_of_memory(device)

    def finish(self, summary: Summary) -> None:
        """Write the summary, close the files, and delete unneeded blobs.

        A simulation, which is not durable, may go on after its end, with the frames that its devices have.
        """
        self.recorder.record_round()
        self._end_processes()
        keep = frozenset[str]() if self.context.durable else self.publisher.digests
        self.storage.finish(summary, keep=keep)

    def suspend(self) -> None:
        """Close the files of a run that is not over; a test that runs is repeated when it goes on."""
        self._end_processes()
        self.storage.close()

    def _end_processes(self) -> None:
        self.tests.close()
        self.early_graphs.close()
