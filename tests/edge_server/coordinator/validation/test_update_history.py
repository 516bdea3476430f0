"""Checks of a single update against the history: replays and the canary."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import make_labelled_data
from edge_client.data.local import LocalData
from edge_client.data.tasks.labels import in_task
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_server.config.load import load_config
from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.validation.harm_review import MAX_DIGESTS, Replays, UpdateHistory
from edge_server.coordinator.validation.round_review import Canary
from edge_server.storage.journal_reader import ExaminedUpdate
from edge_server.storage.run_folder import RunFolder
from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas.errors import ConfigError, PeerError, Reason
from schemas.messages import Update
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors.chunks import BlobRef
from schemas.values import TrainingMetrics
from tests.groups import decode_groups, encode_groups
from tests.integration.bench import Bench

ONE, TWO = "1" * 64, "2" * 64


# --- replays ---
@pytest.fixture
def known() -> Replays:
    replays = Replays()
    replays.count("a", ONE, 1)
    return replays


@pytest.mark.parametrize(
    ("device", "digest", "number", "moved"),
    [("a", TWO, 2, True), ("b", ONE, 2, True), ("a", ONE, 1, True), ("a", ONE, 2, False)],
    ids=["other bytes", "another device", "the same round planned again", "nothing moved"],
)
def test_honest_updates_are_not_replays(known, device, digest, number, moved):
    known.check(device, digest, number, moved=moved)


@pytest.mark.parametrize("number", [2, 99])
def test_the_bytes_of_an_earlier_round_are_refused_in_any_later_one(known, number):
    known.count("a", TWO, 2)
    with pytest.raises(PeerError, match="counted in round 1 already") as refused:
        known.check("a", ONE, number, moved=True)
    assert refused.value.reason == Reason.REPLAYED


def test_the_first_round_of_a_digest_stays(known):
    known.count("a", ONE, 3)
    known.check("a", ONE, 1, moved=True)


def test_the_oldest_digest_is_forgotten_when_there_are_too_many(known):
    for number in range(MAX_DIGESTS - 1):
        known.count("a", str(number), 2)
    with pytest.raises(PeerError):
        known.check("a", ONE, 7, moved=True)
    known.count("a", TWO, 2)
    known.check("a", ONE, 7, moved=True)


# --- the canary ---
MAP = ChannelMap(
    groups={"g": ChannelGroup(channels=2, layers=("l",))},
    parameters={"l.weight": ParameterLayout(shape=(2,), axes={0: (Segment(channels=2, group="g"),)})},
)
PARAMS = {"l.weight": np.array([1, 1], np.float32)}
PREFIX = SubModelSpec(kept={"g": 1})


class RecordedAccuracy:
    """An accuracy of 0.9 minus the change of the weights; records every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[float], SubModelSpec]] = []

    def __call__(self, params, spec) -> dict[str, float]:
        self.calls.append((params["l.weight"].tolist(), spec))
        return {"accuracy": 0.9 - float(np.abs(params["l.weight"] - 1).sum())}


def alone(value: float) -> ClientUpdate:
    return ClientUpdate("a", PREFIX, {"model": {"l.weight": np.array([value], np.float32)}}, 1)


def test_an_update_that_costs_more_than_allowed_is_refused():
    canary = Canary(RecordedAccuracy(), CLASSIFICATION, 0.05)
    canary.check(alone(0.04), PARAMS, MAP, 1)
    with pytest.raises(PeerError, match=r"from 0\.900 to 0\.840") as refused:
        canary.check(alone(-0.06), PARAMS, MAP, 1)
    assert refused.value.reason == Reason.HARMFUL


def says_box(input_shape, classes):
    """A detector that says one box of the first class for every picture, as far as training leaves it."""
    said = torch.full((classes + 5, 336), -4.0)
    said[[0, -1], 0], said[classes:-1, 0] = 4.0, torch.tensor([8.0, 8, 24, 24])
    layer = nn.Linear(1, said.numel())
    nn.init.zeros_(layer.weight)
    layer.bias.data = said.flatten()
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), layer)


class SwappedClasses(Bench):
    """The second device says the second class where the network says the first."""

    def sent(self, name, update):
        store, moved = self.places[name].store, np.zeros((7, 336), np.float32)
        if name == "strong":
            moved[:2, 0] = -16, 16  # below the score from which a box is said at all
        groups = decode_groups(store.blob_path(update.blob.digest).read_bytes())
        model = {**groups["model"], "2.bias": groups["model"]["2.bias"] + moved.flatten()}
        return update.model_copy(update={"blob": store.put_blob(encode_groups({**groups, "model": model}))})


def test_a_detectors_update_that_swaps_classes_is_refused_by_map50_and_an_honest_one_is_not(tmp_path):
    name, boxes = f"{__name__}:says_box", np.array([[[0, 8, 8, 24, 24]]] * 20, np.float32)
    data = in_task(make_labelled_data(np.zeros((20, 1, 64, 64), np.float32), boxes), "detection", ())
    np.savez(tmp_path / "boxes.npz", images=data.images, labels=boxes)
    model = (f"model.name={name}", "model.task=detection", "num-classes=2", "learning-rate=0.001")
    source = (f"data.source=npz:{tmp_path}/boxes.npz", "firewall.canary=0.1")
    bench = SwappedClasses(tmp_path, "fedavg", *source, *model)
    own = {"data": LocalData(data, data), "model_code": frozenset({name})}
    bench.places = {device: replace(place, **own) for device, place in bench.places.items()}
    bench.answers(1, among={"weak"})
    with pytest.raises(
        AssertionError, match=r"alone it takes map50 from 1\.000 to 0\.000, by more than 0\.1"
    ):
        bench.answers(1, among={"strong"})


def test_an_update_is_tested_in_its_trained_shape_and_the_model_once_a_round():
    accuracy = RecordedAccuracy()
    canary = Canary(accuracy, CLASSIFICATION, 0.5)
    for number in (1, 1, 2):
        canary.check(alone(0.25), PARAMS, MAP, number)
    model, moved = ([1.0, 1.0], PREFIX), ([1.25, 1.0], PREFIX)
    assert accuracy.calls == [model, moved, moved, model, moved]


def test_a_canary_without_test_data_is_a_config_error(tmp_path):
    words = ["model.name=mlp", "model.input-shape=[1, 8, 8]", "num-classes=10", "firewall.canary=0.1"]
    config = load_config("fedavg", words)
    with pytest.raises(ConfigError, match=r"\[firewall\] canary needs test data of the server: set"):
        assemble(config, "run-1", RunFolder.create(tmp_path, config))


# --- settings ---
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("firewall.norm-history=200", "norm-history 200 is more than norm-window 100"),
        ("firewall.quarantine-after=11", "quarantine-after 11 is more than quarantine-window 10"),
        ("firewall.norm-factr=3", "norm-factor"),
    ],
)
def test_contradictory_settings_are_refused(word, message):
    with pytest.raises(ConfigError, match=message):
        load_config("fedavg", [word])


def test_the_firewall_is_on_by_default_and_the_canary_off():
    settings = FirewallSettings()
    assert settings.norm_bound
    assert settings.quarantine_after > 0
    assert settings.canary is None


# --- both, restored from the journal ---
def test_a_history_restored_from_rows_equals_one_that_recorded_them():
    seen, restored = UpdateHistory(FirewallSettings(), MAP), UpdateHistory(FirewallSettings(), MAP)
    rows = [
        ExaminedUpdate(1, "a", ONE, None, {"model": 0.5}),
        ExaminedUpdate(1, "b", TWO, Reason.OUT_OF_BOUNDS, {"model": 9.0}),
        ExaminedUpdate(2, "a", TWO, Reason.NOT_FINITE),
    ]
    for row in rows:
        blob = BlobRef(digest=row.digest, size=1)
        fields = {"federation": "f", "device": row.device, "run": "r", "round": row.round, "attempt": 1}
        update = Update(**fields, blob=blob, metrics=TrainingMetrics(examples=1, epochs=1, steps=1))
        seen.record(update, row.norms, row.reason)
    restored.restore(rows)
    assert (seen.norms, seen.replays) == (restored.norms, restored.replays)
    assert seen.norms.recent == {"model": (0.5,)}
    assert seen.replays.rounds == {("a", ONE): 1}


# --- outliers ---
@pytest.mark.parametrize(("name", "refused"), [("b.weight", {"d"}), ("b.running_var", set())])
def test_weights_before_a_normalisation_may_spread_twice_as_far(name, refused):
    channel_map = ChannelMap(groups={}, parameters={name: ParameterLayout(shape=(2,))})
    sent = {device: {"model": norm} for device, norm in zip("abcd", (1, 1, 1, 9), strict=True)}
    assert set(UpdateHistory(FirewallSettings(), channel_map).find_outliers(sent).refused) == refused
