"""Everything slow that a federation asks for: planning, checking, aggregating, testing, exporting.

The server calls these methods in one thread of its own, one at a time; nothing here touches the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from edge_client.blobstore import BlobStore
from edge_client.channels import trace_channels
from edge_client.evaluation import Evaluation
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning import Ratio, group_ratios, mean_ratio
from edge_client.surgery import arrays_of
from edge_server.config import Config
from edge_server.evaluation import GlobalModel
from edge_server.firewall import max_answer_bytes
from edge_server.fleet import Device
from edge_server.history import RoundRecord, Summary
from edge_server.journal import Journal
from edge_server.round_events import (
    Assignment,
    CheckUpdate,
    CloseRound,
    PlanRound,
    RoundPlanned,
    UpdateChecked,
)
from edge_server.round_record import round_record
from edge_server.run_folder import RunFolder
from edge_server.secure.aggregating import masking_terms, summed, with_examples
from edge_server.strategy.checkpoint import load_checkpoint
from edge_server.strategy.policies import Client
from edge_server.strategy.pruners import Cut
from edge_server.strategy.strategy import Network, close, plan, sent_down, start, tier_spec
from edge_server.tasks import Job, TaskTerms, make_task, state_blobs, training_jobs
from edge_server.testing import evaluate_tiers, is_due, load_test_data, model_spec, tiers_are_due
from edge_server.tiers import tier_of
from edge_server.uploads import client_update, verdict
from schemas.blobs import CHUNK_BYTES, BlobRef, encode_groups, encode_json
from schemas.messages import Task
from schemas.secure import MaskingTerms
from schemas.submodel import SubModelSpec
from schemas.values import Preprocessing


class Workshop:
    """Holds the global model and the strategy's state of one run.

    A `resumable` run keeps its state after every round, and `resume` is the round to go on from. One that is
    not `durable` does not wait for the disk: it outlives its process, but not a power cut.
    """

    def __init__(
        self,
        config: Config,
        run: str,
        folder: RunFolder,
        *,
        resumable: bool = False,
        resume: int | None = None,
        durable: bool = True,
    ) -> None:
        self._config, self._run, self._folder = config, run, folder
        self._resumable, self._durable = resumable, durable
        self._strategy = config.make_strategy()
        self.store = BlobStore(folder.blobs, durable=durable)
        self.chunk_bytes = CHUNK_BYTES
        self._journal = Journal(folder.journal, durable=durable)
        self._test_data = load_test_data(config)
        self._test_inputs = self._test_data.inputs() if self._test_data else None
        self._preprocessing = self._test_data.preprocessing if self._test_data else Preprocessing()
        self._spec = model_spec(config, self._test_data)
        self._terms = TaskTerms(config, run, self._spec, self._preprocessing)
        module = build_model(self._spec, seed=config.federation.seed)
        channel_map = trace_channels(module, self._spec.input_shape)
        self._network = Network(entry(config.model.name), channel_map)
        for ratio in config.tiers.ratios:
            group_ratios(self._network.entry, ratio, channel_map)
        self.model = GlobalModel(module, self._spec, channel_map)
        self._state = (
            start(self._strategy, arrays_of(module))
            if resume is None
            else load_checkpoint(folder.checkpoint(resume))
        )
        self._ratios: dict[tuple[str, int], float] = {}
        self._state_sha256 = self._save(self._state.round)

    # --- planning ---
    def plan(self, command: PlanRound) -> RoundPlanned:
        """Choose devices and make their tasks; sub-models that are alike are one blob."""
        self._forget_old_blobs(command.keep)
        needed: int | None = None
        if command.deliver:
            jobs = {device.name: self._delivery(device) for device in command.devices}
        else:
            jobs, needed = self._training(command)
            if self._config.privacy.secure_aggregation:
                jobs = with_examples(jobs, command.devices)
        channel_map = self._put(encode_json(self._network.channel_map))
        states = state_blobs(jobs, self._put_state)
        masking = self._masking(command, jobs)
        assignments = {}
        for name, job in jobs.items():
            blobs = {"state": states[name], "channel-map": channel_map}
            task = make_task(self._terms, command, name, job, blobs=blobs, participants=len(jobs))
            task = task.model_copy(update={"masking": masking})
            limit = max_answer_bytes(task, self._network.channel_map, self._strategy.groups)
            assignments[name] = Assignment(task, limit)
        self._journal.planned(command.round, assignments)
        return RoundPlanned(command.attempt, assignments, needed)

    def _training(self, command: PlanRound) -> tuple[dict[str, Job], int]:
        clients = [Client(device.name, self.tier(device), device.data.examples) for device in command.devices]
        there = {client.name: (client.tier, client.examples) for client in clients}
        self._state = replace(self._state, clients={**self._state.clients, **there})
        entropy = [self._config.federation.seed, command.round, command.retry]
        rng = np.random.default_rng(entropy if command.wanted is None else [*entropy, command.attempt])
        planned = plan(
            self._strategy,
            self._state,
            clients,
            self._network,
            rng,
            over_select=command.over_select,
            wanted=command.wanted,
        )
        tiers = {client.name: client.tier for client in clients}
        return training_jobs(planned, tiers, self._config.training.local_epochs), planned.needed

    def _masking(self, command: PlanRound, jobs: Mapping[str, Job]) -> MaskingTerms | None:
        """What the round's devices mask by; none where their updates are read one by one."""
        if not self._config.privacy.secure_aggregation or command.deliver or not jobs:
            return None
        examples = {device.name: device.data.examples for device in command.devices}
        return masking_terms(
            self._config,
            [job.cut.spec for job in jobs.values()],
            [examples[name] for name in jobs],
            self._network.channel_map,
        )

    def _delivery(self, device: Device) -> Job:
        tier = self.tier(device)
        ratio = self._config.tiers.ratios[tier - 1]
        level = mean_ratio(ratio)
        return Job(tier, Cut(self.tier_spec(ratio)), level, provenance=self._provenance(tier, level))

    def _put_state(self, spec: SubModelSpec) -> BlobRef:
        groups = sent_down(self._strategy, self._state, spec, self._network.channel_map)
        return self._put(encode_groups(groups))

    def _put(self, data: bytes) -> BlobRef:
        return self.store.put(data, chunk_bytes=self.chunk_bytes)

    def _forget_old_blobs(self, keep: frozenset[str] = frozenset()) -> None:
        """A new round makes its own blobs; of earlier ones only those to `keep` are needed any more."""
        self.store.keep_only(keep)

    # --- checking ---
    def check(self, command: CheckUpdate, task: Task) -> UpdateChecked:
        """Verify and examine an uploaded update; it is on disk and in the journal when this returns."""
        update = command.update
        reason, detail = verdict(
            update,
            task,
            self.store,
            self._network.channel_map,
            self._strategy.groups,
            segments=command.segments,
        )
        if reason is not None:
            self.store.path(update.blob.digest).unlink(missing_ok=True)
        else:
            self._ratios[update.device, update.attempt] = task.ratio
        self._journal.examined(
            update.round,
            update.device,
            update.blob.digest,
            size=update.blob.size,
            examples=update.metrics.examples,
            reason=reason,
        )
        return UpdateChecked(command.device, update.blob.digest, reason, detail)

    # --- aggregating ---
    def close(
        self,
        command: CloseRound,
        *,
        uplink: int,
        downlink: int,
        duration_s: float,
        virtual_time_s: float | None = None,
    ) -> RoundRecord:
        """Aggregate the round's updates into the next model, test it, write history and model."""
        updates = [
            client_update(
                update,
                self.store,
                staleness=command.staleness.get(device, 0),
                ratio=self._ratios.pop((update.device, update.attempt), None),
            )
            for device, update in command.updates.items()
        ]
        if command.opened is not None:
            updates = [summed(updates, command.opened, self._network.channel_map)]
        known = [Client(name, *about) for name, about in sorted(self._state.clients.items())]
        self._state = close(self._strategy, self._state, updates, self._network.channel_map, clients=known)
        self._state_sha256 = self._save(command.round)
        record = round_record(
            command,
            fraction=self._strategy.fraction(command.round),
            tested=self._test(command.round),
            observed=self._state.observed,
            uplink=uplink,
            downlink=downlink,
            duration_s=duration_s,
            virtual_time_s=virtual_time_s,
        )
        self._folder.add_round(record)
        self._journal.closed(command.round, self._state_sha256)
        if self._resumable:
            self._folder.save_checkpoint(self._state, durable=self._durable)
        return record

    def _test(self, number: int) -> dict[int, Evaluation]:
        """Test the full model (as tier 0) and every tier's; empty without data, or where it is not time."""
        settings, data = self._config.federation, self._test_data
        if data is None or not is_due(settings, number):
            return {}
        ratios = self._config.tiers.ratios if tiers_are_due(settings, number) else ()
        return evaluate_tiers(
            {tier: self.tier_spec(ratio) for tier, ratio in enumerate(ratios, start=1)},
            lambda spec: self.model.test(self._state.params, spec, data, self._test_inputs),
        )

    def _save(self, number: int) -> str:
        manifest = {
            "federation": self._config.federation.name,
            "run": self._run,
            "model": self._spec.model_dump(mode="json"),
            "preprocessing": self._preprocessing.model_dump(mode="json"),
        }
        return self._folder.save_model(
            number, self._state.params, self._network.channel_map, manifest, durable=self._durable
        )

    # --- delivering ---
    def export_tiers(self) -> dict[int, Path]:
        """Write one ONNX file per tier from the global model as it stands."""
        paths = {}
        ratios = zip(self._config.tiers.ratios, self._config.tiers.levels, strict=True)
        for tier, (ratio, level) in enumerate(ratios, start=1):
            paths[tier] = self._folder.onnx(tier)
            self.model.export(
                paths[tier],
                self._state.params,
                self.tier_spec(ratio),
                preprocessing=self._preprocessing,
                provenance=self._provenance(tier, level),
            )
        return paths

    def tier(self, device: Device) -> int:
        """The device's tier among those of this federation."""
        return tier_of(device.profile, len(self._config.tiers.ratios))

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
        }

    def finish(self, summary: Summary) -> None:
        """Write the summary; let go of the journal and of blobs that nobody will ask for."""
        self._folder.write_summary(summary)
        self._forget_old_blobs()
        self._journal.close()
