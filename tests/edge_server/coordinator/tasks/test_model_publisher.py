"""Model frames: each device fetches the frames it lacks, and all devices end up with the same model."""

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.session.events import Connected, Received
from edge_client.agent.session.machine import Session, step
from edge_client.agent.task_runner import do_training
from edge_client.compression.decoding import decode_groups
from edge_client.compression.downlink import DOWNLINK, make_downlink
from edge_client.compression.layered_model import received_groups, unpack_blobs
from edge_client.compression.quantization import Int8
from edge_client.pruning.index_sets import LazySlice, extract
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.rounds.broadcast.pacing import add_follower, begin, plan_broadcast
from edge_server.rounds.events import PlanRound
from edge_server.storage.recovery import Resumption
from schemas.errors import ConfigError, PeerError
from schemas.messages import Task, TrainTask
from schemas.strategy import Component
from schemas.tensors.files import FileGroups
from tests.edge_server.coordinator.tasks.test_downlink import bound
from tests.integration.bench import NAMES, Bench

SMALL = '["delta", {name="int8", levels=7}, "zstd"]'


def bench(folder: Path, downlink: str, *words: str, recipe: str = "heterofl") -> Bench:
    folder.mkdir(exist_ok=True)
    return Bench(folder, recipe, f"strategy.downlink={downlink}", "clients.fraction=1.0", *words)


def received(task: Task, store: BlobStore, desk: Bench) -> dict[str, np.ndarray]:
    with unpack_blobs(task, store) as cache:
        model = decode_groups(received_groups(task, cache, desk.coordinator.context.channel_map))["model"]
        return {name: model[name] for name in model}


def moved(desk: Bench, seed: int, size: float = 0.001) -> None:
    """Change the model a little, as a closed round would."""
    rng, state = np.random.default_rng(seed), desk.coordinator.model.state
    params = {
        name: array + np.float32(size) * rng.normal(size=array.shape).astype(np.float32)
        for name, array in state.params.items()
    }
    desk.coordinator.model.state = replace(state, params=params, round=state.round + 1)


def asked_for(task: Task, held: frozenset[str]) -> set[str]:
    session, _ = step(Session("test", "pi", held=held), Connected(), 0.0)
    session, _ = step(session, Received(task.model_copy(update={"federation": "test"})), 0.0)
    return {name for name, ref in task.blobs.items() if ref.digest in session.receiving}


def digests(*tasks: Task) -> frozenset[str]:
    return frozenset(ref.digest for task in tasks for ref in task.blobs.values())


def last_frame(task: Task) -> set[str]:
    newest = max(layer.frame for layer in task.layers)
    return {layer.blob for layer in task.layers if layer.frame == newest}


# --- blobs that each device fetches ---
def test_only_changes_are_fetched_after_a_whole_model(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL)
    first = desk.tasks(1, 1)
    assert asked_for(first["strong"], frozenset()) == set(first["strong"].blobs)
    moved(desk, 1)
    second = desk.tasks(2, 2)
    for name in NAMES:
        assert [layer.frame for layer in first[name].layers] == [0] * len(first[name].layers)
        assert {layer.frame for layer in second[name].layers} == {0, 1}
        assert asked_for(second[name], digests(first[name])) == last_frame(second[name])


def test_a_device_that_missed_rounds_fetches_the_missed_frames_and_gets_the_same_model(
    tmp_path: Path,
) -> None:
    desk = bench(tmp_path, SMALL)
    first = desk.tasks(1, 1)["strong"]
    for number in (2, 3, 4):
        moved(desk, number)
        last = desk.tasks(number, number)["strong"]
    missed = asked_for(last, digests(first))
    assert missed == {layer.blob for layer in last.layers if layer.frame > 0}
    late = BlobStore(tmp_path / "late")
    for ref in last.blobs.values():
        (late.directory / ref.digest).write_bytes(
            desk.coordinator.storage.store.blob_path(ref.digest).read_bytes()
        )
    everyone = received(last, desk.places["strong"].store, desk)
    for name, array in received(last, late, desk).items():
        assert array.tobytes() == everyone[name].tobytes()


def test_a_device_that_is_new_or_lost_its_blobs_also_fetches_the_whole_model(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL)
    desk.tasks(1, 1)
    moved(desk, 1)
    task = desk.tasks(2, 2)["weak"]
    assert asked_for(task, frozenset()) == set(task.blobs)
    assert {name for name in task.blobs if task.blobs[name] in task.pushed_blobs()} <= last_frame(task)


def test_every_nth_model_is_sent_whole(tmp_path: Path) -> None:
    desk = bench(tmp_path, '[{name="delta", every=3}, "int8"]')
    frames = []
    for number in range(1, 6):
        frames.append(max(layer.frame for layer in desk.tasks(number, number)["strong"].layers))
        moved(desk, number)
    assert frames == [0, 1, 2, 0, 1]
    # Blobs of earlier frames are deleted.
    desk.tasks(6, 6)
    assert len(desk.coordinator.storage.store.digests()) == 1 + len(desk.coordinator.publisher.digests)


def test_a_model_very_different_from_the_last_is_sent_whole(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL)
    desk.tasks(1, 1)
    moved(desk, 1, size=1.0)
    assert {layer.frame for layer in desk.tasks(2, 2)["strong"].layers} == {0}


def test_a_device_of_a_previously_unused_tier_receives_the_model(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL)
    desk.tasks(1, 1, among=("strong",))
    moved(desk, 1)
    tasks = desk.tasks(2, 2)
    assert {layer.frame for layer in tasks["weak"].layers} == {0, 1}
    assert set(received(tasks["weak"], desk.places["weak"].store, desk))


def test_tiers_share_layers_and_blobs_that_no_device_lacks_are_not_published(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL)
    first = desk.tasks(1, 1)
    moved(desk, 1)
    tasks = desk.tasks(2, 2)
    shared = digests(tasks["weak"]) & digests(tasks["strong"])
    assert {tasks["weak"].blobs[name].digest for name in tasks["weak"].channels} <= shared
    cast = plan_broadcast(tasks.values(), 0.0)
    assert cast is not None
    for name, task in tasks.items():
        lacks = {task.blobs[blob].digest for blob in asked_for(task, digests(first[name]))}
        cast = add_follower(
            cast, name, [n for blob, n in task.channels.items() if task.blobs[blob].digest in lacks], 0
        )
    published = {part.ref.digest for part in begin(cast, 0.0).ranges}
    assert published == {tasks["weak"].blobs[name].digest for name in last_frame(tasks["weak"])}


# --- the assembled model ---
@pytest.mark.parametrize(
    "downlink",
    ['["zstd"]', '["int8", "zstd"]', '["delta"]', '["delta", "zstd"]', '["delta", "fp16", "zstd"]', SMALL],
)
def test_every_tier_receives_its_part_of_one_model_within_the_codecs_bounds(
    tmp_path: Path, downlink: str
) -> None:
    desk, codecs = bench(tmp_path, downlink), make_downlink(components(downlink))
    before: dict[str, np.ndarray] = {}
    for number in (1, 2, 3):
        tasks, params = desk.tasks(number, number), desk.coordinator.model.state.params
        held = desk.coordinator.publisher.chain.params
        for name, task in tasks.items():
            model, channel_map = (
                received(task, desk.places[name].store, desk),
                desk.coordinator.context.channel_map,
            )
            exact = extract(params, task.spec, channel_map)
            for parameter, array in model.items():
                off = np.abs(array.astype(np.float64) - exact[parameter])
                allowed = most_off(codecs, params[parameter], before.get(parameter))
                assert (off <= extract({parameter: allowed}, task.spec, channel_map)[parameter]).all()
                if held:
                    mine = LazySlice(held, task.spec, channel_map)[parameter]
                    assert mine.tobytes() == array.tobytes()
        before = {name: np.array(array) for name, array in held.items()}
        moved(desk, number)


def components(downlink: str) -> list[Component]:
    return [Component.model_validate(codec) for codec in tomllib.loads(f"named={downlink}")["named"]]


def most_off(codecs, params: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """Return the largest error: `bound` for a whole model; a change's own bound plus float32 rounding."""
    if codecs.number is None or params.ndim < 2:
        return np.zeros(params.shape)
    kind = "int8" if isinstance(codecs.number, Int8) else "fp16"
    if before is None:
        return bound(kind, params)
    change = params.astype(np.float64) - before
    off = bound(kind, change) * (127 / codecs.number.levels if kind == "int8" else 1)
    return off * (1 + 1e-4) + 2**-22 * np.abs(params)


def test_a_device_that_learns_nothing_sends_nothing(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL)
    desk.tasks(1, 1)
    moved(desk, 1)
    task, place = desk.tasks(2, 2)["weak"], desk.places["weak"]
    assert task.training is not None
    idle = task.model_copy(update={"training": task.training.model_copy(update={"local_epochs": 0})})
    update = do_training(idle, place, on_epoch=lambda report: None, should_stop=lambda: False)
    sent = FileGroups(place.store.blob_path(update.blob.digest))["model"]
    assert not any(sent[name].any() for name in sent)
    assert not place.store.parts(), "unpacked files were not deleted"


@pytest.mark.parametrize("recipe", ["attending", "scaffold"])
def test_replayed_rounds_agree_bit_for_bit(tmp_path: Path, recipe: str) -> None:
    desk = bench(tmp_path, SMALL, recipe=recipe)
    for number in (1, 2):
        record, _ = desk.round(number)
        assert len(record.completed) == 2
    assert [result.verdict for result in replay(tmp_path / "run")] == [
        ReplayVerdict.AGREES,
        ReplayVerdict.AGREES,
    ]


def test_the_delivered_model_is_exact(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL)
    desk.tasks(1, 1)
    moved(desk, 1)
    task = desk.tasks(1, 2, deliver=True)["strong"]
    exact = extract(desk.coordinator.model.state.params, task.spec, desk.coordinator.context.channel_map)
    model = received(task, desk.places["strong"].store, desk)
    assert all(np.array_equal(model[name], exact[name]) for name in exact)


# --- bytes ---
def test_changes_in_few_levels_take_less_than_a_seventh_of_the_float32_model(tmp_path: Path) -> None:
    desk = bench(tmp_path, SMALL, "model.name=two-nn")
    first = desk.tasks(1, 1)
    moved(desk, 1)
    second = desk.tasks(2, 2)
    for name in NAMES:
        plain = sum(array.nbytes for array in received(second[name], desk.places[name].store, desk).values())
        fetched = [second[name].blobs[blob].size for blob in asked_for(second[name], digests(first[name]))]
        assert sum(fetched) < plain / 7
        whole = [first[name].blobs[layer.blob].size for layer in first[name].layers]
        assert sum(whole) < plain / 3


# --- a killed server ---
def test_a_repeated_planning_names_the_same_frames(tmp_path: Path) -> None:
    """The server is killed after writing the frame, before journaling the plan; then the file is lost too."""
    desk = bench(tmp_path, SMALL)
    desk.round(1)
    before = desk.tasks(2, 2)
    desk.coordinator.storage.close()
    config, folder = desk.coordinator.context.config, desk.folder
    again = assemble(config, "run-1", folder, resume=Resumption(1))
    named = again.planner.plan(PlanRound(2, 2, desk.devices)).assignments
    assert {name: (assignment.task.blobs, assignment.task.layers) for name, assignment in named.items()} == {
        name: (task.blobs, task.layers) for name, task in before.items()
    }
    assert {layer.frame for layer in before["strong"].layers} == {0, 1}
    again.storage.close()
    folder.frames.unlink()
    anew = assemble(config, "run-1", folder, resume=Resumption(1))
    task = anew.planner.plan(PlanRound(2, 2, desk.devices)).assignments["strong"].task
    assert {layer.frame for layer in task.layers} == {0}
    anew.storage.close()


@pytest.mark.parametrize("harm", ["blob", "file"])
def test_frames_start_over_when_a_blob_or_the_file_is_lost(tmp_path: Path, harm: str) -> None:
    desk = bench(tmp_path, SMALL)
    desk.round(1)
    desk.tasks(2, 2)
    desk.coordinator.storage.close()
    if harm == "blob":
        desk.coordinator.storage.store.blob_path(min(desk.coordinator.publisher.digests)).unlink()
    else:
        desk.folder.frames.write_bytes(b"half of it")
    again = assemble(desk.coordinator.context.config, "run-1", desk.folder, resume=Resumption(1))
    task = again.planner.plan(PlanRound(2, 2, desk.devices)).assignments["strong"].task
    assert {layer.frame for layer in task.layers} == {0}
    again.storage.close()


# --- refusals ---
def test_a_layer_that_unpacks_to_more_than_its_task_states_is_refused(tmp_path: Path) -> None:
    desk = bench(tmp_path, '["zstd"]')
    task, store = desk.tasks(1, 1)["weak"], desk.places["weak"].store
    assert task.layers[0].unpacked is not None
    with unpack_blobs(task, store) as cache:
        size = cache.blob_path(task.blobs[task.layers[0].blob].digest).stat().st_size
    assert size == task.layers[0].unpacked
    less = (task.layers[0].model_copy(update={"unpacked": size - 1}), *task.layers[1:])
    with (
        pytest.raises(PeerError, match="unpacks to more than"),
        unpack_blobs(task.model_copy(update={"layers": less}), store),
    ):
        pass
    assert not store.parts()


def test_a_task_with_frames_out_of_order_is_invalid(tmp_path: Path) -> None:
    desk = bench(tmp_path, '["delta"]')
    desk.tasks(1, 1)
    moved(desk, 1)
    task = desk.tasks(2, 2)["strong"]
    with pytest.raises(ValueError, match="not in order"):
        TrainTask.model_validate(
            {**task.model_dump(), "layers": [layer.model_dump() for layer in task.layers[::-1]]}
        )


def test_packing_without_its_package_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        ConfigError, match=r"'zstd' needs the package zstandard: pip install 'edge-federation"
    ):
        make_downlink([Component(name="zstd")])


def test_downlink_codecs_must_be_named_in_their_order() -> None:
    assert list(DOWNLINK) == ["delta", "fp16", "int8", "zstd"]
    with pytest.raises(ConfigError, match=r'write \["delta", "int8", "zstd"\]'):
        make_downlink([Component(name="int8"), Component(name="zstd"), Component(name="delta")])
    with pytest.raises(ConfigError, match="every is a whole number from 2 to 50, not 1"):
        make_downlink([Component(name="delta", options={"every": 1})])
    # Whole models use 127 levels even if their changes use fewer.
    assert make_downlink(components(SMALL)).whole == Int8()
    assert make_downlink([Component(name="int8", options={"levels": 7})]).whole == Int8(7)
