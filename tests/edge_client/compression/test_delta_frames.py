"""A model as frames: both sides hold equal values, and only the last frame contributes an error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.compression.chain import in_codes
from edge_client.compression.decoding import decode_groups
from edge_client.compression.downlink import BITS, added_up, changes, near
from edge_client.compression.quantization import Fp16, Int8
from schemas.errors import PeerError

SHAPES = {"conv.weight": (6, 3, 2), "linear.weight": (5, 7), "bias": (5,), "scale": ()}


def models(seed: int, count: int, step: float) -> list[dict[str, np.ndarray]]:
    """Versions of a model, each with small changes to every number."""
    rng = np.random.default_rng(seed)
    moved = [{name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}]
    for _ in range(count - 1):
        last = moved[-1]
        moved.append(
            {n: last[n] + np.float32(step) * rng.normal(size=s).astype(np.float32) for n, s in SHAPES.items()}
        )
    return moved


def frames_of(made, number):
    """Yield after each model: the model, the frames so far, and their sum."""
    frames = [{**in_codes(number, made[0], None), "extra": {"n": np.array([0])}}]
    yield made[0], frames, added_up(frames)["model"]
    for model in made[1:]:
        before = added_up(frames)["model"]
        frames.append({**changes(model, before, number), "extra": {"n": np.array([len(frames)])}})
        yield model, frames, added_up(frames)["model"]


def bits(array: np.ndarray) -> list[int]:
    return np.asarray(array, np.float32).reshape(-1).view(BITS).tolist()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-9, 1e3))
def test_without_a_number_codec_frames_are_lossless(seed, step):
    for model, _, came in frames_of(models(seed, 4, step), None):
        assert {name: bits(came[name]) for name in came} == {name: bits(model[name]) for name in model}


def test_numbers_that_are_not_finite_are_restored_exactly():
    odd = np.array([[0.0, -0.0, np.nan], [np.inf, -np.inf, 1e-45]], np.float32)
    for before, after in ((odd, odd[::-1].copy()), (odd, np.ones_like(odd)), (np.ones_like(odd), odd)):
        frame = changes({"w": after}, {"w": before}, None)
        assert bits(added_up([{"model": {"w": before}}, frame])["model"]["w"]) == bits(after)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-6, 1.0), st.sampled_from([Fp16(), Int8(), Int8(7), Int8(1)]))
def test_the_error_is_that_of_the_last_frame_alone(seed, step, number):
    """At most half a step of each row's largest change, or half a unit in the last place of a float16."""
    before = None
    for model, _, came in frames_of(models(seed, 5, step), number):
        for name, array in model.items():
            off = np.abs(came[name].astype(np.float64) - array)
            if array.ndim < 2:
                assert not off.any()
                continue
            change = np.abs(array.astype(np.float64) - (before[name] if before else 0))
            if isinstance(number, Int8):
                largest = change.reshape(len(array), -1).max(axis=1)
                most = (largest / number.levels / 2).reshape(-1, *[1] * (array.ndim - 1))
            else:
                most = np.maximum(change * 2**-11, 2**-25)
            # The difference, the sum and the product of step and code each round to 24 bits of float32.
            assert (off <= most * (1 + 1e-4) + 2**-22 * (np.abs(array) + change)).all()
        before = {name: came[name] for name in came}


def test_other_groups_are_those_of_the_last_frame():
    *_, (_, frames, _) = frames_of(models(0, 3, 0.1), Int8())
    assert added_up(frames)["extra"]["n"].tolist() == [2]
    assert set(added_up(frames)) == {"model", "extra"}


def test_a_block_of_rows_is_the_same_as_in_the_whole_array():
    *_, (_, frames, came) = frames_of(models(1, 4, 0.1), Int8(7))
    whole = decode_groups(added_up(frames))["model"]["conv.weight"]
    assert np.array_equal(came.rows("conv.weight", 2, 5), whole[2:5])


def test_models_are_near_if_the_delta_has_at_most_a_quarter_of_the_squares():
    ones = {"w": np.ones((2, 2), np.float32)}
    # Four changes of 1/2 have a quarter of the sum of squares; slightly more is too much.
    assert near(ones, {"w": np.full((2, 2), 0.5, np.float32)})
    assert not near(ones, {"w": np.full((2, 2), 0.499, np.float32)})
    assert near(ones, ones)
    for odd in (np.nan, np.inf):
        assert not near(ones, {"w": np.full((2, 2), odd, np.float32)})
        assert not near({"w": np.full((2, 2), odd, np.float32)}, ones)
    assert not near(ones, {"w": np.ones((2, 3), np.float32)})
    assert not near(ones, {"v": np.ones((2, 2), np.float32)})


@pytest.mark.parametrize("number", [None, Int8()])
def test_frames_that_do_not_fit_each_other_are_refused(number):
    first, second = models(0, 2, 0.1)
    frame = changes(second, first, number)
    smaller = {**first, "linear.weight": first["linear.weight"][:, :-1]}
    for before in (
        smaller,
        {**first, "more": first["bias"]},
        {n: a for n, a in first.items() if n != "bias"},
    ):
        with pytest.raises(PeerError):
            added_up([{"model": before}, frame])
    with pytest.raises(PeerError):
        added_up([{"model": first}, {}])


def test_unchanged_high_bits_are_zeros():
    *_, (_, frames, _) = frames_of(models(2, 3, 1e-7), None)
    high = frames[-1]["model"]["linear.weight"].reshape(-1).view(np.uint8)[3::4]
    assert set(high.tolist()) <= {0, 255}
