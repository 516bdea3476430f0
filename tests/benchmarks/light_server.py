"""A coordinator for one round: the same bytes for all devices; accepts updates that match their digest.

The rest of the server (connection, sessions, disk and object store) is the real one.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edge_client.storage.blob_store import BlobStore
from edge_server.config.config import Config
from edge_server.coordinator.round_record import RoundFigures
from edge_server.observability.counters import Durations
from edge_server.rounds import events
from edge_server.rounds.agreed_lists import ClassList
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage.event_list import EventRecorder
from edge_server.storage.records import RoundRecord, Summary
from edge_server.transport.object_store.store import ObjectStore
from schemas.errors import Reason
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec
from tests.benchmarks.light_devices import FEDERATION


class NoAggregators:
    """No processes beside the server."""

    def __len__(self) -> int:
        return 0

    def close(self) -> None:
        """There is nothing to end."""


class LightCoordinator:
    """Gives every device the same blob, and accepts updates that match their digest."""

    def __init__(self, config: Config, folder: Path, model: bytes, object_store: ObjectStore | None) -> None:
        self.store, self.object_store = BlobStore(folder / "blobs"), object_store
        self.signer = ManifestSigner(FEDERATION, "run-1")
        self.context = SimpleNamespace(
            config=config,
            run="run-1",
            durations=Durations(),
            classes=ClassList(),
            testing=SimpleNamespace(tested_on=""),
            privacy=SimpleNamespace(on=False),
            strategy=SimpleNamespace(statistics=None),
            site_terms=None,
            trained_share=None,
        )
        self.storage = SimpleNamespace(
            folder=SimpleNamespace(blobs=self.store.directory),
            store=self.store,
            object_store=object_store,
            events=EventRecorder(folder / "events.jsonl"),
            journal=SimpleNamespace(
                write_end=lambda outcome, detail: None, has_accepted=lambda update: False
            ),
            close=lambda: None,
        )
        self.aggregators = NoAggregators()
        self.sums, self.weigh = SimpleNamespace(check=None), None
        parameters = SimpleNamespace(parameters=len(model) // 4)
        self.model = SimpleNamespace(network=parameters, state=None, started_from=None)
        self.tiering = self.planner = self.checker = self.aggregator = self.exporter = self
        self.rollback = self
        self.early_graphs = SimpleNamespace(begin=lambda: None)
        self._closed = list[RoundRecord]()
        self.recorder = SimpleNamespace(
            take=self._taken, record_round=lambda: None, when_due=lambda record: None
        )
        self.repair = SimpleNamespace(repair=lambda digests, tasks: frozenset[str](), repair_all=None)
        self._ref, self.began, self.write_end = self.store.put_blob(model), 0.0, 0.0

    def plan(self, command: events.PlanRound, *, chunk_bytes: int) -> events.RoundPlanned:
        """Plan the tasks of the only round; the clock starts."""
        self.began = time.perf_counter()
        if self.object_store is not None:
            self.object_store.publish([self._ref], self.store)
        tasks = {
            device.name: TrainTask(
                federation=FEDERATION,
                run="run-1",
                round=command.round,
                attempt=command.attempt,
                tier=1,
                ratio=0.0,
                model=ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10),
                training=TrainingPlan(),
                blobs={"state": self._ref},
                depot=self.object_store.terms if self.object_store else None,
            )
            for device in command.devices
        }
        limit = 2 * self._ref.size
        return events.RoundPlanned(
            command.attempt, {name: events.Assignment(task, limit) for name, task in tasks.items()}
        )

    def check_all(
        self, checks: Sequence[tuple[events.CheckUpdate, TrainTask]], state: None
    ) -> list[events.UpdateChecked]:
        """Check all updates with one wait for the disk."""
        self.store.keep_sound(command.update.blob for command, _ in checks)
        return [self._check(command) for command, _ in checks]

    def _check(self, command: events.CheckUpdate) -> events.UpdateChecked:
        """Check size and digest."""
        sound = self.store.verify(command.update.blob)
        reason = None if sound else Reason.DIGEST_MISMATCH
        return events.UpdateChecked(command.device, command.update.blob.digest, reason)

    def close(self, command: events.CloseRound, figures: RoundFigures) -> RoundRecord:
        """Close the round; the clock stops."""
        self.write_end = time.perf_counter()
        record = RoundRecord(
            round=command.round,
            fraction=1.0,
            local_epochs=0,
            selected=command.selected,
            completed=tuple(command.updates),
            dropped=command.dropped,
            rejected=(),
            uplink_bytes=figures.uplink,
            downlink_bytes=figures.downlink,
            duration_s=figures.duration_s,
        )
        self._closed.append(record)
        return record

    def _taken(self) -> list[RoundRecord]:
        taken, self._closed = self._closed, []
        return taken

    def tier(self, device: Any) -> int:
        """All devices have tier 1."""
        return 1

    def undo(self, command: Any) -> Any:
        """Fail: there is only one round."""
        raise AssertionError("a run of one round is never rolled back")

    def strike(self, *strike: Any) -> None:
        """Do nothing: devices are not tracked."""

    def export_tiers(self) -> dict[int, Path]:
        """Export nothing."""
        return {}

    def finish(self, summary: Summary) -> None:
        """Do nothing: no file is written."""

    def suspend(self) -> None:
        """Do nothing: no file is open."""


class Nobody:
    """A watcher that does nothing."""

    def show(self, snapshot: Any) -> None:
        """Do nothing."""
