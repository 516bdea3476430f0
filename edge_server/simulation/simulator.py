"""Runs a simulated federation from a checked configuration: data, devices, engine, run folder."""

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from edge_client.data import columns, dataset
from edge_server.config.checks.openings import check_can_be_simulated
from edge_server.config.config import Config
from edge_server.config.test_data import as_the_federation
from edge_server.coordinator import coordinator as assembly
from edge_server.coordinator import known_inputs, launch, network_check, run_context, scaling
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.initial_model import InitialModel, find_initial_model
from edge_server.observability.counters import RunCounters
from edge_server.observability.report.report import write_report
from edge_server.observability.snapshot import Watcher, WatcherGroup
from edge_server.releases.registry.register import default_registry
from edge_server.rounds.fleet import MAX_DEVICES
from edge_server.simulation import client_work, cohorts, events, inputs
from edge_server.simulation.engines import prepare_engine
from edge_server.simulation.population import make_population, share_data
from edge_server.simulation.resume import ResumedRun, open_folder, restore
from edge_server.simulation.simulation import Simulation
from edge_server.simulation.virtual_devices import make_edges, make_surroundings
from edge_server.storage import disk, records, service_folder
from edge_server.storage.run_folder import RunFolder

Notify = Callable[[Iterable[str]], None]
Stopped = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Inside, what asks the user's run to end calls the function."""


def simulate(
    config: Config,
    *,
    out: Path,
    watcher: Watcher,
    resume: bool = False,
    export: bool = True,
    notify: Notify = launch.print_notices,
    stopped: Stopped = launch.stopped_by_signals,
) -> records.Summary:
    """Run a simulation to its end, or to Ctrl-C, and write its run folder at `out`.

    `resume` continues after the last closed round, `export` writes ONNX files, and `notify` gets what the
    user should know before the first round. Raises `ConfigError`, and `EdgeError` for a disk that is full.
    """
    with disk.told_in_words(out):
        config = known_inputs.with_known_inputs(inputs.as_simulated(config), registries_near(out), out)
        config = scaling.with_scaling(config, out, registries_near(out), _measure_statistics)
        return _simulate(config, out, watcher, resume=resume, export=export, notify=notify, stopped=stopped)


def _measure_statistics(config: Config, folder: Path) -> records.Summary:
    """Simulate a pass of statistics, from its beginning if it was cut off."""
    shutil.rmtree(folder, ignore_errors=True)
    return _simulate(config, folder, WatcherGroup(), resume=False, export=False, notify=launch.print_notices)


def _simulate(
    config: Config,
    out: Path,
    watcher: Watcher,
    *,
    resume: bool,
    export: bool,
    notify: Notify,
    stopped: Stopped = launch.stopped_by_signals,
) -> records.Summary:
    """`simulate` with a configuration in which nothing is left to be asked."""
    begin_engine = prepare_engine(config.simulation)
    data = inputs.training_data(config)
    first = checked_initial_model(config, data, out, resume=resume)
    population = make_population(config, data.strata, data.origins)
    config = cohorts.with_cohort_size(config, data, population)
    folder = open_folder(out, config, resume=resume)
    timeline: events.Timeline[events.TimelineEvent] = events.Timeline()
    tally = RunCounters(lambda: timeline.now, most=max(MAX_DEVICES, config.clients.num_clients))
    resumed = restore(folder, tally) if resume else None
    coordinator = assemble_simulated(config, folder, resumed, first, resume=resume)
    notify(coordinator.model.notices)
    data = columns.in_columns(data, coordinator.context.columns.columns)
    # What devices say of their own data is the same before their classes are agreed and after.
    own = data.subset(())
    if names := coordinator.context.classes.names:
        data = as_the_federation(data, coordinator.context.spec, names)
    with _scratch(out) as scratch:
        shared = share_data(data, population, scratch)
        device, cohort = config.simulation.device, config.simulation.cohort_size
        setup = client_work.WorkSetup(
            shared, scratch / "blobs", out / "clients", config.model.name, device, cohort
        )
        # The workers have the data.
        del data
        with contextlib.closing(begin_engine(setup)) as engine:
            around = make_surroundings(config, coordinator, engine, setup, timeline, tally)
            simulation = Simulation(
                make_edges(config, population, own, around, shared),
                around,
                coordinator,
                watcher,
                export=export,
                resumed=resumed,
            )
            with stopped(simulation.stop):
                summary = simulation.run(resumed.boundary if resumed else None)
    write_report(folder.path)
    return summary


@contextlib.contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A temporary folder on the disk of the run's blobs, so that these can be linked."""
    folder = out / "scratch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def checked_initial_model(
    config: Config, data: dataset.LabelledData, out: Path, *, resume: bool
) -> InitialModel | None:
    """The model that a new run starts from, if any; `ConfigError` if the network does not fit the data."""
    check_can_be_simulated(config)
    first = None if resume else find_initial_model(config, registries_near(out))
    network_check.check_network(config, data, first)
    return first


def assemble_simulated(
    config: Config, folder: RunFolder, resumed: ResumedRun | None, first: InitialModel | None, *, resume: bool
) -> Coordinator:
    """The coordinator, at the last closed round if any; without one it starts from the recorded model."""
    if resume and resumed is None:
        first = find_initial_model(config, registries_near(folder.path), folder)
    return assembly.assemble(
        config,
        f"{config.federation.name[:40]}-seed-{config.federation.seed}",
        folder,
        resumable=config.clients.mode == "rounds",
        resume=resumed.resumption if resumed else None,
        durable=False,
        secret=run_context.repeatable_secret(config.federation.seed),
        broadcasts=False,
        first=first,
    )


def registries_near(out: Path) -> list[Path]:
    return [default_registry(out), service_folder.RUNS / "registry"]
