"""Changes of low rank travel as two factors, and are read as their product."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.compression.chain import make_chain
from edge_client.compression.decoding import decode_groups
from edge_client.compression.low_rank import Factors, draw_factors, factor_shapes, factor_size, product
from edge_client.compression.uplink import encode_answer
from edge_client.pruning.update_coordinates import Answer
from edge_server.coordinator.validation.contents import max_answer_bytes
from edge_server.coordinator.validation.update import check_encoding
from schemas.errors import PeerError
from schemas.messages import TrainTask
from schemas.strategy import Adapters, Component
from schemas.submodel import ChannelMap, ParameterLayout
from schemas.tensors.arrays import Groups, rows_of
from schemas.tensors.chunks import BlobRef
from schemas.tensors.files import FileGroups
from schemas.values import ModelSpec
from tests.groups import encode_groups

MAP = ChannelMap(
    groups={},
    parameters={
        "conv.weight": ParameterLayout(shape=(300, 200, 1, 1)),
        "head.weight": ParameterLayout(shape=(4, 300)),
        "head.bias": ParameterLayout(shape=(4,)),
    },
)
RNG = np.random.default_rng(0)
PAIR = Factors(
    RNG.normal(size=(300, 3)).astype(np.float32), RNG.normal(size=(3, 200, 1, 1)).astype(np.float32)
)
DELTA = {
    "conv.weight": PAIR.rows(0, 300),
    "head.weight": RNG.normal(size=(4, 300)).astype(np.float32),
    "head.bias": RNG.normal(size=4).astype(np.float32),
}


def task(*codecs: object, **more: object) -> TrainTask:
    fields: dict[str, object] = {
        "federation": "f",
        "run": "r",
        "round": 1,
        "attempt": 1,
        "tier": 1,
        "ratio": 0.0,
        "model": ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=4),
        "training": {},
        "uplink": [Component.model_validate(codec) for codec in codecs],
        "blobs": {"state": BlobRef(digest="0" * 64, size=1)},
        "trained": tuple(MAP.parameters),
        "adapters": Adapters(rank=3, arrays=("conv.weight",)),
    }
    return TrainTask.model_validate({**fields, **more})


def encoded(asked: TrainTask) -> Groups:
    answer = Answer(asked, MAP, {})
    return encode_answer(answer, DELTA, asked, MAP, {}, {"conv.weight": PAIR}).groups


def test_a_product_by_hand() -> None:
    # [1, 2] [3, 4, 5] + [0, 1] [1, 1, 0]
    left, right = np.array([[1, 0], [2, 1]], np.float32), np.array([[3, 4, 5], [1, 1, 0]], np.float32)
    assert product(left, right).tolist() == [[3, 4, 5], [7, 9, 10]]
    kernel = right.reshape(2, 3, 1, 1)
    assert product(left, kernel).reshape(2, 3).tolist() == [[3, 4, 5], [7, 9, 10]]


def test_rows_have_the_same_bits_however_many_are_read() -> None:
    whole = PAIR.rows(0, 300)
    for size in (1, 7, 64):
        parts = [PAIR.rows(start, min(start + size, 300)) for start in range(0, 300, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_a_rank_is_bounded_by_the_weight() -> None:
    assert factor_shapes((4, 300), 8) == ((4, 4), (4, 300))
    assert factor_shapes((300, 200, 1, 1), 8) == ((300, 8), (8, 200, 1, 1))
    assert factor_size((300, 200, 1, 1), 8) == 8 * 500


def test_factors_begin_with_the_product_0_and_are_the_seeds() -> None:
    first, again, other = (draw_factors((40, 30), 4, seed, "w") for seed in (1, 1, 2))
    assert not first.rows(0, 40).any()
    assert first.right.tobytes() == again.right.tobytes() != other.right.tobytes()
    assert np.abs(first.right).max() <= 30**-0.5


FEW = {"name": "int8", "levels": 7}
CHAINS: list[tuple[object, ...]] = [(), ("fp16",), ("int8",), (FEW,), ("top-k",), ("top-k", "int8")]


@pytest.mark.parametrize(
    ("codecs", "number", "error"),
    [*zip(CHAINS, (4, 2, 1, 0.5, 4, 1), (1e-6, 2e-3, 0.03, 0.4, 1e-6, 0.03), strict=True)],
)
def test_the_factors_travel_and_are_read_as_the_product(
    codecs: tuple[object, ...], number: float, error: float, tmp_path: Path
) -> None:
    asked = task(*codecs)
    groups = encoded(asked)
    assert "conv.weight" not in groups["model"]
    factors = sum(np.asarray(groups[part]["conv.weight"]).nbytes for part in ("model.left", "model.right"))
    assert factors == number * 3 * (300 + 200)
    for other in CHAINS:
        if (other and other[-1]) != (codecs and codecs[-1]):
            with pytest.raises(PeerError):
                check_encoding(groups, make_chain(task(*other).uplink), asked)
    data = encode_groups({group: {n: np.asarray(a[n]) for n in a} for group, a in groups.items()})
    assert len(data) <= max_answer_bytes(asked, MAP)
    path = tmp_path / "update"
    path.write_bytes(data)
    check_encoding(FileGroups(path), make_chain(asked.uplink), asked)
    model = decode_groups(FileGroups(path))["model"]
    assert set(model) == set(MAP.parameters)
    found = np.asarray(model["conv.weight"])
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, DELTA["conv.weight"], rtol=0, atol=error * np.abs(DELTA["conv.weight"]).max()
    )
    assert rows_of(model, "conv.weight", 100, 130).tobytes() == found[100:130].tobytes()


def test_factors_in_few_levels_have_no_bias() -> None:
    pair = Factors(PAIR.left[:6], PAIR.right[:, :5])
    channel_map = ChannelMap(groups={}, parameters={"w": ParameterLayout(shape=(6, 5, 1, 1))})
    total, count = np.zeros((6, 5, 1, 1)), 600
    for seed in range(count):
        one = {"name": "int8", "levels": 1}
        asked = task(one, training={"seed": seed}, adapters=Adapters(rank=3, arrays=("w",)))
        answer = Answer(asked, channel_map, {})
        sent = encode_answer(answer, {"w": pair.rows(0, 6)}, asked, channel_map, {}, {"w": pair}).groups
        total += decode_groups(sent)["model"]["w"]
    # A single one is off by about 2; with the same random numbers for both factors the mean would be too.
    np.testing.assert_allclose(total / count, pair.rows(0, 6), rtol=0, atol=0.4)


def test_what_is_masked_or_cut_later_is_sent_whole() -> None:
    later = task(personal={"ratios": {}})
    assert later.factor_names == frozenset()
    assert "model.left" not in encoded(later)
    first = task(personal={"ratios": {}, "scored_by": "attentive"})
    assert first.factor_names == {"conv.weight"}


def test_the_bound_of_an_answer_is_that_of_the_factors() -> None:
    whole = max_answer_bytes(task(adapters=None), MAP)
    saved = whole - max_answer_bytes(task(), MAP)
    assert saved == pytest.approx(4 * (300 * 200 - 3 * 500), rel=0.02)


def _odd(change: str) -> Groups:
    groups = {group: {n: np.array(a[n]) for n in a} for group, a in encoded(task()).items()}
    left, right = groups["model.left"], groups["model.right"]
    if change == "higher":
        left["conv.weight"] = np.ones((4, 300), np.float32)
        right["conv.weight"] = np.ones((4, 200, 1, 1), np.float32)
    elif change == "unlike":
        left["conv.weight"] = np.ones((2, 300), np.float32)
    elif change == "none":
        left["conv.weight"], right["conv.weight"] = left["conv.weight"][:0], right["conv.weight"][:0]
    elif change == "halves":
        left["conv.weight"] = left["conv.weight"].astype(np.float16)
    elif change == "flat":
        right["conv.weight"] = np.ones(3, np.float32)
    elif change == "alone":
        del right["conv.weight"]
    elif change == "whole":
        groups["model"]["conv.weight"] = DELTA["conv.weight"]
        del left["conv.weight"], right["conv.weight"]
    elif change == "stray":
        groups["model.left.other"] = {"conv.weight": np.ones(1, np.float32)}
    elif change == "scaled":
        groups["model.left.scales"] = {"conv.weight": np.ones(3, np.float32)}
    else:
        left["head.weight"], right["head.weight"] = np.ones((1, 4), np.float32), np.ones((1, 300), np.float32)
    return groups


@pytest.mark.parametrize(
    "change", ["higher", "unlike", "none", "halves", "flat", "alone", "whole", "stray", "scaled", "not asked"]
)
def test_other_factors_than_those_asked_for_are_refused(change: str) -> None:
    with pytest.raises(PeerError, match=r"weight|expected (factors|the parts)"):
        check_encoding(_odd(change), make_chain(()), task())


def test_factors_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(PeerError, match=r"expected factors of \[\] alone"):
        check_encoding(encoded(task()), make_chain(()), task(adapters=None))
