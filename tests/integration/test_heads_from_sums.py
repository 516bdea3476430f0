"""Heads in one round over a broker: sums of devices of three tiers, a head in each tier's own file."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_client.security.secure_aggregation.mask_update import means_of_sums
from edge_server.config.load import load_config
from edge_server.coordinator.removal import forget_device
from edge_server.coordinator.replay import replay
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_folder import RunFolder
from edge_server.strategy.groups.device_sums import held_sums
from schemas.errors import ConfigError, PeerError
from tests.edge_server.simulation.small import history, run
from tests.integration.conftest import ONE_BROKER
from tests.integration.test_statistics_round import Fleet
from tests.slow import mark_slow

DIGITS = load_source("digits")
TEST = DIGITS.subset(range(1000, 1400))
WORDS = ("federation.name=test", "model.name=mlp", "model.input-shape=[1,8,8]", "num-clients=4")
# Tier 1 lacks channels of the last layer alone, tier 2 of the layer before that too.
TIERS = "tiers.ratios=[{linear2 = 0.4}, {linear1 = 0.4, linear2 = 0.2}, 0.0]"


def accuracy(path: Path) -> float:
    scores = load_model(path, threads=1).logits(TEST.images)
    return float((scores.argmax(1) == TEST.labels).mean())


@ONE_BROKER
@pytest.mark.parametrize("recipe", ["ridge"])
def test_one_round_gives_every_tier_a_head_of_its_own(address, tmp_path: Path, recipe: str) -> None:
    fleet = Fleet(address, tmp_path)
    for index, (tier, trainer) in enumerate(((1, "onnx"), (2, "torch"), (3, "onnx"), (3, "torch"))):
        fleet.add(f"pi-{index}", DIGITS.subset(range(250 * index, 250 * index + 250)), trainer, tier=tier)
    words = (*WORDS, TIERS, "data.source=digits", "deadline-s=60")
    assert fleet.serve(load_config(recipe, words), tmp_path / "run").outcome == "finished"
    (line,) = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    record = RoundRecord.model_validate_json(line)
    assert record.completed == ("pi-0", "pi-1", "pi-2", "pi-3")
    assert [replayed.verdict for replayed in replay(tmp_path / "run")] == ["agrees"]
    assert all(accuracy(tmp_path / "run" / "onnx" / f"tier-{tier}.onnx") > 0.8 for tier in (1, 2, 3))


def test_a_head_that_is_solved_first_is_trained_further(tmp_path: Path) -> None:
    words = ("num-clients=5", "rounds=3", "training.train=head")
    found = {}
    for name, more in (("plain", ()), ("first", ("strategy.first-round=ridge",))):
        run(tmp_path / name, "fedavg", *words, *more)
        lines = (tmp_path / name / "history.jsonl").read_text().splitlines()
        found[name] = [RoundRecord.model_validate_json(line) for line in lines]
    first, *later = found["first"]
    assert (first.local_epochs, later[0].local_epochs) == (0, 3)
    assert first.test_accuracy is not None
    assert first.test_accuracy > 0.92
    # Features that nobody has trained: the head of all data in one round is better than that of three rounds.
    plain = [record.test_accuracy for record in found["plain"]]
    assert first.test_accuracy > max(plain) + 0.05
    assert all(record.test_accuracy > first.test_accuracy - 0.03 for record in later)


def test_masked_sums_give_the_same_head_and_are_those_of_all_devices(tmp_path: Path) -> None:
    words, weights, right = ("num-clients=4", "federation.deliver=none"), {}, {}
    for name, more in (("plain", ()), ("masked", ("privacy.secure-aggregation=true",))):
        run(tmp_path / name, "ridge", *words, *more)
        state = RunFolder(tmp_path / name).load_state(1)
        weights[name] = state.params["linear3.weight"]
        right[name] = history(tmp_path / name)[0]["test_accuracy"]
        devices = [sums.device for sums in held_sums(state.groups["feature-sums"])]
        assert devices == (["sum-of-the-cohort"] if more else [f"device-000{k}" for k in range(1, 5)])
    apart = np.linalg.norm(weights["masked"] - weights["plain"]) / np.linalg.norm(weights["plain"])
    assert apart < 0.01
    assert abs(right["masked"] - right["plain"]) < 0.01
    with pytest.raises(ConfigError, match="the masked sum of all devices"):
        forget_device(tmp_path / "masked", "device-0001")


def test_masks_need_one_tier_and_products_within_their_range() -> None:
    with pytest.raises(ConfigError, match="tiers have sums of different features"):
        load_config("ridge", ["privacy.secure-aggregation=true", "tiers.ratios=[0.5, 0.0]"])
    with pytest.raises(PeerError, match=r"a mean product of features is 12, beyond \+-8"):
        means_of_sums({"head/gram": np.array([[24.0, 2.0]])}, 2, 8.0)


@mark_slow
def test_covariances_from_class_means_come_close_to_the_regression(tmp_path: Path) -> None:
    covariances = 'strategy.groups=[{ name = "class-means", covariances = true }]'
    accuracies = {}
    for name, recipe, more in (
        ("r", "ridge", ()),
        ("m", "class-means", ()),
        ("c", "class-means", (covariances,)),
    ):
        words = ("num-clients=20", "samples-per-client=60", "test-samples=500")
        accuracies[name] = run(tmp_path / name, recipe, *words, *more).test_accuracy or 0.0
    # 96.7, 83.6 and 95.5 %, of the same hidden layers at random.
    assert accuracies["r"] > accuracies["c"] - 0.005
    assert accuracies["c"] > max(0.93, accuracies["m"] + 0.08)
    sent = [history(tmp_path / name)[0]["uplink_bytes"] for name in "mc"]
    assert sent[0] == sent[1]
