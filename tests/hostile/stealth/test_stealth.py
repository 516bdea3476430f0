"""The attacks do what their names say, and the ones that the default withstands buy nothing."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import load_source
from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.validation.norms import NormBound, Outliers
from tests.hostile.stealth import honest
from tests.hostile.stealth.attacks import (
    TARGET,
    Attack,
    View,
    along_the_others,
    attacks,
    backdoored,
    blend,
    flipped,
    inner_product,
    just_below,
    little_is_enough,
    norms,
    shifted_statistics,
    sleeper,
    stamp,
    times,
)
from tests.hostile.stealth.play import Result, play
from tests.slow import mark_slow

FACTOR = 4
SETTINGS = FirewallSettings(norm_factor=FACTOR, norm_spread=1)
POINTS = 0.05
FEW = ("federation.seed=11", "rounds=5", "evaluate-every=5")


def sent(*values: float) -> dict[str, dict[str, np.ndarray]]:
    model = {"w": np.array(values, np.float32), "n.running_var": np.ones(2, np.float32)}
    return {"model": model, "control": {"w": np.full(2, 7, np.float32)}}


def view(round_number: int = 1) -> View:
    return View(sent(3, 3), sent(2, 2), [sent(1, 3), sent(3, 1), sent(2, 2)], round_number)


def test_labels_are_reversed_and_pictures_stay():
    digits = load_source("digits", split="test")
    changed = flipped(digits)
    assert (changed.labels + digits.labels == 9).all()
    assert changed.images is digits.images


@pytest.mark.parametrize("mark", [stamp, blend])
def test_half_of_the_pictures_are_marked_and_called_the_target(mark):
    digits = load_source("digits", split="test")
    changed, half = backdoored(digits, mark), -(-len(digits.labels) // 2)
    assert (changed.labels[:half] == TARGET).all()
    assert (changed.labels[half:] == digits.labels[half:]).all()
    assert (changed.images[:half] == mark(digits.images)[:half]).all()
    assert (changed.images[half:] == digits.images[half:]).all()


def test_marks_are_a_bright_pixel_and_a_faint_pattern():
    dark = np.zeros((1, 1, 2, 2), np.float32)
    dark[..., 1, 0] = 5
    assert stamp(dark).tolist() == [[[[5, 0], [5, 0]]]]
    assert blend(dark) == pytest.approx(np.array([[[[0, 1], [5, 0]]]]))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (times(-1), [-3, -3]),
        # Means 2 and 2, of own truth and three others: (2, 1, 3, 2) and (2, 3, 1, 2).
        (inner_product, [-2, -2]),
        (along_the_others, [7, 7]),
        # Standard deviations 0.7071; the quantile of 0.55 is 0.1257: 2 - 0.1257 * 0.7071.
        (little_is_enough, [1.9111, 1.9111]),
        (sleeper(1, times(-1)), [2, 2]),
        (sleeper(0, times(-1)), [-3, -3]),
    ],
)
def test_trained_weights_change_as_stated_and_nothing_else(change, expected):
    found = change(view())
    assert found["model"]["w"] == pytest.approx(expected, abs=1e-4)
    assert found["model"]["w"].dtype == np.float32
    assert found["model"]["n.running_var"].tolist() == [1, 1]
    assert found["control"]["w"].tolist() == [7, 7]


def test_statistics_change_alone():
    found = shifted_statistics(10.0, "running_var")(view())["model"]
    assert (found["n.running_var"].tolist(), found["w"].tolist()) == ([11, 11], [3, 3])


def test_just_below_the_bound_is_no_outlier_and_a_little_more_is_one():
    seen = view()
    found = just_below(SETTINGS)(seen)
    others = {str(index): norms(other) for index, other in enumerate(seen.others)}

    def outliers(factor: float) -> set[str]:
        larger = times(factor)(View(found, seen.truth, seen.others, 1))
        return set(NormBound(SETTINGS).find_outliers({**others, "liar": norms(larger)}).refused)

    assert outliers(1) == set()
    assert outliers(1.001) == {"liar"}


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return play(tmp_path_factory.mktemp("stealth") / "silent", "median", None, *FEW)


@mark_slow
@pytest.mark.parametrize(
    "name", ["label flip times 5", "backdoor times 5", "label flip just below the bound"]
)
def test_the_median_withstands_one_liar_of_five(name, silent, tmp_path: Path):
    attack = attacks(FirewallSettings(), 10)[name]
    found = play(tmp_path / "run", "median", attack, *FEW)
    assert found.accuracy > silent.accuracy - POINTS
    assert found.stamped < 0.1
    assert found.honest_refused == 0


@mark_slow
@pytest.mark.parametrize(
    ("name", "rounds"), [("backdoor", 7), ("label flip", 10), ("sign flip", 10), ("inner product", 10)]
)
def test_a_server_with_test_data_withstands_one_liar_at_an_honest_norm(name, rounds, tmp_path: Path):
    words = ('data.partition="dirichlet(0.3)"', "federation.seed=11")
    words += (f"rounds={rounds}", f"evaluate-every={rounds}")
    silent = play(tmp_path / "silent", "fedavg", None, *words)
    found = play(tmp_path / "run", "fedavg", attacks(FirewallSettings(), 10)[name], *words)
    assert found.accuracy > silent.accuracy - POINTS
    assert found.stamped < 0.1
    assert found.refused > 5
    assert found.honest_refused == 0


def test_an_attacker_sees_the_updates_of_all_others_of_its_round(tmp_path: Path):
    seen = []

    def look(view: View):
        seen.append((view.round, len(view.others), len(view.alike)))
        return view.own

    play(tmp_path / "run", "fedavg", Attack(change=look), "rounds=2", "evaluate-every=2", "local-epochs=1")
    assert seen == [(1, 4, 5), (2, 4, 5)]


def test_updates_of_honest_fleets_are_counted_with_those_that_are_refused(monkeypatch: pytest.MonkeyPatch):
    few = ("data.source=digits", "samples-per-client=20", "num-clients=4", "rounds=2", "evaluate-every=2")
    found = honest.play("fedavg", *few)
    assert (found.updates, found.refused) == (8, 0)
    assert found.harm < FirewallSettings().leave_one_out
    monkeypatch.setattr(
        NormBound,
        "find_outliers",
        lambda self, updates, spreads, tried: Outliers({min(updates): "too large"}, {}),
    )
    strict = honest.play("fedavg", *few)
    assert (strict.updates, strict.refused) == (8, 2)
