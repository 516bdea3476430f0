"""Every shipped recipe runs rounds with devices of unlike tiers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_server.config import recipe_names
from tests.integration.bench import NAMES, Bench


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_recipe_trains_and_changes_the_model(tmp_path: Path, recipe: str) -> None:
    bench = Bench(tmp_path, recipe, "clients.fraction=1.0")
    first = bench.workshop._state.params
    for number in (1, 2):
        record, updates = bench.round(number)
        assert set(record.completed) <= set(NAMES)
        assert record.completed == tuple(sorted(updates))
        assert record.test_loss is not None
    last = bench.workshop._state.params
    assert any((first[name] != last[name]).any() for name in first)
    assert all(np.isfinite(array).all() for array in last.values())
