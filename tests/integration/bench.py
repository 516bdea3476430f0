"""A coordinator and two devices in one process, without a network."""

import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.data.dataset import raw_examples
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.training.choice import make_trainer
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.rounds.events import CheckUpdate, CloseRound, PlanRound
from edge_server.rounds.fleet import Device
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_folder import RunFolder
from schemas.capabilities import ALL
from schemas.messages import Task, Update, encode_message
from schemas.values import CapabilityProfile, DataCard, TrainerName
from tests.other_networks import NAME as OTHERS

NAMES = ("weak", "strong")
WORDS = ("data.source=digits", "model.name=mlp", "rounds=2", "batch-size=8", "strategy.uplink=[]")
CARD = DataCard(source="digits", examples=22, input_shape=(1, 8, 8), num_classes=10)


class Bench:
    """Plans, trains, checks and closes rounds step by step, as a run does."""

    def __init__(
        self,
        folder: Path,
        recipe: str,
        *words: str,
        manifest_signer: ManifestSigner | None = None,
        names: Sequence[str] = NAMES,
    ) -> None:
        config = load_config(recipe, [*WORDS, *words])
        self.folder = RunFolder.create(folder / "run", config)
        self.coordinator = assemble(config, "run-1", self.folder, signer=manifest_signer)
        train, held_out = holdout(load_source("digits").subset(range(30)), seed=0)
        self.places = {
            name: TaskContext(
                name,
                BlobStore(folder / name),
                LocalData(train, held_out),
                folder / f"{name}-state" / "models",
                private=PrivateState(folder / f"{name}-private"),
            )
            for name in names
        }
        self.devices = tuple(
            Device(name, 1, CapabilityProfile(tier=tier), CARD, can=ALL)
            for tier, name in enumerate(names, start=1)
        )
        self._waiting: Counter[str] = Counter()

    def train_with(self, trainer: TrainerName, **more: Any) -> None:
        """Give each device this trainer, and more fields of its `TaskContext`."""
        self.places = {
            name: replace(place, trainer=make_trainer(trainer), **more) for name, place in self.places.items()
        }
        self.devices = tuple(
            replace(device, profile=device.profile.model_copy(update={"trainers": (trainer,)}))
            for device in self.devices
        )

    def tasks(
        self, number: int, attempt: int, *, deliver: bool = False, among: Collection[str] | None = None
    ) -> dict[str, Task]:
        """Plan a round and copy the blobs of each task to its device."""
        devices = tuple(device for device in self.devices if among is None or device.name in among)
        keep = frozenset(+self._waiting)
        planned = self.coordinator.planner.plan(
            PlanRound(number, attempt, devices, deliver=deliver, keep=keep)
        )
        for name, assignment in planned.assignments.items():
            encode_message(assignment.task)
            for ref in assignment.task.blobs.values():
                shutil.copy(
                    self.coordinator.storage.store.blob_path(ref.digest),
                    self.places[name].store.blob_path(ref.digest),
                )
        self.limits = {name: assignment.max_bytes for name, assignment in planned.assignments.items()}
        return {name: assignment.task for name, assignment in planned.assignments.items()}

    def round(self, number: int) -> tuple[RoundRecord, dict[str, Update]]:
        """One whole round."""
        updates = self.answers(number)
        return self.close(number, updates), updates

    def answers(self, number: int, *, among: Collection[str] | None = None) -> dict[str, Update]:
        """Plan, train and check; returns the updates of the selected devices that are in `among`."""
        updates = {}
        for name, task in self.tasks(number, number, among=among).items():
            place = self.places[name]
            trained = do_training(task, place, on_epoch=lambda report: None, should_stop=lambda: False)
            update = self.sent(name, trained)
            encode_message(update)
            assert update.blob.size <= self.limits[name]
            data = place.store.blob_path(update.blob.digest).read_bytes()
            self.coordinator.storage.store.write_chunk(
                update.blob.model_copy(update={"chunk_bytes": 2**20}), 0, data
            )
            checked = self.coordinator.checker.check(
                CheckUpdate(name, update), task, self.coordinator.model.state
            )
            assert checked.reason is None, checked.detail
            updates[name] = update
            self._waiting[update.blob.digest] += 1
        return updates

    def sent(self, name: str, update: Update) -> Update:
        """The update that a device sends after its training; subclasses alter it."""
        return update

    def close(self, number: int, updates: Mapping[str, Update]) -> RoundRecord:
        """Aggregate these updates, of this round or an earlier one, and commit the devices' private state."""
        staleness = {name: number - update.round for name, update in updates.items()}
        close = CloseRound(number, updates, tuple(sorted(updates)), (), {}, staleness)
        record = self.coordinator.aggregator.close(close)
        self.coordinator.recorder.record_round()
        for name, update in updates.items():
            private = self.places[name].private
            assert private is not None
            private.commit(update.run, update.round, update.attempt)
            self._waiting[update.blob.digest] -= 1
        return record


INPUTS = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)


def bench_of(
    folder: Path, network: str, recipe: str = "fedavg", *words: str, trainer: TrainerName = "torch"
) -> Bench:
    """A bench of a network of `tests.other_networks` and two tiers, whose devices train with `trainer`."""
    name = f"{OTHERS}:{network}"
    made = Bench(folder, recipe, f"model.name={name}", "tiers.ratios=[0.5, 0.0]", *words)
    made.train_with(trainer, model_code=frozenset({name}))
    return made


def file_outputs(path: Path) -> np.ndarray:
    """What an exported file computes of raw examples that become `INPUTS`."""
    model = load_model(path, threads=1)
    return model.logits(raw_examples(INPUTS, model.preprocessing))


def outputs_of(module: nn.Module) -> np.ndarray:
    """What a network computes of `INPUTS` in evaluation."""
    with torch.no_grad():
        return module.eval()(torch.from_numpy(INPUTS)).numpy()
