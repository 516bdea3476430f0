"""Everything slow that a federation asks for: planning, checking, aggregating, testing, exporting.

The server calls these methods in one thread of its own, one at a time; nothing here touches the network.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.blobstore import BlobStore
from edge_client.channels import trace_channels
from edge_client.data.labelled import LabelledData, sample
from edge_client.data.sources import load_source
from edge_client.evaluation import Evaluation
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning import Ratio, group_ratios, mean_ratio
from edge_client.surgery import arrays_of
from edge_server.config import Config
from edge_server.evaluation import GlobalModel
from edge_server.firewall import examine, max_answer_bytes
from edge_server.fleet import Device
from edge_server.history import Rejected, RoundRecord, Summary
from edge_server.journal import Journal
from edge_server.round_events import (
    Assignment,
    CheckUpdate,
    CloseRound,
    PlanRound,
    RoundPlanned,
    UpdateChecked,
)
from edge_server.run_folder import RunFolder
from edge_server.strategy.checkpoint import load_checkpoint
from edge_server.strategy.policies import Client
from edge_server.strategy.pruners import Cut
from edge_server.strategy.strategy import Network, close, plan, sent_down, start, tier_spec
from edge_server.strategy.updates import ClientUpdate
from edge_server.tiers import tier_of
from schemas.blobs import CHUNK_BYTES, BlobRef, SpooledGroups, encode_groups, encode_json, read_groups
from schemas.errors import ConfigError, PeerError
from schemas.messages import Task, Update, encode_message
from schemas.strategy import TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec, Preprocessing, Reason

log = logging.getLogger(__name__)


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
        self._test_data = _test_data(config)
        self._test_inputs = self._test_data.inputs() if self._test_data else None
        self._preprocessing = self._test_data.preprocessing if self._test_data else Preprocessing()
        self._spec = _model_spec(config, self._test_data)
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
        self._clients: dict[str, Client] = {}
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
        blobs: dict[str, BlobRef] = {}
        channel_map = self._put(encode_json(self._network.channel_map))
        assignments = {}
        for device in command.devices:
            if device.name in jobs:
                job = jobs[device.name]
                key = job.cut.spec.model_dump_json()
                if key not in blobs:
                    blobs[key] = self._put(self._encoded(job.cut.spec))
                task = self._task(
                    command,
                    device,
                    job,
                    {"state": blobs[key], "channel-map": channel_map},
                    participants=len(jobs),
                )
                limit = max_answer_bytes(task, self._network.channel_map, self._strategy.groups)
                assignments[device.name] = Assignment(task, limit)
        self._journal.planned(command.round, assignments)
        return RoundPlanned(command.attempt, assignments, needed)

    def _training(self, command: PlanRound) -> tuple[dict[str, Job], int]:
        clients = [Client(device.name, self.tier(device), device.data.examples) for device in command.devices]
        self._clients.update({client.name: client for client in clients})
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
        default = self._config.training.local_epochs
        jobs = {
            name: Job(one.cut, one.ratio, default if one.local_epochs is None else one.local_epochs)
            for name, one in planned.assignments.items()
        }
        return jobs, planned.needed

    def _delivery(self, device: Device) -> Job:
        ratio = self._config.tiers.ratios[self.tier(device) - 1]
        return Job(Cut(self.tier_spec(ratio)), mean_ratio(ratio))

    def _task(
        self,
        command: PlanRound,
        device: Device,
        job: Job,
        blobs: Mapping[str, BlobRef],
        *,
        participants: int,
    ) -> Task:
        tier = self.tier(device)
        settings = self._config.training.model_dump()
        training = TrainingPlan(
            **{**settings, "local_epochs": job.local_epochs if job.cut.train else 0},
            seed=_seed(self._config.federation.seed, command.round, device.name),
            objectives=job.cut.objectives,
            participants=participants,
        )
        task = Task(
            federation=self._config.federation.name,
            run=self._run,
            round=command.round,
            attempt=command.attempt,
            action="deliver" if command.deliver else "train",
            tier=tier,
            ratio=job.ratio,
            model=self._spec,
            preprocessing=self._preprocessing,
            spec=job.cut.spec,
            personal=job.cut.personal,
            returned=job.cut.returned,
            training=None if command.deliver else training,
            blobs=blobs,
            provenance=self._provenance(tier, job.ratio) if command.deliver else {},
        )
        # A task that is too large to be sent ends the run here, where the reason can be told.
        encode_message(task)
        return task

    def _encoded(self, spec: SubModelSpec) -> bytes:
        return encode_groups(sent_down(self._strategy, self._state, spec, self._network.channel_map))

    def _put(self, data: bytes) -> BlobRef:
        return self.store.put(data, chunk_bytes=self.chunk_bytes)

    def _forget_old_blobs(self, keep: frozenset[str] = frozenset()) -> None:
        """A new round makes its own blobs; of earlier ones only those to `keep` are needed any more."""
        self.store.keep_only(keep)

    # --- checking ---
    def check(self, command: CheckUpdate, task: Task) -> UpdateChecked:
        """Verify and examine an uploaded update; it is on disk and in the journal when this returns."""
        update = command.update
        reason, detail = self._verdict(update, task)
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

    def _verdict(self, update: Update, task: Task) -> tuple[Reason | None, str]:
        if not self.store.verify(update.blob):
            return Reason.DIGEST_MISMATCH, "the bytes are not those of the digest"
        try:
            groups = read_groups(self.store.path(update.blob.digest))
            examine(update, groups, task, self._network.channel_map, self._strategy.groups)
        except PeerError as error:
            return Reason(error.reason), str(error)
        return None, ""

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
            self._client_update(update, command.staleness.get(device, 0))
            for device, update in command.updates.items()
        ]
        known = [client for _, client in sorted(self._clients.items())]
        self._state = close(self._strategy, self._state, updates, self._network.channel_map, clients=known)
        self._state_sha256 = self._save(command.round)
        accepted = list(command.updates.values())
        tested = self._test(command.round)
        record = RoundRecord(
            round=command.round,
            fraction=self._strategy.fraction(command.round),
            local_epochs=max(update.metrics.epochs for update in accepted),
            selected=command.selected,
            completed=tuple(sorted(command.updates)),
            dropped=command.dropped,
            rejected=tuple(Rejected(device=name, reason=r) for name, r in sorted(command.rejected.items())),
            uplink_bytes=uplink,
            downlink_bytes=downlink,
            duration_s=duration_s,
            virtual_time_s=virtual_time_s,
            train_loss=_mean([(u.metrics.train_loss, u.metrics.examples) for u in accepted]),
            test_loss=tested[0].loss if tested else None,
            test_accuracy=tested[0].accuracy if tested else None,
            tier_accuracy={
                tier: one.accuracy for tier, one in tested.items() if tier and one.accuracy is not None
            },
            client_accuracy=_mean([(u.metrics.accuracy, u.metrics.examples) for u in accepted]),
            staleness={name: late for name, late in sorted(command.staleness.items()) if late},
            weights=self._state.observed.get("weights", {}),
            attention=self._state.observed.get("attention", {}),
        )
        self._folder.add_round(record)
        self._journal.closed(command.round, self._state_sha256)
        if self._resumable:
            self._folder.save_checkpoint(self._state, durable=self._durable)
        return record

    def _client_update(self, update: Update, staleness: int) -> ClientUpdate:
        groups = SpooledGroups(self.store.path(update.blob.digest))
        measured = {**update.metrics.model_dump(exclude_none=True), "staleness": staleness}
        ratio = self._ratios.pop((update.device, update.attempt), None)
        if ratio is not None:
            measured["ratio"] = ratio
        return ClientUpdate(update.device, update.spec, groups, update.metrics.examples, measured)

    def _test(self, number: int) -> dict[int, Evaluation]:
        """Test the full model (as tier 0) and every tier's; empty without data, or where it is not time."""
        settings, data = self._config.federation, self._test_data
        last = number == settings.rounds
        if data is None or (number % settings.evaluate_every and not last):
            return {}
        specs: dict[int, SubModelSpec] = {}
        if last or number % settings.evaluate_tiers_every == 0:
            ratios = enumerate(self._config.tiers.ratios, start=1)
            specs = {tier: self.tier_spec(ratio) for tier, ratio in ratios}
        by_spec: dict[str, Evaluation] = {}
        for spec in (SubModelSpec(), *specs.values()):
            key = spec.model_dump_json()
            if key not in by_spec:
                by_spec[key] = self.model.test(self._state.params, spec, data, self._test_inputs)
        return {tier: by_spec[spec.model_dump_json()] for tier, spec in {0: SubModelSpec(), **specs}.items()}

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


@dataclass(frozen=True)
class Job:
    """One device's part: what it gets, at which ratio, for how many epochs."""

    cut: Cut
    ratio: float
    local_epochs: int = 0


def _test_data(config: Config) -> LabelledData | None:
    if config.data.source is None:
        return None
    data = load_source(config.data.source, data_root=config.data.data_root, split="test")
    return data if config.data.test_samples is None else sample(data, config.data.test_samples)


def _model_spec(config: Config, data: LabelledData | None) -> ModelSpec:
    shape = config.model.input_shape or (data.input_shape if data else None)
    classes = config.model.num_classes or (data.num_classes if data else None)
    if shape is None or classes is None:
        raise ConfigError("[model] input-shape and num-classes are needed where [data] names no source")
    return ModelSpec(name=config.model.name, input_shape=shape, num_classes=classes)


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _seed(seed: int, round_number: int, device: str) -> int:
    """A seed per round and device, the same wherever and whenever the run is repeated."""
    text = f"{seed}/{round_number}/{device}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")
