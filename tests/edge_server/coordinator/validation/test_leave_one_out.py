"""Which updates of a round are left out for the harm that they do on the server's test data."""

from collections.abc import Mapping, Set

import numpy as np
import pytest

from edge_server.coordinator.validation import leave_one_out

ALLOWED = 0.35
BEST = 1.0  # The model, one number, with the smallest loss; the loss is the square of the distance
SAMPLE = leave_one_out.Sample(
    lambda params, similar: leave_one_out.Loss(float((params["w"][0] - BEST) ** 2)), ignorant=1.0, macs=1.0
)


class Round:
    """Updates of one number; the model is their mean. `cosines` are known of some."""

    def __init__(self, cosines: Mapping[str, float] | None = None, **updates: float) -> None:
        self.updates, self.cosines = updates, cosines or {}

    def model(self, out: Set[str]) -> Mapping[str, np.ndarray]:
        kept = [update for name, update in self.updates.items() if name not in out]
        return {"w": np.array([sum(kept) / len(kept)], np.float32)}

    def closed(self, out: Set[str]) -> leave_one_out.Closing:
        return leave_one_out.Closing(self.model(out), lambda party: self.model(out | {party}), self.cosines)

    def compared(self, *earlier: Mapping[str, float], suspects: Set[str] = frozenset()) -> leave_one_out.Harm:
        compare = leave_one_out.LeaveOneOut(SAMPLE, ALLOWED)
        return compare.find(self.updates.keys(), compare.totals(earlier), self.closed, suspects)


HONEST = Round(a=0.4, b=0.5, c=0.6, d=0.5, e=0.45)
MILD = Round(a=0.4, b=0.5, c=0.6, d=0.5, liar=0.1)


def test_an_honest_round_is_left_as_it_is():
    found = HONEST.compared()
    assert found.refused == {}
    assert found.harm["c"] < 0 < found.harm["a"] < 0.05


def test_harm_that_others_hardly_do_adds_up_until_the_device_is_left_out():
    rounds: list[Mapping[str, float]] = []
    while not (found := MILD.compared(*rounds)).refused:
        rounds.append(found.harm)
    assert list(found.refused) == ["liar"]
    assert 2 < len(rounds) < 6
    assert "higher by 12%" in found.refused["liar"]
    # It is measured also where it does not count, and stays out.
    assert MILD.compared(*rounds, found.harm, found.harm).refused.keys() == {"liar"}


@pytest.mark.parametrize(("cosine", "times"), [(-1.0, 2 / 0.7), (0.0, 1 / 0.7), (0.3, 1.0), (0.99, 0.7)])
def test_harm_counts_more_against_the_direction_of_the_others(cosine, times):
    plain = MILD.compared().harm
    turned = Round({"liar": cosine}, **MILD.updates).compared().harm
    assert turned == {**plain, "liar": pytest.approx(times * plain["liar"], abs=1e-3)}


def test_great_harm_is_refused_at_once():
    assert list(Round(a=0.4, b=0.5, c=0.6, liar=-3.0).compared().refused) == ["liar"]


def test_a_suspect_may_do_no_more_harm_than_is_forgiven_in_a_round():
    """Nor has it a credit; the harm of the liar is 0.12, that of `a` in the honest round below 0.05."""
    useful = {"liar": -0.9}
    assert list(MILD.compared(*[useful] * 20, suspects={"liar", "c"}).refused) == ["liar"]
    assert HONEST.compared(suspects=HONEST.updates.keys()).refused == {}


def test_a_device_that_turns_hostile_has_little_credit():
    useful = {"liar": -0.9}
    compare = leave_one_out.LeaveOneOut(SAMPLE, ALLOWED)
    assert compare.totals([useful] * 20) == {"liar": -leave_one_out.CREDIT * ALLOWED}
    assert list(Round(a=0.4, b=0.5, c=0.6, liar=-3.0).compared(*[useful] * 20).refused) == ["liar"]


def test_a_device_that_does_harm_no_more_is_soon_trusted():
    compare = leave_one_out.LeaveOneOut(SAMPLE, ALLOWED)
    long = [{"a": 0.9}] * 50
    assert compare.totals(long) == {"a": 2 * ALLOWED}
    assert compare.totals([*long, *[{"a": -0.2}] * 4])["a"] < 0


def test_a_device_that_goes_on_doing_a_little_harm_is_not_taken_back():
    compare = leave_one_out.LeaveOneOut(SAMPLE, ALLOWED)
    little = {"a": leave_one_out.USUAL * ALLOWED / 2}
    assert compare.totals([{"a": 0.9}, *[little] * 50])["a"] > ALLOWED
    assert compare.totals([little] * 50)["a"] < 0


def test_of_two_liars_both_are_left_out():
    one = Round(a=0.6, b=0.7, c=0.8, d=0.7, liar=-2.5, other=-2.0)
    assert list(one.compared().refused) == ["liar", "other"]


def test_fewer_than_half_of_the_updates_are_left_out():
    """Half of them may as well be the honest ones: two devices with unlike classes make each other worse."""
    assert len(Round(a=0.9, b=-3.0, c=-3.1, d=-9.0).compared().refused) == 1
    assert not Round(a=0.9, b=-3.0).compared().refused


def test_a_model_that_is_not_finite_is_worse_than_any():
    def model(out: Set[str]) -> Mapping[str, np.ndarray]:
        return {"w": np.array([0.9 if "liar" in out else np.inf], np.float32)}

    def closed(out: Set[str]) -> leave_one_out.Closing:
        return leave_one_out.Closing(model(out), lambda party: model(out | {party}), {})

    found = leave_one_out.LeaveOneOut(SAMPLE, ALLOWED).find({"a", "b", "liar"}, {}, closed)
    assert (found.harm, list(found.refused)) == ({"a": 0.0, "b": 0.0, "liar": 1.0}, ["liar"])


@pytest.mark.parametrize(
    ("parties", "macs", "affordable"),
    [
        (2, 1.0, False),
        (3, 1.0, True),
        (leave_one_out.MAX_PARTIES, 1.0, True),
        (leave_one_out.MAX_PARTIES + 1, 1.0, False),
        (4, leave_one_out.MAX_MACS / 4, False),
    ],
)
def test_large_rounds_and_large_models_are_not_compared(parties, macs, affordable):
    assert leave_one_out.LeaveOneOut(SAMPLE._replace(macs=macs), ALLOWED).is_affordable(parties) is affordable
