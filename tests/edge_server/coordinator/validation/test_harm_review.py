"""A round whose updates are compared is closed once where all of them count."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edge_server.coordinator import aggregator
from edge_server.coordinator.validation.checker import UpdateChecker
from edge_server.coordinator.validation.norms import Outliers
from edge_server.strategy.closing import close_round
from tests.edge_client.training.step_graphs.running.normalised import NORMALISED
from tests.edge_server.simulation.liars import LIAR, SILENT, Lie, Sent, run_with
from tests.edge_server.simulation.small import history, last_model, run

WORDS = ("num-clients=4", "rounds=2", "local-epochs=2", "evaluate-every=2", "strategy.uplink=[]")


@pytest.fixture
def closings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of updates of each closing."""
    counts: list[int] = []

    def counted(strategy, state, updates, *given, **named):
        counts.append(len(updates))
        return close_round(strategy, state, updates, *given, **named)

    monkeypatch.setattr(aggregator, "close_round", counted)
    return counts


def test_a_round_without_refusals_is_closed_once_and_as_without_a_comparison(closings, tmp_path: Path):
    run(tmp_path / "compared", "fedavg", *WORDS)
    assert closings == [4, 4]
    assert all(len(line["harm"]) == 4 for line in history(tmp_path / "compared"))
    run(tmp_path / "plain", "fedavg", *WORDS, "firewall.leave-one-out=0")
    assert last_model(tmp_path / "compared") == last_model(tmp_path / "plain")


def times(factor: float) -> Lie:
    def change(groups: Sent) -> None:
        for name, array in groups["model"].items():
            groups["model"][name] = np.asarray(factor * array, np.float32)

    return Lie(groups=change)


def test_of_a_round_with_a_refusal_the_closing_without_it_counts(closings, tmp_path: Path, monkeypatch):
    words = (*WORDS, "rounds=1", "evaluate-every=1", "firewall.leave-one-out=0.05", "learning-rate=0.1")
    run_with(monkeypatch, tmp_path / "run", "fedavg", *words, lies={LIAR: times(-3)})
    assert closings == [4, 3]
    (line,) = history(tmp_path / "run")
    assert [each["device"] for each in line["rejected"]] == [LIAR]


LARGE = (*WORDS, "rounds=1", "evaluate-every=1", "learning-rate=0.05")


@pytest.mark.parametrize("compared", [0.35, 0.0])
def test_an_update_beyond_the_norms_of_the_others_counts_where_it_does_no_harm(
    compared, tmp_path: Path, monkeypatch
):
    """Three devices hardly move any more, and the fourth still learns."""
    lies = {f"device-000{number}": times(0.1) for number in (1, 2, 3)}
    run_with(monkeypatch, tmp_path / "run", "fedavg", *LARGE, f"firewall.leave-one-out={compared}", lies=lies)
    (line,) = history(tmp_path / "run")
    refused = [(each["device"], each["reason"]) for each in line["rejected"]]
    assert refused == ([] if compared else [(LIAR, "out-of-bounds")])


def test_an_update_beyond_the_norms_of_the_others_is_refused_for_them_where_it_does_harm(
    tmp_path: Path, monkeypatch
):
    words = (*LARGE, "firewall.leave-one-out=0.9")
    run_with(monkeypatch, tmp_path / "run", "fedavg", *words, lies={LIAR: times(-20)})
    (line,) = history(tmp_path / "run")
    (refused,) = line["rejected"]
    assert (refused["device"], refused["reason"]) == (LIAR, "out-of-bounds")
    assert "is usual in this round; with it the loss on test data is higher" in refused["detail"]


def test_where_all_updates_of_a_round_are_beyond_the_bound_and_none_is_compared_all_count(
    tmp_path: Path, monkeypatch
):
    """Of three devices one is silent, and two are too few to compare."""
    changed = iter([False] * 8 + [True] * 2)

    def grow(groups: Sent) -> None:
        if next(changed):
            groups["model"] = {name: 9 * array for name, array in groups["model"].items()}

    lies = {"device-0001": SILENT, "device-0002": Lie(groups=grow), "device-0003": Lie(groups=grow)}
    words = (
        *WORDS,
        "num-clients=3",
        "rounds=5",
        "evaluate-every=5",
        "firewall.norm-history=6",
        "min-clients=2",
    )
    run_with(monkeypatch, tmp_path / "run", "fedavg", *words, lies=lies)
    *_, line = history(tmp_path / "run")
    assert (line["round"], line["completed"]) == (5, ["device-0002", "device-0003"])


def test_an_update_that_lies_at_a_site_is_refused_untried():
    """It cannot be left out of its site's sum."""
    sent: dict[str, Any] = {"a": SimpleNamespace(receipt=None), "b": SimpleNamespace(receipt=1, attempt=1)}
    found = Outliers({}, {"a": "large", "b": "larger"})
    journal: Any = SimpleNamespace(norms=lambda update: {})
    history: Any = SimpleNamespace(find_outliers=lambda norms: found)
    unused: Any = None
    checker = UpdateChecker(unused, journal, unused, history, {("b", 1): 0.5})
    assert checker.find_outliers(sent) == Outliers({"b": "larger"}, {"a": "large"})


def shifted(groups: Sent) -> None:
    for name, array in groups.get("statistics", {}).items():
        groups["statistics"][name] = array + np.float32(3 * name.endswith("running_mean"))


def test_statistics_that_are_measured_after_training_are_compared_too(tmp_path: Path, monkeypatch):
    words = (*WORDS, f"model.name={NORMALISED}", "federation.rounds=4", "firewall.norm-bound=false")
    run_with(monkeypatch, tmp_path / "run", "attending", *words, lies={LIAR: Lie(groups=shifted)})
    *trained, measured = history(tmp_path / "run")
    assert not any(line["rejected"] for line in trained)
    assert [(each["device"], each["reason"]) for each in measured["rejected"]] == [(LIAR, "harmful")]
