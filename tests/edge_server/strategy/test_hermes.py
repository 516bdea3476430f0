"""Hermes: the overlap of a round's sub-models, the model outside it, and a device's own starting values.

Three clients keep channels {0, 1, 3}, {0, 3} and {0, 3, 4} of five: all three hold 0 and 3, nobody holds 2.
Their weights are 0.25, 0.25 and 0.5, and they move all that they hold by 1, 2 and 4.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.task_runner import do_training
from edge_client.compression.layered_model import received_groups
from edge_client.pruning.update_coordinates import in_sub_model
from edge_client.storage.private_state import PrivateState
from edge_server.strategy.closing import close_round, load_checkpoint, save_checkpoint
from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.strategy import State, start_state
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, update
from tests.groups import read_groups
from tests.integration.bench import Bench

ZEROS = {name: np.zeros_like(array) for name, array in arrays(0).items()}
KEPT = {"a": (0, 1, 3), "b": (3, 0), "c": (3, 0, 4)}
MOVED = {"a": 1.0, "b": 2.0, "c": 4.0}
EXAMPLES = {"a": 10, "b": 10, "c": 20}


def hermes(**options):
    combiner = Component(name="overlap-mean", options=options)
    return make_strategy(StrategySpec(combiner=combiner, groups=(Component(name="overlap"),)), RATIOS)


def sent(client: str):
    moved = {name: np.full_like(array, MOVED[client]) for name, array in ZEROS.items()}
    spec = SubModelSpec(kept={"hidden": KEPT[client]})
    return update(client, moved, spec=spec, examples=EXAMPLES[client])


def after_a_round(**options) -> State:
    strategy = hermes(**options)
    return close_round(strategy, start_state(strategy, ZEROS), [sent(client) for client in "abc"], MAP)


# --- the overlap ---
def test_the_overlap_is_what_all_clients_of_the_round_hold():
    masks = after_a_round().groups["overlap"]
    assert masks["hidden.bias"].astype(int).tolist() == [1, 0, 0, 1, 0]
    assert masks["hidden.weight"].astype(int).tolist() == [[1, 1], [0, 0], [0, 0], [1, 1], [0, 0]]
    assert masks["out.weight"].astype(int).tolist() == [[1, 0, 0, 1, 0]] * 2
    assert masks["out.bias"].astype(int).tolist() == [1, 1]


def test_the_overlap_is_that_of_the_last_round_only():
    strategy, first = hermes(), after_a_round()
    second = close_round(strategy, first, [sent("a")], MAP)
    assert second.groups["overlap"]["hidden.bias"].astype(int).tolist() == [1, 1, 0, 1, 0]


def test_a_device_receives_the_overlap_in_the_channels_of_its_sub_model():
    groups = downlink_groups(hermes(), after_a_round(), SubModelSpec(kept={"hidden": (3, 4)}), MAP)
    assert groups["overlap"]["hidden.bias"].astype(int).tolist() == [1, 0]
    assert groups["overlap"]["out.weight"].astype(int).tolist() == [[1, 0], [1, 0]]


def test_only_the_model_is_sent_before_the_first_round():
    strategy = hermes()
    assert downlink_groups(strategy, start_state(strategy, ZEROS), SubModelSpec(), MAP).keys() == {"model"}


def test_the_overlap_survives_a_checkpoint(tmp_path):
    state = after_a_round()
    save_checkpoint(tmp_path / "state", state)
    back = load_checkpoint(tmp_path / "state", {"model": state.params}).groups["overlap"]
    assert all((back[name] == mask).all() for name, mask in state.groups["overlap"].items())


# --- the global model ---
@pytest.mark.parametrize(
    ("options", "bias"),
    [
        # Channels 0 and 3: 0.25 * 1 + 0.25 * 2 + 0.5 * 4 = 2.75. Only a holds 1, only c holds 4.
        ({}, [2.75, 0, 0, 2.75, 0]),
        ({"elsewhere": "keep"}, [2.75, 0, 0, 2.75, 0]),
        ({"elsewhere": "holders"}, [2.75, 1, 0, 2.75, 4]),
    ],
)
def test_outside_the_overlap_the_model_stays_or_is_the_mean_over_the_holders(options, bias):
    params = after_a_round(**options).params
    assert params["hidden.bias"].tolist() == bias
    assert params["out.weight"][0].tolist() == bias
    assert params["out.bias"].tolist() == [2.75, 2.75]


def test_an_unknown_value_of_elsewhere_is_refused():
    with pytest.raises(ConfigError, match="elsewhere is 'keep' or 'holders', not 'zero'"):
        hermes(elsewhere="zero")


# --- a device over two rounds ---
def test_a_device_continues_from_its_own_values_outside_the_overlap(tmp_path: Path):
    # With `keep` the global model does not change there, so the device's own values differ from it.
    overrides = (
        "clients.fraction=1.0",
        "model.name=mlp",
        "strategy.combiner=overlap-mean",
        "strategy.uplink=[]",
    )
    bench = Bench(tmp_path, "hermes", *overrides)
    bench.places = {
        name: replace(place, private=PrivateState(tmp_path / f"{name}-private"))
        for name, place in bench.places.items()
    }
    bench.round(1)
    private = bench.places["strong"].private
    private.commit("run-1", 1, 1)
    task = bench.tasks(2, 2)["strong"]
    # With 0 epochs nothing is trained: the update is the device's start minus what it received.
    untrained = task.model_copy(update={"training": task.training.model_copy(update={"local_epochs": 0})})
    place = bench.places["strong"]
    done = do_training(untrained, place, on_epoch=lambda report: None, should_stop=lambda: False)
    delta = read_groups(place.store.blob_path(done.blob.digest))["model"]
    channel_map = bench.coordinator.context.channel_map
    received = received_groups(task, place.store, channel_map)
    kept = in_sub_model(private.load_groups("run-1", 2), task.spec, channel_map)
    own, personal = kept["personal"], 0
    for name, shared in received["overlap"].items():
        mine = kept["personal-held"][name] & ~shared
        began = received["model"][name] + delta[name]
        np.testing.assert_allclose(began, np.where(mine, own[name], received["model"][name]), atol=1e-6)
        personal += int((mine & (np.abs(own[name] - received["model"][name]) > 1e-4)).sum())
    assert personal > 0
