"""The slow half of a server: planning, checking, aggregating and exporting, with no network in it.

The server runs these parts one job at a time, in one thread (`jobs.py`).
"""

from dataclasses import dataclass

from edge_server.config.config import Config
from edge_server.coordinator import evaluation, tier_assignment
from edge_server.coordinator.aggregator import Aggregator
from edge_server.coordinator.aggregators import pool, worker
from edge_server.coordinator.exporter import EarlyGraphs, Exporter
from edge_server.coordinator.initial_model import InitialModel
from edge_server.coordinator.model_state import ModelState, open_model
from edge_server.coordinator.planner import Planner
from edge_server.coordinator.round_recorder import Rollback, RoundRecorder
from edge_server.coordinator.round_tests import RoundTests
from edge_server.coordinator.run_context import RunContext, make_context
from edge_server.coordinator.run_storage import BlobRepair, RunStorage, open_storage
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.tasks.task_assigner import TaskAssigner
from edge_server.coordinator.validation.checker import UpdateChecker, make_checker
from edge_server.coordinator.validation.site_sums import SumChecker
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage import records, recovery
from edge_server.storage.run_folder import RunFolder
from edge_server.transport.object_store.store import ObjectStore
from schemas.errors import Reason
from schemas.submodel import SubModelSpec


@dataclass(frozen=True)
class Coordinator:
    """The parts of one run over one model state."""

    context: RunContext
    storage: RunStorage
    model: ModelState
    signer: ManifestSigner
    tiering: tier_assignment.TierAssigner
    planner: Planner
    checker: UpdateChecker
    sums: SumChecker
    aggregator: Aggregator
    aggregators: pool.AggregatorPool
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

    def finish(self, summary: records.Summary) -> None:
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


# Building the coordinator of a run from its configuration and its folder.
def assemble(
    config: Config,
    run: str,
    folder: RunFolder,
    *,
    resumable: bool = True,
    resume: recovery.Resumption | None = None,
    durable: bool = True,
    signer: ManifestSigner | None = None,
    secret: bytes | None = None,
    object_store: ObjectStore | None = None,
    broadcasts: bool = True,
    testing: evaluation.Testing | None = None,
    first: InitialModel | None = None,
) -> Coordinator:
    """Open the run in `folder`: a new one, or the one that `resume` describes.

    For `resumable` and `durable` see `RunContext`. Without a `signer` nothing is signed; without `testing`
    the test data of the configuration is loaded. `secret` is the 32 bytes that noise is made from, drawn
    unless given. With `broadcasts` tasks name shared topics for blobs that several devices need. `first` is
    the model that a new run starts from. Raises `ConfigError` for a configuration that cannot be run.
    """
    signer = signer or ManifestSigner(config.federation.name, run)
    testing = testing or evaluation.Testing(
        config, classes=resume.classes if resume else (), columns=resume.columns if resume else ()
    )
    resumable = resumable or config.federation.roll_back
    context, module = make_context(config, run, testing, resumable=resumable, durable=durable)
    archive_bytes = config.federation.replay_mb * 10**6 if durable else 0
    storage = open_storage(
        folder,
        durable=durable,
        archive_bytes=archive_bytes,
        object_store=object_store,
        hashes=not _aggregator_count(context),
    )
    model = open_model(
        context, module, folder, signer, keep=storage.keep, resume=resume, first=first, secret=secret
    )
    tasks = _task_makers(model, storage, signer, resume, broadcasts=broadcasts)
    coordinator = _connect(model, storage, signer, tasks, resume or recovery.Resumption(0))
    model.save(model.state.round, durable=durable)
    model.save_checkpoint(durable=durable)
    if resume is not None and resume.untested is not None:
        coordinator.recorder.resume(resume.untested, testing.classes)
    if first is not None and resume is None:
        # A run that is restarted before its first round does not ask the model again.
        storage.journal.write_agreed_lists(testing.classes, testing.columns)
    if durable:
        storage.journal.begun(run, config.federation.name)
    return coordinator


def _task_makers(
    model: ModelState,
    storage: RunStorage,
    signer: ManifestSigner,
    resume: recovery.Resumption | None,
    *,
    broadcasts: bool,
) -> tuple[TaskAssigner, ModelPublisher]:
    context = model.context
    publisher = ModelPublisher(
        storage.folder.frames,
        storage.store,
        context.channel_map,
        context.strategy.downlink,
        durable=context.durable,
        # The frames of a model that was given up lead nowhere.
        go_on=resume is not None and resume.undone is None,
    )
    assigning = TaskAssigner(
        context.task_terms,
        context.strategy,
        context.network,
        model.fixed,
        storage.store,
        publisher,
        signer,
        storage.object_store,
        broadcasts=broadcasts,
        # The devices of a run that goes on have the channel map.
        new_map=resume is None,
    )
    return assigning, publisher


def _connect(
    model: ModelState,
    storage: RunStorage,
    signer: ManifestSigner,
    tasks: tuple[TaskAssigner, ModelPublisher],
    resume: recovery.Resumption,
) -> Coordinator:
    assigning, publisher = tasks
    model.add_clients(resume.clients)
    tiering = tier_assignment.make_tier_assigner(model, resume)
    aggregators = _aggregators(model.context, storage)
    checker = make_checker(model, storage, resume, aggregators)
    sums = SumChecker(
        storage.store,
        storage.unpacked,
        model.context.channel_map,
        model.context.testing.canary(model.network),
        lambda: (model.params_of(SubModelSpec()), model.state.round),
        parts=model.context.parts,
    )
    tests = RoundTests(model, storage.folder)
    recorder = RoundRecorder(storage, tests, last_round=model.context.config.federation.last_round)
    early = EarlyGraphs(model, storage.folder)
    return Coordinator(
        context=model.context,
        storage=storage,
        model=model,
        signer=signer,
        tiering=tiering,
        planner=Planner(
            model, storage, assigning, publisher, tiering, early, journaled=(resume.classes, resume.columns)
        ),
        checker=checker,
        sums=sums,
        aggregator=Aggregator(model, storage, checker, sums, tiering, tests, recorder, aggregators),
        aggregators=aggregators,
        tests=tests,
        recorder=recorder,
        rollback=Rollback(model, storage, publisher, recorder),
        exporter=Exporter(model, storage.folder, signer, early),
        early_graphs=early,
        repair=BlobRepair(model, storage.store, assigning, publisher),
        publisher=publisher,
    )


def _aggregators(context: RunContext, storage: RunStorage) -> pool.AggregatorPool:
    stated, folder = context.config.federation.aggregators, storage.folder
    return pool.AggregatorPool(
        _aggregator_count(context),
        worker.AggregatorSetup(
            context.config.federation.name,
            context.config.strategy,
            context.channel_map,
            folder.blobs,
            folder.unpacked,
            folder.sums,
        ),
        worth_bytes=pool.WORTH_BYTES if stated is None else 0,
    )


def _aggregator_count(context: RunContext) -> int:
    """The most aggregator processes of a server; a simulation has none."""
    stated = context.config.federation.aggregators
    return (pool.usual_count() if stated is None else stated) if context.durable else 0
