"""The model without an update, computed from that with all, is that of a round in which it was not sent."""

from pathlib import Path

import numpy as np
import pytest

from tests.integration.bench import Bench

NAMES = ("a", "b", "c")


@pytest.mark.parametrize("recipe", ["fedavg", "heterofl"])
def test_a_round_without_one_update(recipe: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, recipe, "model.name=mlp", names=NAMES)
    aggregator = bench.coordinator.aggregator
    # The second round: in the first one channels are ranked.
    bench.round(1)
    sent = bench.answers(2)
    updates = aggregator.client_updates(sent, {}, take_ratios=False)
    before = bench.coordinator.model.state.params
    found = aggregator.harm_review.closing(updates, aggregator.state_after(sent, updates, {})).without
    for name in NAMES:
        others = [update for update in updates if update.client != name]
        true = aggregator.state_after(sent, others, {}).params
        for parameter, array in found(name).items():
            np.testing.assert_allclose(array, true[parameter], atol=2e-6)
    assert any(np.abs(found("a")[name] - before[name]).max() > 1e-3 for name in before)
