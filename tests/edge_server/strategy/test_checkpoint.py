"""A run's state is loaded from disk as it was saved, whatever its components store."""

import numpy as np
import pytest

from edge_server.strategy.closing import load_checkpoint, save_checkpoint
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError, InvariantError
from tests.edge_server.strategy.network import arrays


def test_a_state_is_loaded_as_it_was_saved(tmp_path):
    state = State(
        params=arrays(1),
        round=7,
        ordered=True,
        groups={"control": arrays(2), "empty": {}},
        selection={"a": 0.1 + 0.2, "b": 1e-300},
        ratio={"a": ((0.0, 0.5), (0.5, 1.0))},
        weighting=[1, None, True, "text", np.float64(0.5), np.zeros(())],
        server_optimizer={"velocity": arrays(3)},
        observed={"weights": {"a": 0.25}, "tiers": {1: 0.5}},
    )
    save_checkpoint(tmp_path / "state", state)
    back = load_checkpoint(tmp_path / "state", {"model": arrays(1)})
    assert (back.round, back.ordered, back.selection, back.ratio) == (7, True, state.selection, state.ratio)
    assert back.observed == {"weights": {"a": 0.25}, "tiers": {1: 0.5}}
    assert back.weighting[:5] == [1, None, True, "text", 0.5]
    assert back.weighting[5].shape == ()
    assert back.groups.keys() == {"control", "empty"}
    for saved, loaded in ((state.params, back.params), (state.groups["control"], back.groups["control"])):
        assert all(
            (saved[name] == loaded[name]).all() and saved[name].dtype == loaded[name].dtype for name in saved
        )
    assert (back.server_optimizer["velocity"]["out.bias"] == arrays(3)["out.bias"]).all()


def test_the_model_is_not_stored_twice_and_keeps_the_order_of_its_parameters(tmp_path):
    named = ["out.bias", "hidden.weight", "out.weight"]
    state = State(params={name: arrays(1)[name] for name in named})
    save_checkpoint(tmp_path / "state", state)
    assert state.params["hidden.weight"].tobytes() not in (tmp_path / "state").read_bytes()
    assert list(load_checkpoint(tmp_path / "state", {"model": arrays(1)}).params) == named


@pytest.mark.parametrize("model", [{}, {"model": {}}, {"control": arrays(1)}], ids=list)
def test_a_state_without_its_own_model_is_refused(tmp_path, model):
    save_checkpoint(tmp_path / "state", State(params=arrays(1)))
    with pytest.raises(ConfigError, match="state: its model cannot be read"):
        load_checkpoint(tmp_path / "state", model)


def test_a_state_that_is_not_plain_data_is_an_internal_error(tmp_path):
    with pytest.raises(InvariantError, match="holds a set at 'selection/seen'"):
        save_checkpoint(tmp_path / "state", State(params={}, selection={"seen": {1}}))


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_file_that_is_not_a_checkpoint_is_named_in_the_error(tmp_path, content):
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(ConfigError, match="state is not a checkpoint of this program"):
        load_checkpoint(tmp_path / "state", {})
