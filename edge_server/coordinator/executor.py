"""Everything slow that a federation asks for: planning, checking, aggregating, testing, exporting.

The server calls these methods in one thread of its own, one at a time; nothing here touches the network.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import Ratio, group_ratios, mean_ratio
from edge_client.pruning.surgery import arrays_of, parameter_count
from edge_client.storage.blob_store import BlobStore
from edge_client.training.evaluation import Evaluation
from edge_server.config.config import Config
from edge_server.coordinator.blob_repair import mended
from edge_server.coordinator.evaluation import Testing
from edge_server.coordinator.global_model import GlobalModel, diverged
from edge_server.coordinator.initial_model import Start, note_start, noted_start
from edge_server.coordinator.network_check import check_outputs, uncut_word
from edge_server.coordinator.observations import is_observed, observation
from edge_server.coordinator.privacy_session import PrivacyGuard
from edge_server.coordinator.rollback import earlier_state, gone_back, measured
from edge_server.coordinator.round_record import round_record
from edge_server.coordinator.tasks.increments import GRAPH
from edge_server.coordinator.tasks.masking import cohort_update, sum_masked_updates, with_local_examples
from edge_server.coordinator.tasks.model_publisher import ModelPublisher
from edge_server.coordinator.tasks.selection_log import record_selection
from edge_server.coordinator.tasks.task import TaskPlan, TaskTemplate, plan_training_tasks
from edge_server.coordinator.tasks.task_assigner import TaskAssigner
from edge_server.coordinator.tier_assignment import Tiering
from edge_server.coordinator.validation.births import cap_birth_claims
from edge_server.coordinator.validation.checker import UpdateChecker
from edge_server.coordinator.validation.round_review import looked
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.coordinator.validation.update import client_update, known_clients
from edge_server.coordinator.validation.update_history import UpdateHistory
from edge_server.observability.durations import Durations
from edge_server.rounds.class_list import ClassList
from edge_server.rounds.events import (
    CheckUpdate,
    CloseRound,
    PlanRound,
    RollBack,
    RolledBack,
    RoundPlanned,
    UpdateChecked,
)
from edge_server.rounds.fleet import Device
from edge_server.rounds.rollback import strike_rows
from edge_server.rounds.suspects import choose_suspects
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage.background_delete import Disposal
from edge_server.storage.event_list.recorder import EventRecorder
from edge_server.storage.journal import Aggregated, GivenUp, Journal
from edge_server.storage.journal_reader import JournalReader, read_examined
from edge_server.storage.records import RoundRecord, StartedFrom, Summary
from edge_server.storage.recovery import Resumption
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.sync import wait_for_disk
from edge_server.storage.update_archive import Spool
from edge_server.strategy.aggregation.array_stores import FileArrays
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.explanations import Observation, RoundChoices
from edge_server.strategy.pruning.pruners import Cut
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import Network, Plan, State, close, known_examples, plan, start, tier_spec
from edge_server.transport.object_store.store import Depot
from schemas.errors import ConfigError
from schemas.messages import Delivery, Task, Update
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import CHUNK_BYTES, Arrays, BlobRef, FlatGroups, decode_json, encode_json
from schemas.tensors.files import digest_of_tensors
from schemas.values import Reason

log = logging.getLogger(__name__)


class Workshop:
    """Holds the global model and the strategy's state of one run.

    A `resumable` run keeps its state after every round, and `resume` says what to go on from. One that is
    not `durable` does not wait for the disk: it outlives its process, but not a power cut, and its updates
    are not kept. The `manifest_signer` signs what the run gives out; nobody does unless one is named.
    `secret` is what noise is made from: 32 bytes, drawn here unless they are given. One that `broadcasts`
    names shared topics for what several devices need; large blobs lie in the `depot`, too, if there is one.
    It tests by `testing`, or else on the file's data; `words` are what users should know of the run, and
    `started_from` is the model that it began with, read from `first` where the run is new.
    """

    def __init__(
        self,
        config: Config,
        run: str,
        folder: RunFolder,
        *,
        resumable: bool = True,
        resume: Resumption | None = None,
        durable: bool = True,
        manifest_signer: ManifestSigner | None = None,
        secret: bytes | None = None,
        depot: Depot | None = None,
        broadcasts: bool = True,
        testing: Testing | None = None,
        first: Start | None = None,
    ) -> None:
        self._config, self._run, self._folder = config, run, folder
        self.depot = depot
        self.durations = Durations()
        self.manifest_signer = manifest_signer or ManifestSigner(config.federation.name, run)
        self._resumable, self._durable = resumable or config.federation.roll_back, durable
        self._strategy = config.make_strategy()
        self.store = BlobStore(folder.blobs, durable=durable, writes_over=durable)
        folder.write_over(self.store.spares)
        self._unpacked = UnpackedCache(folder.unpacked)
        self._disposal = Disposal(folder.disposal)
        self.chunk_bytes = CHUNK_BYTES
        self._journal = Journal(folder.journal, durable=durable)
        self.events = EventRecorder(folder.events)
        self._testing = testing or Testing(config, classes=resume.classes if resume else ())
        self._spec = self._testing.model_spec
        module = build_model(self._spec, seed=config.federation.seed)
        # In the order in which it is written: sums over parameters are then the same for whoever reads it.
        traced = trace_channels(module, self._spec.input_shape)
        channel_map = decode_json(ChannelMap, encode_json(traced))
        rounding = replace(entry(config.model.name), multiple=config.tiers.keep_multiple)
        self._network = Network(rounding, channel_map)
        for ratio in config.tiers.ratios:
            group_ratios(self._network.entry, ratio, channel_map)
        check_outputs(module, self._spec)
        word = uncut_word(config, self._network)
        self.words: tuple[str, ...] = (word,) if word else ()
        self.model = GlobalModel(module, self._spec, channel_map)
        self._keep = partial(FileArrays, folder.path)
        params, self.started_from = self._begun_with(module, None if resume else first)
        self._state = (
            start(self._strategy, params, keep=self._keep) if resume is None else self._read_back(resume)
        )
        self._undone = resume.undone if resume is not None else None
        self._publisher = ModelPublisher(
            folder.frames,
            self.store,
            channel_map,
            self._strategy.downlink,
            durable=durable,
            # What was published of a model that was given up is no beginning.
            go_on=resume is not None and resume.undone is None,
        )
        self._assigning = TaskAssigner(
            TaskTemplate(config, run, self._spec, self._testing.preprocessing, self._strategy.uplink),
            self._strategy,
            channel_map,
            self.store,
            self._publisher,
            self.manifest_signer,
            depot,
            broadcasts=broadcasts,
            # A run that goes on has told its devices before.
            new_map=resume is None,
        )
        self._privacy = PrivacyGuard(config, self._strategy.privacy)
        self._state = self._privacy.opened(self._state, secret)
        resume = resume or Resumption(0)
        self._journalled = resume.classes
        self._knows(resume.clients)
        self._exaggerated: Mapping[str, str] = {}
        self._tiering = Tiering(
            config,
            self._network_of,
            self._strategy.local_epochs or (lambda _: config.training.local_epochs),
            input_shape=self._spec.input_shape,
            learns=not self._privacy.on,
            refusals=resume.short_of_memory,
            undecided=resume.undecided,
        )
        firewall = config.firewall
        if self._privacy.on:
            # Every update is clipped, and noise makes their usual size another one in every round.
            firewall = firewall.model_copy(update={"norm_bound": False})
        guard = UpdateHistory(firewall, channel_map, self._testing.canary(self.model), self._strategy.groups)
        guard.restore(resume.examined)
        self._checking = UpdateChecker(
            self.store,
            self._unpacked,
            self._journal,
            channel_map,
            self._strategy.groups,
            guard,
            resume.ratios,
        )
        replay_bytes = config.federation.replay_mb * 10**6 if durable else 0
        self._spool = Spool(folder.spool, replay_bytes, spares=self.store.spares)
        self._state_sha256 = self._save(self._state.round, durable=durable)
        if self._resumable:
            folder.save_checkpoint(self._state, durable=durable)
        if durable:
            self._journal.begun(run, config.federation.name)

    def _read_back(self, resume: Resumption) -> State:
        """The state that a run goes on from."""
        if resume.undone is None:
            return self._folder.load_state(resume.round, resume.state_sha256, keep=self._keep)
        return earlier_state(self._folder, resume.round, resume.undone.state_sha256, keep=self._keep)

    @property
    def classes(self) -> ClassList:
        """The model's classes, with their names as far as these are known."""
        return ClassList(self._spec.num_classes, self._testing.classes)

    def _begun_with(self, module: nn.Module, first: Start | None) -> tuple[Arrays, StartedFrom | None]:
        """The parameters before round one, and whose they were."""
        own = arrays_of(module)
        if first is None:
            noted = noted_start(self._folder) if self._config.model.from_ is not None else None
            return own, noted
        first.check_classes(self._testing.classes)
        if first.classes and not self._testing.classes:
            self._testing.agree(first.classes)
        params, about = first.read(self._spec, self._network.channel_map)
        note_start(self._folder, about)
        self.words = (*self.words, f"starts from {about.in_words()}")
        return {name: params[name] for name in own}, about

    # --- planning ---
    def plan(self, command: PlanRound) -> RoundPlanned:
        """Choose devices and make their tasks."""
        self._name_classes(command.classes)
        command = self._with_believed_births(command)
        described = self._assigning.described(self.chunk_bytes)
        self._forget_old_blobs(command.keep | {described.digest} | self._publisher.digests)
        needed: int | None = None
        choices: RoundChoices | None = None
        self._tiering.place(command.devices, self._state.paces, command.round)
        clients = [Client(d.name, self.tier(d), d.data.examples) for d in command.devices]
        there = {client.name: (client.tier, client.examples) for client in clients}
        entropy = self._entropy(command)
        if command.deliver:
            jobs = {device.name: self._delivery(device) for device in command.devices}
        else:
            self._knows(there)
            jobs, needed, choices = self._training(command, clients, np.random.default_rng(entropy))
            if ended := self._privacy.over_budget(self._state):
                return RoundPlanned(command.attempt, {}, ended=ended)
            if self._privacy.on and self._resumable:
                # Whom a round asks decides what its sums are divided by, also when it is computed again.
                self._folder.save_checkpoint(self._state, durable=self._durable)
            if self._config.privacy.secure_aggregation:
                jobs = with_local_examples(jobs, command.devices)
        assignments = self._assigning.assignments(
            command,
            jobs,
            self._state,
            state_sha256=self._state_sha256,
            described=described,
            tiers=lambda: map(self.tier_spec, self._config.tiers.ratios),
            graphs=self._graphs(jobs.values()) if command.deliver else {},
        )
        self._journal.planned(
            command.attempt,
            command.round,
            assignments,
            devices=command.devices,
            clients=there,
            needed=needed,
            rng=entropy,
            deliver=command.deliver,
            choices=choices,
        )
        return RoundPlanned(command.attempt, assignments, needed)

    def _name_classes(self, names: tuple[str, ...]) -> None:
        """What devices have agreed on is on disk before any of them is asked to train by it."""
        if names and names != self._journalled:
            self._journal.agreed(names)
            self._journalled = names
        if names and names != self._testing.classes:
            self._testing.agree(names)
            self._assigning.describe(self._testing.preprocessing)

    def _with_believed_births(self, command: PlanRound) -> PlanRound:
        """The planning with devices that say no more of themselves than may count."""
        devices, exaggerated = cap_birth_claims(command.devices, self._strategy.claims)
        for name, words in exaggerated.items():
            if self._exaggerated.get(name) != words:
                log.warning("%s: %s", name, words, extra={"device": name})
        self._exaggerated = exaggerated
        return replace(command, devices=devices)

    def _entropy(self, command: PlanRound) -> tuple[int, ...]:
        """What a planning's random generator begins with, wherever and whenever it is made again."""
        seed = self._config.federation.seed
        return (seed, command.round, command.retry, *self._privacy.entropy(self._state))

    def _knows(self, clients: Mapping[str, tuple[int, int]]) -> None:
        self._state = replace(self._state, clients={**self._state.clients, **clients})

    def _training(
        self, command: PlanRound, clients: Sequence[Client], rng: np.random.Generator
    ) -> tuple[dict[str, TaskPlan], int | None, RoundChoices | None]:
        planned = plan(
            self._strategy,
            self._state,
            clients,
            self._network,
            rng,
            over_select=command.over_select,
            wanted=command.wanted,
        )
        self._state = self._privacy.planned(self._state, planned, population=len(clients))
        tiers = {client.name: client.tier for client in clients}
        # Those who join a round that is under way change nothing of what it needs.
        needed = planned.needed if command.wanted is None else None
        jobs = plan_training_tasks(planned, tiers, self._config.training.local_epochs)
        return jobs, needed, self._choices(command, clients, planned)

    def _choices(self, command: PlanRound, clients: Sequence[Client], planned: Plan) -> RoundChoices | None:
        """Why these; nothing with differential privacy, which also rests on who was drawn being hidden."""
        if self._privacy.on:
            return None
        ratios = {name: one.ratio for name, one in planned.assignments.items()}
        why = self._strategy.selection.explain(self._state.selection, clients, frozenset(ratios))
        return record_selection(command, ratios, why, self.tier)

    def _delivery(self, device: Device) -> TaskPlan:
        tier = self.tier(device)
        ratio = self._config.tiers.ratios[tier - 1]
        level = mean_ratio(ratio)
        return TaskPlan(tier, Cut(self.tier_spec(ratio)), level, provenance=self._provenance(tier, level))

    def _graphs(self, jobs: Iterable[TaskPlan]) -> dict[str, BlobRef]:
        """The graphs of what is to be exported, by the sub-model's JSON: each is drawn once, here."""
        specs = {job.cut.spec.model_dump_json(): job.cut.spec for job in jobs}
        drawn = {key: self.model.graph(self._state.params, spec) for key, spec in specs.items()}
        return {
            key: self.store.put(graph, chunk_bytes=self.chunk_bytes)
            for key, graph in drawn.items()
            if graph is not None
        }

    def _forget_old_blobs(self, keep: frozenset[str] = frozenset()) -> None:
        """A new round makes its own blobs; of earlier ones only those to `keep` are needed any more."""
        self.store.keep_only(keep, remove=self._disposal.take)
        if self.depot is not None:
            self.depot.forget(keep)
        self._unpacked.keep_only(keep)

    # --- checking ---
    def check(self, command: CheckUpdate, task: Task) -> UpdateChecked:
        """Verify and examine an uploaded update; it is on disk and in the journal when this returns."""
        return self._checking.check(command, task, self._state)

    def check_all(self, checks: Sequence[tuple[CheckUpdate, Task]]) -> list[UpdateChecked]:
        """Check several updates: the disk is waited for once for all of them."""
        return self._checking.check_all(checks, self._state)

    def struck(self, device: str, round_number: int, reason: str) -> None:
        """Note in the journal what counts against a device, or speaks for a smaller tier."""
        self._journal.struck(device, round_number, reason)
        if reason == Reason.NO_MEMORY:
            self._tiering.short_of_memory(device)

    # --- aggregating ---
    def close(
        self,
        command: CloseRound,
        *,
        uplink: int,
        downlink: int,
        duration_s: float,
        virtual_time_s: float | None = None,
        traffic: Mapping[str, Any] | None = None,
    ) -> RoundRecord:
        """Aggregate the round's updates into the next model, test it, write history and model.

        The round is closed once the journal says so; before, it can be aggregated again, to the same bytes.
        """
        sent = self._made_of(command)
        refused = self._checking.outliers(sent)
        made_of = {name: update for name, update in sent.items() if name not in refused}
        updates = self._updates(made_of, command.staleness)
        look = looked(made_of, refused, *self._strategy.claims.believed(updates, known_examples(self._state)))
        trained = {one.client: (look.counted[one.client], one.metrics.get("ratio")) for one in updates}
        before = self._state.round
        known, ordered = known_clients(self._state), self._state.ordered
        with self.durations.timed("aggregating"):
            self._state = close(
                self._strategy,
                self._state,
                updates,
                self._network.channel_map,
                clients=known,
                keep=self._keep,
            )
        self._state = replace(self._state, paces=self._tiering.observe(self._state.paces, trained))
        # Nothing of the round is named before the journal does: the disk is waited for once, before that.
        self._state_sha256 = self._save(command.round, durable=False)
        with self.durations.timed("testing"):
            tested = self._testing.tested(command.round, self.model, self._state.params, self.tier_spec)
        record = round_record(
            command,
            fraction=self._strategy.fraction(command.round),
            tested=tested,
            observed=self._state.observed,
            uplink=uplink,
            downlink=downlink,
            duration_s=duration_s,
            virtual_time_s=virtual_time_s,
            look=look,
        )
        record = self._after_undoing(self._privacy.released(record), tested)
        if self._resumable:
            paths = [self.store.path(update.blob.digest) for update in made_of.values()]
            state, model = self._folder.checkpoint(before), self._folder.model(before)
            self._spool.keep(command.round, state, model, paths)
            self._folder.save_checkpoint(self._state, durable=False)
        if self._durable:
            wait_for_disk(self._folder.written(command.round))
        self._journal.closed(
            command.round,
            self._state_sha256,
            updates=[
                Aggregated(name, update.attempt, update.blob.digest, command.staleness.get(name, 0))
                for name, update in made_of.items()
            ],
            over=command.selected,
            record=record.model_dump_json(),
            traffic=traffic or {},
            observation=self._observation(updates, ranked=self._state.ordered and not ordered),
            refused=[sent[name] for name in refused],
        )
        if refused:
            self._checking.guard.began_anew(read_examined(self._folder.journal))
        if not self._folder.add_round(record):
            self._rewrite_history()
        self._undone = None
        return record

    def _rewrite_history(self) -> None:
        """The history as the journal has it."""
        log.warning("%s was changed by somebody: written again, from the journal", self._folder.history)
        with closing(JournalReader(self._folder.journal)) as reader:
            self._folder.rewrite_history(
                RoundRecord.model_validate_json(one.record) for one in reader.rounds()
            )

    def _after_undoing(self, record: RoundRecord, tested: Mapping[int, Evaluation]) -> RoundRecord:
        """The record with what it began from, if that was not the round before, and whether it diverged."""
        change: dict[str, Any] = {"diverged": diverged(self._state.params, tested)}
        if self._undone is not None:
            change |= {"back_to": self._undone.round - 1, "left_out": self._undone.left_out}
        return record.model_copy(update=change)

    # --- mending ---
    def mend(self, digests: Iterable[str], tasks: Sequence[Task]) -> frozenset[str]:
        """Make those of these blobs anew that are damaged or gone; which of them cannot be.

        `tasks` are those that may name them.
        """

        def make_anew(damaged: frozenset[str]) -> None:
            if damaged & self._publisher.digests:
                self._publisher.begin_anew()
            needed = [task for task in tasks if any(ref.digest in damaged for ref in task.blobs.values())]
            # Sub-models of one planning share blobs: all of its tasks say which.
            attempts = {task.attempt for task in needed}
            planned = [task for task in tasks if task.attempt in attempts]
            tiers = partial(map, self.tier_spec, self._config.tiers.ratios)
            self._assigning.make_again(planned, self._state, tiers=tiers)
            for spec in {
                task.spec.model_dump_json(): task.spec for task in needed if GRAPH in task.blobs
            }.values():
                graph = self.model.graph(self._state.params, spec)
                if graph is not None:
                    self.store.put(graph, chunk_bytes=self.chunk_bytes)

        return mended(self.store, digests, make_anew)

    # --- going back ---
    def roll_back(self, command: RollBack) -> RolledBack:
        """Put the state before the last closed round in the place of the one that it ended with.

        The round is given up once the journal says so; what follows is done again where that is cut short.
        """
        try:
            with closing(JournalReader(self._folder.journal)) as reader:
                sha256 = reader.begun_with().get(command.undone - 1)
                kept = self._spool.folder(command.undone)
                measures = measured(reader, command.undone, kept, self._unpacked)
            older = self._folder.load_state(command.undone - 1, sha256, keep=self._keep)
        except ConfigError as error:
            return RolledBack(command, failed=str(error))
        out = choose_suspects(measures, command.able, command.fewest)
        sha256 = digest_of_tensors(FlatGroups({"model": older.params}))
        self._undone = GivenUp(command.undone, command.attempt, sha256, out, command.why)
        self._journal.undone(self._undone, strike_rows(command, out))
        self._state = gone_back(older, self._state)
        self._publisher.begin_anew()
        # In this order: a model that is back in its place has its state beside it.
        self._folder.save_checkpoint(self._state, durable=self._durable)
        self._state_sha256 = self._save(command.undone, durable=self._durable)
        return RolledBack(command, out)

    def _observation(self, updates: Sequence[ClientUpdate], *, ranked: bool) -> Observation | None:
        """What the round has shown, if it is one of those that are looked at."""
        if not ranked and not is_observed(self._state.round, self._config.federation.rounds):
            return None
        specs = {tier: self.tier_spec(ratio) for tier, ratio in enumerate(self._config.tiers.ratios, start=1)}
        groups = group_ratios(self._network.entry, self._config.tiers.ratios[0], self._network.channel_map)
        return observation(
            self._state, updates, self._network.channel_map, specs, tuple(groups), ranked=ranked
        )

    def _updates(self, made_of: Mapping[str, Update], staleness: Mapping[str, int]) -> list[ClientUpdate]:
        return [
            client_update(
                update,
                self.store.path(update.blob.digest),
                unpacked=self._unpacked,
                staleness=staleness.get(device, 0),
                ratio=self._checking.taken_ratio(update),
            )
            for device, update in made_of.items()
        ]

    def _made_of(self, command: CloseRound) -> Mapping[str, Update]:
        """The updates that the round is made of: of masked ones their sum, which alone can be read.

        Devices help to open one sum per round, so it is kept before anything is made of it.
        """
        if command.opened is None:
            return command.updates
        masked = self._updates(command.updates, {})
        total = sum_masked_updates(masked, command.opened, self._network.channel_map)
        blob = self.store.put_groups(total.groups, chunk_bytes=self.chunk_bytes)
        told = cohort_update(total, blob, next(iter(command.updates.values())))
        self._journal.examined(told, reason=None)
        return {told.device: told}

    def _save(self, number: int, *, durable: bool) -> str:
        manifest = {
            "federation": self._config.federation.name,
            "run": self._run,
            "model": self._spec.model_dump(mode="json"),
            "preprocessing": self._testing.preprocessing.model_dump(mode="json"),
        }
        digest = self._folder.save_model(
            number, self._state.params, self._network.channel_map, manifest, durable=durable
        )
        self.manifest_signer.model(self._folder.version(number) / "manifest.json", number, durable=durable)
        return digest

    # --- delivering ---
    def export_tiers(self) -> dict[int, Path]:
        """Write one ONNX file per tier from the global model as it stands."""
        paths = {}
        ratios = zip(self._config.tiers.ratios, self._config.tiers.levels, strict=True)
        for tier, (ratio, level) in enumerate(ratios, start=1):
            paths[tier], spec = self._folder.onnx(tier), self.tier_spec(ratio)
            provenance = self._provenance(tier, level)
            with self.durations.timed("exporting"):
                self.model.export(
                    paths[tier],
                    self._state.params,
                    spec,
                    preprocessing=self._testing.preprocessing,
                    provenance=provenance,
                )
            self.manifest_signer.export(paths[tier], provenance, spec)
        return paths

    @property
    def tested_on(self) -> str:
        """What the server tests its model on, in words; empty where it tests nothing."""
        return self._testing.tested_on

    def tier(self, device: Device) -> int:
        """The device's tier among those of this federation."""
        return self._tiering.tier(device)

    def _network_of(self, tier: int) -> nn.Module:
        """The network that a tier trains, to be looked at."""
        return self.model.sub_model(self._state.params, self.tier_spec(self._config.tiers.ratios[tier - 1]))

    def tier_parameters(self) -> dict[int, int]:
        """Trainable numbers of each tier's network."""
        return {
            tier: parameter_count(self._network_of(tier))
            for tier in range(1, len(self._config.tiers.ratios) + 1)
        }

    def tier_spec(self, ratio: Ratio) -> SubModelSpec:
        """The part of the global model that a tier of this ratio holds."""
        return tier_spec(self._strategy, self._state, self._network, ratio)

    def _provenance(self, tier: int, ratio: float) -> dict[str, str]:
        return {
            "run_id": self._run,
            "round": str(self._state.round),
            "tier": str(tier),
            "prune_ratio": str(ratio),
            "parent_sha256": self._state_sha256,
            **self._privacy.provenance(self._state),
        }

    def delivered(self, delivery: Delivery) -> None:
        """A device has its model in place: on disk before the device is told that this is known."""
        self._journal.delivered(delivery)

    def put_down(self) -> None:
        """Let go of the journal; the run goes on later."""
        self.store.close()
        self._disposal.close()
        self._journal.close()
        self.events.close()

    def finish(self, summary: Summary) -> None:
        """Write the summary; let go of the journal and of blobs that nobody will ask for."""
        self._folder.write_summary(summary)
        # A simulation may go on after its end, with the frames that its devices have.
        self._forget_old_blobs(frozenset() if self._durable else self._publisher.digests)
        self._unpacked.remove()
        self.store.close()
        self._disposal.close()
        self._journal.close()
        self.events.close()
