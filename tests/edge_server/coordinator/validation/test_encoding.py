"""An encoded update is refused unless it is just what its task's codecs write; it is read as it was meant."""

import numpy as np
import pytest
import zstandard

from edge_client.agent.task_runner import do_training
from edge_client.compression.chain import make_chain
from edge_client.compression.decoding import decoded
from edge_client.storage.private_state import PrivateState
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.validation import unpacked_cache
from edge_server.coordinator.validation.encoding import check_encoding
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.rounds.events import CheckUpdate
from schemas.errors import PeerError
from schemas.messages import Update
from schemas.strategy import Component
from schemas.tensors.blobs import BlobRef, digest_of
from schemas.values import Reason
from tests.groups import encode_groups
from tests.integration.bench import Bench

RNG = np.random.default_rng(0)
UPDATE = {"w": RNG.normal(size=(4, 300)).astype(np.float32), "b": RNG.normal(size=4).astype(np.float32)}
UPLINK = 'strategy.uplink=["int8", "zstd"]'
THIN = 'strategy.uplink=[{name="top-k", share=0.1}, "int8", "zstd"]'


def chain(*named):
    return make_chain([Component.model_validate(one) for one in named])


def encoded(*named):
    """An update as plain arrays, so that a test may change them."""
    groups = chain(*named).encode(UPDATE, 0).groups
    return {group: {name: np.array(parts[name]) for name in parts} for group, parts in groups.items()}


FEW, MORE, LEAST = ({"name": "int8", "levels": levels} for levels in (7, 8, 1))
CHAINS = [(), ("fp16",), ("int8",), (MORE,), (FEW,), (LEAST,), ("top-k",), ("top-k", "int8")]


@pytest.mark.parametrize("named", CHAINS, ids=str)
def test_only_the_tasks_own_codecs_are_taken(named):
    check_encoding(encoded(*named), chain(*named))
    for other in CHAINS:
        # Codes that have a byte each do not say how many levels there are.
        if other != named and (named, other) != ((MORE,), ("int8",)):
            with pytest.raises(PeerError):
                check_encoding(encoded(*named), chain(*other))


def odd(group, name, value):
    """A change of one array; None leaves it out."""

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
    "a step that is no number": (odd("model.scales", "w", lambda a: a * np.nan), "not-finite"),
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
    "rows that count others": (odd("model.counts", "w", lambda a: a + 1), "malformed"),
    "rows that count round": (odd("model.counts", "w", lambda a: np.uint32(2**32 - 1) - a), "malformed"),
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
def test_a_form_that_no_codec_writes_is_refused_with_its_reason(trick):
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
    "axes of an offset": (
        odd("model.digits", "b", lambda _: np.array([7, 4], np.uint32)),
        "wrong-shape",
    ),
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


def test_a_shape_that_was_made_up_costs_no_memory():
    """The whole parameter would be of 2^62 numbers; the check of shapes refuses it."""
    groups = encoded("top-k")
    groups["model"]["w"], groups["model.columns"]["w"] = np.zeros(0, np.float32), np.zeros(0, np.uint32)
    groups["model.counts"]["w"] = np.zeros(4, np.uint32)
    groups["model.shapes"]["w"] = np.array([4, 2**31, 2**29], np.uint32)
    with pytest.raises(PeerError):
        check_encoding({**groups, "model.columns": {"w": np.zeros(1, np.uint32)}}, chain("top-k"))
    assert decoded(groups)["model"].kind("w")[1] == (4, 2**31, 2**29)  # type: ignore[attr-defined]


# --- a server's whole way ---
def answer(bench: Bench, name: str = "weak") -> tuple[Update, bytes]:
    """What a device answers in round one."""
    task, place = bench.tasks(1, 1)[name], bench.places[name]
    update = do_training(task, place, on_epoch=lambda report: None, should_stop=lambda: False)
    return update, place.store.path(update.blob.digest).read_bytes()


def checked(bench: Bench, update: Update, data: bytes) -> Reason | None:
    """What the server says of the update with these bytes."""
    ref = BlobRef(digest=digest_of(data), size=len(data))
    bench.coordinator.storage.store.put(data)
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


def test_what_unpacks_to_more_than_an_answer_may_have_is_refused(bench):
    update, data = answer(bench)
    assert checked(bench, update, data) is None
    bomb = zstandard.ZstdCompressor().compress(bytes(10**8))
    assert checked(bench, update, bomb) is Reason.OVERSIZED
    folder = bench.folder.unpacked
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10**7


def test_what_is_not_packed_or_not_an_update_is_refused(bench):
    update, data = answer(bench)
    assert checked(bench, update, encode_groups(encoded("int8"))) is Reason.MALFORMED
    assert checked(bench, update, data[:-50]) is Reason.MALFORMED
    assert checked(bench, update, zstandard.compress(b"not a blob")) is Reason.MALFORMED
    assert checked(bench, update, zstandard.compress(encode_groups(encoded("int8")))) is Reason.WRONG_SHAPE
    assert checked(bench, update, zstandard.compress(encode_groups({}))) is Reason.WRONG_SHAPE


@pytest.mark.parametrize("words", [UPLINK, THIN, 'strategy.uplink=["fp16"]'])
def test_a_run_is_computed_again_to_the_bit_from_what_was_sent(tmp_path, words):
    bench = Bench(tmp_path, "attending", words)
    for number in (1, 2):
        record, _ = bench.round(number)
        assert len(record.completed) == 2
    assert [result.verdict for result in replay(tmp_path / "run")] == [
        ReplayVerdict.AGREES,
        ReplayVerdict.AGREES,
    ]


def test_what_lies_unpacked_may_be_deleted_at_any_time(tmp_path):
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


def test_the_next_planning_forgets_what_was_unpacked(tmp_path):
    bench = Bench(tmp_path, "fedavg", UPLINK)
    record, _ = bench.round(1)
    assert len(list(bench.folder.unpacked.iterdir())) == len(record.completed)
    bench.tasks(2, 2)
    # What is left are nameless files to write over.
    left = list(bench.folder.unpacked.iterdir())
    assert [path.suffix for path in left] == [".spare"] * len(record.completed)


def test_what_is_unpacked_where_something_longer_lay_is_whole_and_nothing_else(tmp_path):
    unpacked, kept = UnpackedCache(tmp_path / "unpacked"), {}
    for size in (900, 40, 500):
        kept[size] = data = encode_groups({"model": {"w": np.arange(size)}})
        packed = tmp_path / digest_of(data)
        packed.write_bytes(zstandard.compress(data))
        assert (unpacked.groups(packed)["model"]["w"] == np.arange(size)).all()
        assert [path.read_bytes() for path in (tmp_path / "unpacked").iterdir()] == [data]
        unpacked.keep_only(frozenset())


# --- error feedback on a device ---
def test_what_is_not_sent_counts_in_the_next_round_and_only_if_this_one_did(tmp_path):
    bench = Bench(tmp_path, "attending", THIN)
    private = bench.places["weak"].private
    assert isinstance(private, PrivateState)
    updates = bench.answers(1)
    assert private.load("run-1", 2) == {}
    bench.close(1, updates)
    left = private.load("run-1", 2)["residual"]
    shapes = {name: layout.shape for name, layout in bench.coordinator.context.channel_map.parameters.items()}
    assert {name: array.shape for name, array in left.items()} == {
        name: shape for name, shape in shapes.items() if len(shape) > 1
    }
    assert any(array.any() for array in left.values())


def test_what_was_left_in_another_sub_model_stays_where_it_was(tmp_path):
    """Round two is of a smaller sub-model: what it does not hold waits, in global coordinates."""
    bench = Bench(tmp_path, "fedavg", "model.name=mlp", THIN, "tiers.ratios=[0.5, 0.0]")
    private = bench.places["strong"].private
    assert isinstance(private, PrivateState)
    bench.round(1)
    before = private.load("run-1", 2)["residual"]
    bench.devices = tuple(
        device
        if device.name == "weak"
        else type(device)(device.name, 1, bench.devices[0].profile, device.data)
        for device in bench.devices
    )
    bench.round(2)
    after = private.load("run-1", 3)["residual"]
    name = "linear1.weight"
    half = before[name].shape[0] // 2
    np.testing.assert_array_equal(after[name][half:], before[name][half:])
    assert (after[name][:half] != before[name][:half]).any()


@pytest.mark.parametrize("size", [100, 1000, 2500])
def test_what_is_unpacked_is_at_hand_only_where_it_fits(tmp_path, size, monkeypatch):
    monkeypatch.setattr(unpacked_cache, "IN_MEMORY_BYTES", 1000)
    arrays = {"w": np.arange(size // 8, dtype=np.int64)}
    data, unpacked = encode_groups({"model": arrays}), UnpackedCache(tmp_path / "unpacked")
    packed = tmp_path / digest_of(data)
    packed.write_bytes(zstandard.compress(data))
    for _ in range(2):
        groups = unpacked.transient_groups(packed)
        assert (groups["model"]["w"] == arrays["w"]).all()
    assert (tmp_path / "unpacked" / packed.name).read_bytes() == data
