"""From a checked configuration to a simulated federation that runs: data, devices, engine, run folder."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edge_client.data.dataset import LabelledData
from edge_client.data.shapes import fit
from edge_client.data.splits import part_of
from edge_client.storage.blob_store import BlobStore
from edge_server.config.config import Config
from edge_server.config.test_data import as_the_federation, model_spec, read_source
from edge_server.coordinator.assembly import assemble
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.initial_model import InitialModel, find_initial_model
from edge_server.coordinator.launch import print_notices, stopped_by_signals
from edge_server.coordinator.network_check import check_network
from edge_server.coordinator.privacy_session import repeatable_secret
from edge_server.observability.counters import RunCounters
from edge_server.observability.report.provenance_file import write_provenance
from edge_server.observability.report.report import write_report
from edge_server.observability.snapshot import Watcher
from edge_server.releases.registry.register import default_registry
from edge_server.rounds.fleet import MAX_DEVICES
from edge_server.rounds.reputation import ReputationRules, replay_strikes
from edge_server.rounds.state import Undone
from edge_server.simulation.client_work import WorkSetup
from edge_server.simulation.device import DeviceEdge, Presence, Surroundings
from edge_server.simulation.durations import pace_of
from edge_server.simulation.engines import prepare_engine
from edge_server.simulation.events import Happening
from edge_server.simulation.population import VirtualDevice, make_population
from edge_server.simulation.resume import reopen, restore
from edge_server.simulation.round_checkpoint import Boundary
from edge_server.simulation.shared_data import share_data
from edge_server.simulation.simulation import Simulation
from edge_server.simulation.timeline import Timeline
from edge_server.storage.journal import UndoneRound
from edge_server.storage.journal_reader import ExaminedUpdate, JournalReader
from edge_server.storage.records import Summary
from edge_server.storage.recovery import Resumption
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.run_names import RUNS
from schemas.base import Settings
from schemas.errors import ConfigError
from schemas.submodel import SubModelSpec
from schemas.values import CapabilityProfile, DataCard


def simulate(
    config: Config, *, out: Path, watcher: Watcher, resume: bool = False, export: bool = True
) -> Summary:
    """Run a simulation to its end, Ctrl-C included, and leave its run folder at `out`.

    With `resume`, go on from the last round that was closed there. `export`: at the end write the tiers'
    ONNX files. Raises `ConfigError` for what cannot be.
    """
    config = as_simulated(config)
    begin_engine = prepare_engine(config.simulation)
    data = _train_data(config)
    registries = [default_registry(out), RUNS / "registry"]
    first = None if resume else find_initial_model(config, registries)
    check_network(config, data, first)
    population = make_population(config, data.labels)
    folder = reopen(out, config) if resume else RunFolder.create(out, config)
    write_provenance(folder.path)
    timeline: Timeline[Happening] = Timeline()
    tally = RunCounters(lambda: timeline.now, most=max(MAX_DEVICES, config.clients.num_clients))
    boundary = restore(folder, tally) if resume else None
    before = _before(folder, boundary) if boundary else Before()
    if resume and boundary is None:
        first = find_initial_model(config, registries, folder)
    coordinator = _assemble(config, folder, boundary, before, first)
    print_notices(coordinator.notices)
    if names := coordinator.context.classes.names:
        data = as_the_federation(data, names)
    with _scratch(out) as scratch:
        setup = WorkSetup(
            share_data(data, population, scratch),
            scratch / "blobs",
            out / "clients",
            config.model.name,
            config.simulation.device,
        )
        # The workers have the data; from here on only its shape is wanted.
        data = data.subset(())
        with contextlib.closing(begin_engine(setup)) as engine:
            blobs = BlobStore(setup.blobs, durable=False)
            around = Surroundings(
                config.federation.name, timeline, engine, blobs, setup.clients, tally, _macs(coordinator)
            )
            simulation = Simulation(
                _edges(config, population, data, around),
                around,
                coordinator,
                watcher,
                export=export,
                reputations=replay_strikes(before.strikes, ReputationRules(after=0)),
                undone=tuple(Undone(one.round, one.attempt, one.left_out) for one in before.undone),
            )
            with stopped_by_signals(simulation.stop):
                summary = simulation.run(boundary)
    write_report(folder.path)
    return summary


def _assemble(
    config: Config, folder: RunFolder, boundary: Boundary | None, before: Before, first: InitialModel | None
) -> Coordinator:
    """The coordinator of a simulation, resumed at the boundary if there is one."""
    return assemble(
        config,
        f"{config.federation.name[:40]}-seed-{config.federation.seed}",
        folder,
        resumable=config.clients.mode == "rounds",
        resume=_resumption(boundary, before) if boundary else None,
        durable=False,
        secret=repeatable_secret(config.federation.seed),
        broadcasts=False,
        first=first,
    )


def as_simulated(config: Config) -> Config:
    """The configuration with what simulations do unless told.

    No device exports a model of its own, and where neither data nor shapes are named, the shipped digits are
    shared out. Devices and server have one source: what it names from here on is the server's part.
    """
    update: dict[str, Settings] = {}
    if not {"deliver", "deliver_every"} & config.federation.model_fields_set:
        update["federation"] = config.federation.model_copy(update={"deliver": "none"})
    if config.data.source is None and config.model.input_shape is None:
        update["data"] = config.data.model_copy(update={"source": "digits"})
    elif config.data.source is not None:
        update["data"] = config.data.model_copy(update={"source": part_of(config.data.source, "test")})
    return config.model_copy(update=update)


def _train_data(config: Config) -> LabelledData:
    if config.data.source is None:
        raise ConfigError("[data] source: none is named, and a simulation needs data of [model] input-shape")
    data = read_source(config, part_of(config.data.source, "train"))
    return fit(data, model_spec(config, data).input_shape)


@contextlib.contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A folder beside the run's blobs, so that these can be linked; gone when the simulation ends."""
    folder = out / "scratch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _macs(coordinator: Coordinator) -> Callable[[SubModelSpec], int]:
    """What a sub-model costs; those of one round are few."""
    known: dict[str, int] = {}

    def macs(spec: SubModelSpec) -> int:
        key = spec.model_dump_json()
        if key not in known:
            known[key] = coordinator.model.network.macs(spec)
        return known[key]

    return macs


@dataclass(frozen=True)
class Before:
    """What the journal of an interrupted run says of its closed rounds: updates, strikes, rounds given up.

    The list of `classes` stays what it was.
    """

    examined: tuple[ExaminedUpdate, ...] = ()
    strikes: tuple[tuple[str, int, str], ...] = ()
    undone: tuple[UndoneRound, ...] = ()
    classes: tuple[str, ...] = ()


def _before(folder: RunFolder, boundary: Boundary) -> Before:
    """What came after the last closed round is done again, and has not been seen yet; it stays undone."""
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        return Before(
            tuple(one for one in reader.examined() if one.round <= boundary.round),
            tuple((one.device, one.round, one.reason) for one in reader.strikes()),
            tuple(one for one in reader.undone() if one.round <= boundary.round),
            reader.classes(),
        )


def _resumption(boundary: Boundary, before: Before) -> Resumption:
    pending = next((one for one in before.undone if one.round == boundary.round), None)
    return Resumption(boundary.round, examined=before.examined, undone=pending, classes=before.classes)


def _edges(
    config: Config, population: tuple[VirtualDevice, ...], data: LabelledData, around: Surroundings
) -> dict[str, DeviceEdge]:
    # Devices that are alike share what describes them: there may be a hundred thousand.
    @cache
    def profile_of(board: str, tier: int) -> CapabilityProfile:
        return CapabilityProfile(machine=board, tier=tier)

    @cache
    def card_of(examples: int) -> DataCard:
        return DataCard(
            source=part_of(str(config.data.source), "train"),
            examples=examples,
            input_shape=data.input_shape,
            num_classes=data.num_classes,
        )

    return {
        device.name: DeviceEdge(
            device,
            pace_of(device),
            around,
            profile=profile_of(device.board or "", device.tier),
            data=card_of(len(device.train)),
            presence=_presence(config, device, index),
        )
        for index, device in enumerate(population)
    }


def _presence(config: Config, device: VirtualDevice, index: int) -> Presence | None:
    joins = config.simulation.joins_s
    if joins:
        from edge_server.simulation.availability import Latecomer

        return Latecomer(joins[min(index, len(joins) - 1)])
    if device.board is None or not config.simulation.dropouts:
        return None
    from edge_server.config.board_profiles import profile
    from edge_server.simulation.availability import Availability

    return Availability(profile(device.board), seed=config.federation.seed, device=device.name)
