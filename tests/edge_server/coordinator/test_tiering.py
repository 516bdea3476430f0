"""Tiers of devices that state none: derived from memory, speed, measured rounds and refusals."""

import queue
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.session.events import WorkDone, WorkFailed
from edge_client.agent.worker import Worker
from edge_client.training.cost_model import network_cost
from edge_server.coordinator.coordinator import Coordinator, assemble
from edge_server.rounds.events import Note, RecordStrike
from edge_server.rounds.fleet import Device, tier_of
from edge_server.rounds.participant import Status
from edge_server.rounds.state import RoundRules
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.recovery import recover
from edge_server.strategy.selection.tier_evidence import MARGIN, REFERENCE
from edge_server.strategy.strategy import known_examples
from schemas.errors import Reason
from schemas.messages import Task, TaskReply, TrainTask
from schemas.messages.tasks import STEP
from schemas.values import Accelerator, CapabilityProfile, MeasuredSpeed, TrainerName
from tests.edge_client.system.hardware.trees import GROUP, PI, tree
from tests.edge_server.rounds.by_hand import NAME, RUN, of, training
from tests.integration.bench import CARD, NAMES, Bench

RESIDENT = 200_000_000


def undecided(name: str, *, free: int | None, speed: float | None = None) -> Device:
    """Return a device without a stated tier that has `free` bytes for training beyond its libraries."""
    measured = MeasuredSpeed(
        resident_bytes=RESIDENT, training_macs_per_s=speed, memory_bytes_per_s=None if speed is None else 1e12
    )
    left = None if free is None else RESIDENT + free
    return Device(name, 1, CapabilityProfile(memory_free_bytes=left, speed=measured), CARD)


def needed(coordinator: Coordinator, tier: int, examples: int = CARD.examples) -> int:
    """Return the bytes that a tier needs for these examples, computed from its network."""
    cost = network_cost(coordinator.model.sub_model(tier).requires_grad_(True), (1, 8, 8))
    plan = coordinator.context.config.training
    return round(MARGIN * cost.training(plan, examples=examples).total)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    words = ("model.name=cnn", "deliver=none", "tiers.ratios=[0.7, 0.5, 0.3, 0.1, 0.0]")
    made = Bench(tmp_path, "fedavg", *words)
    weak = undecided("weak", free=needed(made.coordinator, 2) + 1000)
    made.devices = (weak, undecided("strong", free=10**9))
    return made


def test_a_run_assigns_tiers_by_evidence_updates_them_after_rounds_and_stores_them(bench: Bench) -> None:
    coordinator = bench.coordinator
    weak, strong = bench.devices
    tasks = bench.tasks(1, 1)
    assert {name: task.tier for name, task in tasks.items()} == {"weak": 2, "strong": 5}
    assert (coordinator.tiering.tier(weak), coordinator.tiering.tier(strong)) == (2, 5)
    # "strong" had too little memory for its task: the next planning assigns a lower tier, which is stored.
    coordinator.strike("strong", 1, Reason.NO_MEMORY)
    record, updates = bench.round(1)
    assert {name: task.tier for name, task in bench.tasks(2, 2).items()} == {"weak": 2, "strong": 4}
    paces = bench.folder.load_state(1).paces
    assert paces.keys() == {"weak", "strong"}
    cost = network_cost(coordinator.model.sub_model(4).requires_grad_(True), (1, 8, 8))
    macs, moved = (
        measure(examples=CARD.examples, epochs=3) for measure in (cost.training_macs, cost.training_bytes)
    )
    expected = macs / REFERENCE.macs + moved / REFERENCE.bytes
    assert paces["strong"] == pytest.approx(updates["strong"].metrics.seconds / expected)
    assert record.completed == ("strong", "weak")
    # A server killed here resumes with the same tiers.
    reader = JournalReader(bench.folder.journal)
    recovered = recover(reader, RoundRules(rounds=2), "federation", now=0.0)
    reader.close()
    assert recovered is not None
    assert recovered.resumption.undecided == {"weak", "strong"}
    again = assemble(coordinator.context.config, "run-1", bench.folder, resume=recovered.resumption)
    bench.coordinator = again
    assert {name: task.tier for name, task in bench.tasks(2, 3).items()} == {"weak": 2, "strong": 4}


def test_mirror_images_are_examples_in_memory_and_in_the_measured_pace(tmp_path: Path) -> None:
    words = ("model.name=cnn", "tiers.ratios=[0.5, 0.0]", 'training.mirror=["left-right", "up-down"]')
    bench = Bench(tmp_path, "fedavg", *words, "local-epochs=1")
    coordinator, examples = bench.coordinator, 4 * CARD.examples
    few, enough = needed(coordinator, 2), needed(coordinator, 2, examples)
    bench.devices = (undecided("weak", free=few + 1000), undecided("strong", free=enough + 1000))
    _, updates = bench.round(1)
    assert {
        name: coordinator.tiering.tier(device) for name, device in zip(NAMES, bench.devices, strict=True)
    } == {
        "weak": 1,
        "strong": 2,
    }
    cost = network_cost(coordinator.model.sub_model(2).requires_grad_(True), (1, 8, 8))
    macs, moved = (
        measure(examples=examples, epochs=1) for measure in (cost.training_macs, cost.training_bytes)
    )
    seconds = updates["strong"].metrics.seconds
    pace = bench.folder.load_state(1).paces["strong"]
    assert pace == pytest.approx(seconds / (macs / REFERENCE.macs + moved / REFERENCE.bytes))


def test_frozen_layers_have_no_backward_pass(tmp_path: Path) -> None:
    """`mlp` on digits: 64 * 200 + 200 * 200 of the head's 200 * 10 with three passes."""
    bench = Bench(tmp_path, "fedavg", "model.name=mlp", "tiers.ratios=[0.0]", "training.train=head")
    assert bench.coordinator.tiering.needs_of(1).macs == 52_800 + 3 * 2_000


def test_births_and_updates_count_mirror_images_alike(tmp_path: Path) -> None:
    """What a device says that it trained on is bounded by its birth, and masks hide weights up to it."""
    words = ('training.mirror=["left-right"]', "privacy.secure-aggregation=true", "num-clients=3")
    bench = Bench(tmp_path, "fedavg", *words, names=("a", "b", "c"))
    task = bench.tasks(1, 1)["a"]
    assert isinstance(task, TrainTask)
    assert task.masking is not None
    assert known_examples(bench.coordinator.model.state)["a"] == task.masking.max_weight == 2 * CARD.examples


def test_a_slow_device_gets_a_tier_it_can_train_in_time(bench: Bench) -> None:
    # Half of 600 s: at 1 MAC a second not even the smallest tier finishes, so the smallest tier is assigned.
    bench.devices = (undecided("weak", free=10**9, speed=1.0), undecided("strong", free=10**9, speed=1e12))
    assert {name: task.tier for name, task in bench.tasks(1, 1).items()} == {"weak": 1, "strong": 5}


def test_stated_tiers_need_no_network_cost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_server.coordinator.tier_assignment.network_cost", None)
    stated = [Device(name, 1, CapabilityProfile(tier=3), CARD) for name in ("weak", "strong")]
    bench.devices = tuple(stated)
    assert {task.tier for task in bench.tasks(1, 1).values()} == {3}


def board_of_512_mb(name: str, *trainers: TrainerName) -> Device:
    """Return a device without a stated tier or measurements, with the free memory of a Pi Zero 2 W."""
    profile = CapabilityProfile(
        memory_bytes=436_000_000, memory_free_bytes=239_000_000, trainers=trainers or ("torch",)
    )
    return Device(name, 1, profile, CARD)


def test_a_board_of_512_mb_has_a_larger_tier_with_onnxruntime_than_with_torch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without measurements a process with torch takes 330 MB, and one with onnxruntime 90 MB."""
    monkeypatch.setattr("edge_server.coordinator.step_graphs.StepGraphs.of", lambda *_, **__: {})
    tiering = bench.coordinator.tiering
    weak, strong = board_of_512_mb("weak", "torch"), board_of_512_mb("strong", "onnx")
    bench.devices = (weak, strong)
    assert {name: task.tier for name, task in bench.tasks(1, 1).items()} == {"weak": 1, "strong": 5}
    assert (tiering.trainer(weak), tiering.trainer(strong)) == ("torch", "onnx")


def test_a_board_with_both_trainers_gets_graphs_where_torch_does_not_fit(bench: Bench) -> None:
    both = board_of_512_mb("weak", "torch", "onnx")
    roomy = CapabilityProfile(memory_free_bytes=10**9, trainers=("torch", "onnx"))
    bench.devices = (both, Device("strong", 1, roomy, CARD))
    tasks = bench.tasks(1, 1)
    assert STEP in tasks["weak"].blobs
    assert STEP not in tasks["strong"].blobs
    assert {name: task.tier for name, task in tasks.items()} == {"weak": 5, "strong": 5}


def test_a_board_with_both_trainers_uses_torch_for_objectives_that_need_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedmix", "deliver=none")
    bench.devices = (board_of_512_mb("weak", "torch", "onnx"),)
    bench.coordinator.tiering.place(bench.devices, None, 1)
    assert bench.coordinator.tiering.trainer(bench.devices[0]) == "torch"


def test_the_speed_of_a_board_is_that_of_its_trainer(bench: Bench) -> None:
    fast, slow = (
        CapabilityProfile(
            memory_free_bytes=10**9,
            trainers=("onnx",),
            speed=MeasuredSpeed(training_macs_per_s=other, memory_bytes_per_s=1e12),
            further_speeds=(MeasuredSpeed(trainer="onnx", training_macs_per_s=own, memory_bytes_per_s=1e12),),
        )
        for own, other in ((1e12, 1.0), (1.0, 1e12))
    )
    devices = (Device("fast", 1, fast, CARD), Device("slow", 1, slow, CARD))
    bench.coordinator.tiering.place(devices, None, 1)
    assert [bench.coordinator.tiering.tier(device) for device in devices] == [5, 1]


def test_a_card_with_memory_of_its_own_counts_in_place_of_the_boards(bench: Bench) -> None:
    def device(name: str, **card: Any) -> Device:
        memory = {"memory_bytes": 10**9, "memory_free_bytes": 331_000_000}
        return Device(name, 1, CapabilityProfile(**memory, trains_on=Accelerator(kind="cuda", **card)), CARD)

    own = device("own", memory_bytes=8 * 10**9, free_bytes=7 * 10**9)
    shared = device("shared", memory_bytes=10**9, free_bytes=331_000_000, shares=True)
    full = device("full", memory_bytes=8 * 10**9, free_bytes=1_000_000)
    bench.coordinator.tiering.place((own, shared, full), None, 1)
    assert [bench.coordinator.tiering.tier(each) for each in (own, shared, full)] == [5, 1, 1]
    assert [tier_of(each.profile, 5) for each in (own, shared)] == [4, 1]


def no_memory(device: str) -> TaskReply:
    return TaskReply(
        federation=NAME,
        device=device,
        run=RUN,
        round=1,
        attempt=1,
        accepted=False,
        reason=Reason.NO_MEMORY,
        detail="training needs 90 MB more, 40 MB are free",
    )


def test_a_refusal_for_memory_is_noted_and_recorded_once_without_a_reputation_loss() -> None:
    run = training("a", "b")
    commands = run.hear(no_memory("a"))
    (note,) = of(Note, commands)
    assert (note.device, note.reason) == ("a", Reason.NO_MEMORY)
    assert "40 MB are free" in note.detail
    assert of(RecordStrike, commands) == [RecordStrike("a", 1, Reason.NO_MEMORY)]
    assert run.status("a") is Status.DECLINED
    assert of(RecordStrike, run.hear(no_memory("a"))) == []
    assert run.federation.reputations == {}


def trained_or_refused(bench: Bench, task: Task) -> str:
    """Run a task in a device's worker and return "done" or the reason of its refusal."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    Worker(inbox).start(task, bench.places["strong"])
    while True:
        event = inbox.get(timeout=120)
        if isinstance(event, WorkDone):
            return "done"
        if isinstance(event, WorkFailed):
            return str(event.reason)


def test_a_device_whose_limit_was_lowered_refuses_until_its_task_fits(bench: Bench, tmp_path: Path) -> None:
    """Its birth stated much memory; its control group now has enough for tier 3 with a batch of one."""
    cost = network_cost(bench.coordinator.model.sub_model(3).requires_grad_(True), (1, 8, 8))
    plan = bench.coordinator.context.config.training
    alone = cost.training(plan, examples=CARD.examples, batch=1, pixel_bytes=0).total - cost.parameters
    limit = {f"sys/fs/cgroup/{GROUP}/memory.max": str(100_000_000 + round(MARGIN * alone) + 1000)}
    bench.places["strong"] = replace(bench.places["strong"], board=tree(tmp_path / "root", PI, limit))
    outcomes, tiers = [], []
    for attempt in (1, 2, 3):
        task = bench.tasks(1, attempt)["strong"]
        tiers.append(task.tier)
        outcomes.append(trained_or_refused(bench, task))
        if outcomes[-1] == Reason.NO_MEMORY:
            bench.coordinator.strike("strong", 1, Reason.NO_MEMORY)
    assert tiers == [5, 4, 3]
    assert outcomes == ["no-memory", "no-memory", "done"]


def test_labels_give_tiers_to_devices_that_state_none(tmp_path: Path) -> None:
    tiers = "tiers.ratios=[0.7, 0.5, 0.3, 0.1, 0.0]"
    words = ("model.name=cnn", "deliver=none", tiers, 'tiers.by-label={"role=scale" = 1, "site=barn" = 3}')
    bench = Bench(tmp_path, "fedavg", *words)
    scale = replace(undecided("scale", free=10**9), labels={"role": "scale", "site": "barn"})
    camera = replace(undecided("camera", free=10**9), labels={"site": "barn"})
    stated = Device("stated", 1, CapabilityProfile(tier=2), CARD, labels={"role": "scale"})
    devices, tiering = (scale, camera, stated, undecided("other", free=10**9)), bench.coordinator.tiering
    tiering.place(devices, {}, 1)
    assert {device.name: tiering.tier(device) for device in devices} == {
        "scale": 1,
        "camera": 3,
        "stated": 2,
        "other": 5,
    }
