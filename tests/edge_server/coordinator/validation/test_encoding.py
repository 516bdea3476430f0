"""An encoded update is refused unless its task's codecs could have written it; valid ones are decoded."""

import numpy as np
import pytest
import zstandard

from edge_client.agent.task_runner import do_training
from edge_client.compression.chain import make_chain
from edge_client.compression.decoding import decode_groups
from edge_client.storage.private_state import PrivateState
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.validation import contents
from edge_server.coordinator.validation.contents import UnpackedCache
from edge_server.coordinator.validation.update import check_encoding
from edge_server.rounds.events import CheckUpdate
from schemas.errors import PeerError, Reason
from schemas.messages import Update
from schemas.strategy import Component
from schemas.tensors.chunks import BlobRef, digest_of
from tests.groups import encode_groups
from tests.integration.bench import Bench

RNG = np.random.default_rng(0)
UPDATE = {"w": RNG.normal(size=(4, 300)).astype(np.float32), "b": RNG.normal(size=4).astype(np.float32)}
UPLINK = 'strategy.uplink=["int8", "zstd"]'
THIN = 'strategy.uplink=[{name="top-k", share=0.1}, "int8", "zstd"]'


def chain(*named):
    return make_chain([Component.model_validate(codec) for codec in named])


def encoded(*named):
    """Return an update as plain arrays, which a test may change."""
    groups = chain(*named).encode(UPDATE, 0).groups
    return {group: {name: np.array(parts[name]) for name in parts} for group, parts in groups.items()}


FEW, MORE, MIN_LEVELS = ({"name": "int8", "levels": levels} for levels in (7, 8, 1))
CHAINS = [(), ("fp16",), ("int8",), (MORE,), (FEW,), (MIN_LEVELS,), ("top-k",), ("top-k", "int8")]


@pytest.mark.parametrize("named", CHAINS, ids=str)
def test_only_the_tasks_own_codecs_are_accepted(named):
    check_encoding(encoded(*named), chain(*named))
    for other in CHAINS:
        # Codes of one byte each do not state the number of levels.
        if other != named and (named, other) != ((MORE,), ("int8",)):
            with pytest.raises(PeerError):
                check_encoding(encoded(*named), chain(*other))


def odd(group, name, value):
    """Return a function that changes one array; a `value` of None removes the array."""

    def change(groups):
        if value is None:
            del groups[group][name]
        else:
            groups[group][name] = value(groups[group].get(name))

    return change


def twice(columns):
    columns[1] = 0
    return columns


def beyond(columns):
    columns[0] = 299
    return columns


TRICKS = {
    "a step that is not a number": (odd("model.scales", "w", lambda a: a * np.nan), "not-finite"),
    "a step below 0": (odd("model.scales", "w", lambda a: -a), "malformed"),
    "too few steps": (odd("model.scales", "w", lambda a: a[:3]), "wrong-shape"),
    "steps of another type": (odd("model.scales", "w", lambda a: a.astype(np.float64)), "wrong-shape"),
    "no steps": (odd("model.scales", "w", None), "wrong-shape"),
    "steps where none belong": (odd("model.scales", "b", lambda _: np.ones(4, np.float32)), "wrong-shape"),
    "a code beyond all levels": (odd("model", "w", lambda a: np.full_like(a, -128)), "out-of-bounds"),
    "a column twice": (odd("model.columns", "w", twice), "malformed"),
    "a column beyond its row": (odd("model.columns", "w", beyond), "malformed"),
    "columns of another type": (odd("model.columns", "w", lambda a: a.astype(np.uint32)), "wrong-shape"),
    "more columns than numbers": (odd("model.columns", "w", lambda a: np.append(a, a[:1])), "wrong-shape"),
    "row counts that are too high": (odd("model.counts", "w", lambda a: a + 1), "malformed"),
    "row counts that overflow": (odd("model.counts", "w", lambda a: np.uint32(2**32 - 1) - a), "malformed"),
    "no rows": (odd("model.counts", "w", lambda a: a[:0]), "wrong-shape"),
    "a shape of no axes": (odd("model.shapes", "w", lambda a: a[:0]), "wrong-shape"),
    "a shape of a thousand axes": (
        odd("model.shapes", "w", lambda a: np.ones(1000, np.uint32)),
        "wrong-shape",
    ),
    "a shape of a scalar": (odd("model.shapes", "w", lambda a: a[0]), "wrong-shape"),
    "a shape of other rows": (odd("model.shapes", "w", lambda a: a[::-1]), "wrong-shape"),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_arrays_that_no_codec_writes_are_refused_with_their_reason(trick):
    change, reason = TRICKS[trick]
    groups = encoded("top-k", "int8")
    change(groups)
    with pytest.raises(PeerError) as refused:
        check_encoding(groups, chain("top-k", "int8"))
    assert refused.value.reason == reason


SHARED_TRICKS = {
    "a byte of no codes": (odd("model", "w", lambda a: np.full_like(a, 225)), "out-of-bounds"),
    "other levels": (odd("model.digits", "w", lambda a: a - np.array([1, 0, 0], np.uint32)), "wrong-shape"),
    "no levels": (odd("model.digits", "w", lambda a: a * 0), "wrong-shape"),
    "other rows": (odd("model.digits", "w", lambda a: a - np.array([0, 1, 0], np.uint32)), "wrong-shape"),
    "other columns": (odd("model.digits", "w", lambda a: a - np.array([0, 0, 2], np.uint32)), "wrong-shape"),
    "nothing stated": (odd("model.digits", "w", lambda a: a[:0]), "wrong-shape"),
    "one axis": (odd("model.digits", "w", lambda a: a[:2]), "wrong-shape"),
    "a thousand axes": (odd("model.digits", "w", lambda a: np.full(1000, 7, np.uint32)), "wrong-shape"),
    "a number for axes": (odd("model.digits", "w", lambda a: a[0]), "wrong-shape"),
    "axes of another type": (odd("model.digits", "w", lambda a: a.astype(np.int64)), "wrong-shape"),
    "axes missing": (odd("model.digits", "w", None), "wrong-shape"),
    "axes of an offset": (odd("model.digits", "b", lambda _: np.array([7, 4], np.uint32)), "wrong-shape"),
    "a byte too few": (odd("model", "w", lambda a: a[:, :-1]), "wrong-shape"),
    "codes of another type": (odd("model", "w", lambda a: a.astype(np.int8)), "wrong-shape"),
}


@pytest.mark.parametrize("trick", SHARED_TRICKS)
def test_shared_bytes_that_no_codec_writes_are_refused_with_their_reason(trick):
    change, reason = SHARED_TRICKS[trick]
    groups = encoded(FEW)
    change(groups)
    with pytest.raises(PeerError) as refused:
        check_encoding(groups, chain(FEW))
    assert refused.value.reason == reason


def test_a_forged_shape_costs_no_memory():
    """The whole parameter would have 2^62 numbers; the check of shapes refuses it."""
    groups = encoded("top-k")
    groups["model"]["w"], groups["model.columns"]["w"] = np.zeros(0, np.float32), np.zeros(0, np.uint32)
    groups["model.counts"]["w"] = np.zeros(4, np.uint32)
    groups["model.shapes"]["w"] = np.array([4, 2**31, 2**29], np.uint32)
    with pytest.raises(PeerError):
        check_encoding({**groups, "model.columns": {"w": np.zeros(1, np.uint32)}}, chain("top-k"))
    assert decode_groups(groups)["model"].kind("w")[1] == (4, 2**31, 2**29)  # type: ignore[attr-defined]


# --- a server's full check ---
def answer(bench: Bench, name: str = "weak") -> tuple[Update, bytes]:
    """Return a device's update of round one and its bytes."""
    task, place = bench.tasks(1, 1)[name], bench.places[name]
    update = do_training(task, place, on_epoch=lambda report: None, should_stop=lambda: False)
    return update, place.store.blob_path(update.blob.digest).read_bytes()


def checked(bench: Bench, update: Update, data: bytes) -> Reason | None:
    """Return the server's reason for refusing the update with these bytes, or None."""
    ref = BlobRef(digest=digest_of(data), size=len(data))
    bench.coordinator.storage.store.put_blob(data)
    return bench.coordinator.checker.check(
        CheckUpdate(update.device, update.model_copy(update={"blob": ref})),
        bench.asked[update.device],
        bench.coordinator.model.state,
    ).reason


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path, "fedavg", UPLINK)
    bench.asked = bench.tasks(1, 1)
    return bench


def test_an_update_that_unpacks_to_more_than_the_limit_is_refused(bench):
    update, data = answer(bench)
    assert checked(bench, update, data) is None
    bomb = zstandard.ZstdCompressor().compress(bytes(10**8))
    assert checked(bench, update, bomb) is Reason.OVERSIZED
    folder = bench.folder.unpacked
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10**7


def test_uncompressed_or_invalid_updates_are_refused(bench):
    update, data = answer(bench)
    assert checked(bench, update, encode_groups(encoded("int8"))) is Reason.MALFORMED
    assert checked(bench, update, data[:-50]) is Reason.MALFORMED
    assert checked(bench, update, zstandard.compress(b"not a blob")) is Reason.MALFORMED
    assert checked(bench, update, zstandard.compress(encode_groups(encoded("int8")))) is Reason.WRONG_SHAPE
    assert checked(bench, update, zstandard.compress(encode_groups({}))) is Reason.WRONG_SHAPE


@pytest.mark.parametrize("words", [UPLINK, THIN, 'strategy.uplink=["fp16"]'])
def test_a_run_is_replayed_bit_for_bit_from_the_sent_updates(tmp_path, words):
    bench = Bench(tmp_path, "attending", words)
    for number in (1, 2):
        record, _ = bench.round(number)
        assert len(record.completed) == 2
    assert [result.verdict for result in replay(tmp_path / "run")] == [
        ReplayVerdict.AGREES,
        ReplayVerdict.AGREES,
    ]


def test_unpacked_files_may_be_deleted_at_any_time(tmp_path):
    models = []
    for folder in (tmp_path / "kept", tmp_path / "deleted"):
        bench = Bench(folder, "fedavg", UPLINK)
        updates = bench.answers(1)
        assert len(list(bench.folder.unpacked.iterdir())) == 2
        if folder.name == "deleted":
            UnpackedCache(bench.folder.unpacked).remove()
        bench.close(1, updates)
        models.append((bench.folder.version(1) / "state.safetensors").read_bytes())
    assert models[0] == models[1]


def test_the_next_planning_discards_unpacked_files(tmp_path):
    bench = Bench(tmp_path, "fedavg", UPLINK)
    record, _ = bench.round(1)
    assert len(list(bench.folder.unpacked.iterdir())) == len(record.completed)
    bench.tasks(2, 2)
    # Only spare files to overwrite are left.
    left = list(bench.folder.unpacked.iterdir())
    assert [path.suffix for path in left] == [".spare"] * len(record.completed)


def test_a_shorter_update_unpacked_over_a_longer_file_is_complete_and_exact(tmp_path):
    unpacked, kept = UnpackedCache(tmp_path / "unpacked"), {}
    for size in (900, 40, 500):
        kept[size] = data = encode_groups({"model": {"w": np.arange(size)}})
        packed = tmp_path / digest_of(data)
        packed.write_bytes(zstandard.compress(data))
        assert (unpacked.groups(packed)["model"]["w"] == np.arange(size)).all()
        assert [path.read_bytes() for path in (tmp_path / "unpacked").iterdir()] == [data]
        unpacked.keep_only(frozenset())


# --- error feedback on a device ---
def test_unsent_values_count_in_the_next_round_only_if_this_round_counted(tmp_path):
    bench = Bench(tmp_path, "attending-lowest", THIN)
    private = bench.places["weak"].private
    assert isinstance(private, PrivateState)
    updates = bench.answers(1)
    assert private.load_groups("run-1", 2) == {}
    bench.close(1, updates)
    left = private.load_groups("run-1", 2)["residual"]
    shapes = {name: layout.shape for name, layout in bench.coordinator.context.channel_map.parameters.items()}
    assert {name: array.shape for name, array in left.items()} == {
        name: shape for name, shape in shapes.items() if len(shape) > 1
    }
    assert any(array.any() for array in left.values())


def test_residuals_outside_the_sub_model_are_unchanged(tmp_path):
    """Round two uses a smaller sub-model: residuals outside it are kept, in global coordinates."""
    bench = Bench(tmp_path, "fedavg", "model.name=mlp", THIN, "tiers.ratios=[0.5, 0.0]")
    private = bench.places["strong"].private
    assert isinstance(private, PrivateState)
    bench.round(1)
    before = private.load_groups("run-1", 2)["residual"]
    bench.devices = tuple(
        device
        if device.name == "weak"
        else type(device)(device.name, 1, bench.devices[0].profile, device.data)
        for device in bench.devices
    )
    bench.round(2)
    after = private.load_groups("run-1", 3)["residual"]
    name = "linear1.weight"
    half = before[name].shape[0] // 2
    np.testing.assert_array_equal(after[name][half:], before[name][half:])
    assert (after[name][:half] != before[name][:half]).any()


@pytest.mark.parametrize("size", [100, 1000, 2500])
def test_unpacked_groups_are_readable_whether_or_not_they_fit_in_memory(tmp_path, size, monkeypatch):
    monkeypatch.setattr(contents, "IN_MEMORY_BYTES", 1000)
    arrays = {"w": np.arange(size // 8, dtype=np.int64)}
    data, unpacked = encode_groups({"model": arrays}), UnpackedCache(tmp_path / "unpacked")
    packed = tmp_path / digest_of(data)
    packed.write_bytes(zstandard.compress(data))
    for _ in range(2):
        groups = unpacked.transient_groups(packed)
        assert (groups["model"]["w"] == arrays["w"]).all()
    assert (tmp_path / "unpacked" / packed.name).read_bytes() == data
