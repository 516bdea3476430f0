"""One contract for every component: one of ten devices that sends the worst finite values ruins no run.

New entries of the registries are tested automatically, the first of each concept in `make test`. The run with
the liar ends within two percentage points of the run without it, in which the same device does none of its
tasks.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.training.objectives.registry import OBJECTIVES
from edge_server.config.load import load_config
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.components import make_component
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.optimizer.optimizers import SERVER_OPTIMIZERS
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS, SELECTIONS
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.strategy import Component
from schemas.values import TrainingMetrics
from tests.edge_server.own_networks import NAME as NETWORKS
from tests.edge_server.simulation.liars import LIAR, SILENT, Lie, Sent, run_with
from tests.edge_server.simulation.small import history
from tests.once import made_once
from tests.slow import mark_slow, slow

POINTS = 0.02
ROUNDS, EPOCHS, BATCH = 3, 6, 32
WORDS = (
    # The network `mlp` takes longer.
    f'model.name="{NETWORKS}:hidden"',
    "num-clients=10",
    f"rounds={ROUNDS}",
    f"evaluate-every={ROUNDS}",
    f"evaluate-tiers-every={ROUNDS}",
    f"batch-size={BATCH}",
    f"local-epochs={EPOCHS}",
    "learning-rate=0.4",
    "tiers.ratios=[0.0]",
    "simulation.hold-out=0.2",
    "strategy.downlink=[]",
    # The bounds alone, without the comparison of updates.
    "firewall.leave-one-out=0",
)
WORST = 1e6
"""The largest number allowed in any group."""
CLAIMED = 10**12
MORE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("transforms", "attention-matching"): ('strategy.pruner="attention"',),
    ("groups", "mean-data"): ("rounds=4",),
    ("server-optimizer", "adam"): ('strategy.server-optimizer={name="adam", learning-rate=0.03}',),
}
"""Settings that a component needs to be valid, or to learn anything in a few rounds."""

SINGLE = {
    "weighting": WEIGHTINGS,
    "selection": SELECTIONS,
    "ratio": RATIOS,
    "pruner": PRUNERS,
    "combiner": COMBINERS,
    "server-optimizer": SERVER_OPTIMIZERS,
}
ENTRIES = [
    *((concept, name) for concept, known in SINGLE.items() for name in known),
    *(("transforms", name) for name in TRANSFORMS),
    *(("groups", name) for name in GROUPS),
]
QUICK = {**dict(reversed(ENTRIES)), "groups": "control"}
"""One entry of each concept."""
SENT_GROUPS = [name for name in GROUPS if make_component("group rule", GROUPS, Component(name=name)).uplink]


def quick_of(names: list[str], *quick: str) -> list[Any]:
    """All names, those but the `quick` ones slow."""
    assert {*quick} <= {*names}
    return [name if name in quick else slow(name) for name in names]


def words_for(concept: str, name: str) -> tuple[str, ...]:
    """Return settings whose only unusual components are this one and those that it requires."""
    if concept == "groups":
        group = make_component("group rule", GROUPS, Component(name=name)).name
        fitting = [known for known, made in OBJECTIVES.items() if group in {*made.receives, *made.sends}]
        objectives = tuple(f'strategy.objectives=["{objective}"]' for objective in fitting[:1])
        return (f'strategy.groups=["{name}"]', *objectives, *MORE.get((concept, name), ()))
    value = f'["{name}"]' if concept == "transforms" else f'"{name}"'
    return (f"strategy.{concept}={value}", *MORE.get((concept, name), ()))


class Runs:
    """The runs of this file: each strategy runs once with each lie of `SHARED`, in whatever test process."""

    def __init__(self, temporary: pytest.TempPathFactory) -> None:
        self._temporary, self._done = temporary, dict[tuple[str, int], Path]()

    def without(self, words: tuple[str, ...]) -> float:
        return self.accuracy(words, SILENT)

    def accuracy(self, words: tuple[str, ...], lie: Lie) -> float:
        summary = json.loads((self.folder(words, lie) / "summary.json").read_text())
        assert summary["outcome"] == "finished"
        return summary["test_accuracy"]

    def folder(self, words: tuple[str, ...], lie: Lie) -> Path:
        config = load_config("fedavg", [*WORDS, *words])
        same = {"strategy", "clients", "privacy", "model", "firewall"}
        key = config.model_dump_json(include=same), id(lie)
        if key not in self._done:
            self._done[key] = self._made(key[0], words, lie)
        return self._done[key]

    def _made(self, strategy: str, words: tuple[str, ...], lie: Lie) -> Path:
        def make(folder: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                run_with(patch, folder / "run", "fedavg", *WORDS, *words, lies={LIAR: lie})

        name = next((name for name, shared in SHARED.items() if shared is lie), None)
        if name is None:
            folder = self._temporary.mktemp("liars")
            make(folder)
        else:
            digest = hashlib.sha256(strategy.encode()).hexdigest()[:16]
            folder = made_once(self._temporary, f"liars-{name}-{digest}", make)
        return folder / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory)


EXAGGERATED = Lie(
    card={"examples": CLAIMED},
    metrics={
        "examples": CLAIMED,
        "steps": EPOCHS * CLAIMED // BATCH,
        "accuracy": 1.0,
        "received_loss": -1e9,
        "train_loss": -1e9,
        "seconds": 1e9,
    },
)
"""The most extreme statements of a device about itself that are consistent with its task."""


def one_large_number(sent: Sent) -> None:
    """Change one number in the largest array of the model, whose norm hardly changes."""
    name, array = max(sent["model"].items(), key=lambda named: named[1].size)
    changed = np.array(array)
    changed.flat[0] = 400.0
    sent["model"][name] = changed


ONE_LARGE = Lie(groups=one_large_number)
SHARED = {"silent": SILENT, "exaggerated": EXAGGERATED, "one-large": ONE_LARGE}
"""Lies of several tests."""


@pytest.mark.parametrize(
    ("concept", "name"), [entry if entry in QUICK.items() else slow(*entry) for entry in ENTRIES]
)
def test_a_device_that_exaggerates_all_its_statements_ruins_no_run(concept, name, runs):
    words = words_for(concept, name)
    assert runs.accuracy(words, EXAGGERATED) > runs.without(words) - POINTS
    lines = history(runs.folder(words, EXAGGERATED))
    # Sums that count other examples than are claimed are refused.
    refused = {rejected["device"] for line in lines for rejected in line["rejected"]}
    assert any(LIAR in line["exaggerated"] for line in lines) or LIAR in refused


@pytest.mark.parametrize("worst", [WORST, slow(-WORST)])
@pytest.mark.parametrize("name", quick_of(SENT_GROUPS, "header", "statistics"))
def test_an_update_with_a_group_of_the_worst_values_does_not_change_the_run(name, worst, runs):
    words = words_for("groups", name)
    if name == "statistics":
        words += (f'model.name="{NETWORKS}:normed"',)
    group = make_component("group rule", GROUPS, Component(name=name)).name

    def poison(sent: Sent) -> None:
        for known, array in sent.get(group, {}).items():
            sent[group][known] = np.full(array.shape, worst, np.float32)

    lie = Lie(groups=poison)
    if name == "statistics":
        # Sent in the last round alone: the device's earlier updates count.
        assert runs.accuracy(words, lie) > runs.without(words) - POINTS
    else:
        assert runs.accuracy(words, lie) == runs.without(words)
    assert {rejected["device"] for rejected in history(runs.folder(words, lie))[-1]["rejected"]} == {LIAR}


def extremes() -> list[tuple[str, Any]]:
    """Return every number in an update's metrics with both ends of its schema's range."""
    found = []
    for name, described in TrainingMetrics.model_json_schema()["properties"].items():
        kinds = described.get("anyOf", [described])
        stated = next((kind for kind in kinds if kind.get("type") in ("integer", "number")), None)
        # Figures of the learning task and of own models decide nothing, nor do counts.
        if stated is None:
            assert name in ("metrics", "own_metrics", "by_class", "counts", "features", "trained_on")
            continue
        found += [(name, stated["minimum"]), (name, stated["maximum"])]
    return found


LEARNING = ('strategy.ratio="bandit"',)
FAVOURABLE = {("examples", CLAIMED), ("train_loss", -1e9)}
"""Figures that make a device look useful."""
WEIGHING = ('strategy.weighting="fedrad"', 'strategy.transforms=["normalise-steps"]')


@pytest.mark.parametrize(
    ("figure", "worst"), [case if case in FAVOURABLE else slow(*case) for case in extremes()]
)
def test_no_single_extreme_metric_ruins_a_run_that_uses_it(figure, worst, runs):
    words = LEARNING if figure in ("train_loss", "seconds") else WEIGHING
    assert runs.accuracy(words, Lie(metrics={figure: worst})) > runs.without(words) - POINTS


MODES = {
    "buffered": (
        'clients.mode="buffered"',
        "clients.buffer-size=5",
        'strategy.weighting="equal"',
        'strategy.transforms=["discount-staleness"]',
    ),
    "masked": ("privacy.secure-aggregation=true", "strategy.weighting=examples"),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_device_that_exaggerates_ruins_no_buffered_or_masked_run(mode, runs):
    words = MODES[mode]
    assert runs.accuracy(words, EXAGGERATED) > runs.without(words) - POINTS


def test_one_large_number_is_refused_in_a_buffer_too(runs):
    words = MODES["buffered"]
    assert runs.accuracy(words, ONE_LARGE) > runs.without(words) - POINTS
    refused = [rejected for line in history(runs.folder(words, ONE_LARGE)) for rejected in line["rejected"]]
    assert {rejected["device"] for rejected in refused} == {LIAR}


def times(factor: float, group: str) -> Lie:
    """Return a lie that multiplies a group by `factor`, within the bounds of all updates."""

    def stretch(sent: Sent) -> None:
        for known, array in sent.get(group, {}).items():
            sent[group][known] = (np.array(array) * factor).astype(np.float32)

    return Lie(groups=stretch)


@pytest.mark.parametrize(
    "name", quick_of([name for name in COMBINERS if not COMBINERS.traits(name).trusts], "median")
)
def test_a_combiner_without_trust_in_devices_resists_an_update_within_bounds(name, runs):
    words = words_for("combiner", name)
    assert runs.accuracy(words, times(-4, "model")) > runs.without(words) - POINTS


@pytest.mark.parametrize(
    "name", quick_of([name for name in SENT_GROUPS if not GROUPS.traits(name).trusts], "header")
)
def test_a_group_without_trust_in_devices_resists_arrays_within_bounds(name, runs):
    words = words_for("groups", name)
    group = make_component("group rule", GROUPS, Component(name=name)).name
    assert runs.accuracy(words, times(4, group)) > runs.without(words) - POINTS


@mark_slow
def test_the_mean_and_the_controls_are_listed_as_trusting_because_they_do_not_resist(runs):
    controls = words_for("groups", "control")
    assert runs.accuracy((), times(-4, "model")) < runs.without(()) - POINTS
    assert runs.accuracy(controls, times(-9, "control")) < runs.without(controls) - POINTS
    assert COMBINERS.having(lambda traits: traits.trusts) == ["mean", "overlap-mean"]
    assert GROUPS.having(lambda traits: traits.trusts) == ["control"]


def test_one_large_number_is_refused_even_if_the_norm_hides_it(runs):
    assert runs.accuracy((), ONE_LARGE) == runs.without(())
