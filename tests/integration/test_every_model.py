"""Every shipped network is trained in rounds and delivered, without a broker."""

import os
from pathlib import Path

import pytest

from edge_client.agent.task_runner import do_delivery
from edge_client.inference.installed_model import slots
from edge_client.inference.onnx_model import load_model
from edge_client.models.registry import MODELS
from tests.integration.bench import NAMES, Bench
from tests.slow import ALL, slow

DELIVERED = ("two-nn", "mlp", "cnn-1d", *(("tcn",) if ALL else ()), "autoencoder", "cnn-batch", "cnn-group")
"""The others take longest to export; `tests/edge_client/models/graphs/test_filling.py` draws their graphs."""

LARGER = () if os.environ.get("EVERY_NETWORK") == "1" else ("mobilenet-v2", "resnet56", "resnet20-group")
"""Networks that only `make test-graphs` trains: a smaller one has the same builder and layers."""
WITHOUT_PICTURES = {"speech-cnn"}
"""Networks that no reading of an image fits: `tests/edge_client/models/test_speech_cnn.py` has their run."""
SETTINGS = {
    "cnn-1d": ["input-shape=[8, 8]"],
    "tcn": ["input-shape=[8, 8]"],
    "autoencoder": ["model.task=anomaly"],
}
"""An image of 8x8 pixels is a signal of eight channels too."""


QUICK = ("mlp", "tcn", "two-nn", "vit-tiny")
"""Networks that are pruned in `make test`."""
LONGEST = ("mobilenet-v2", "mobilenet-v2-quarter")
PAIRS = [
    (model, "attending") if model in QUICK or LARGER == () else slow(model, "attending")
    for model in sorted(set(MODELS) - WITHOUT_PICTURES - {*LARGER})
]
WHOLE = [
    (model, "fedavg") if model not in (*QUICK, *LONGEST) or LARGER == () else slow(model, "fedavg")
    for model in sorted(set(MODELS) - WITHOUT_PICTURES - {*LARGER})
]


@pytest.mark.parametrize(("model", "recipe"), [*PAIRS, *WHOLE])
def test_a_network_is_trained_pruned_aggregated_and_delivered(
    tmp_path: Path, model: str, recipe: str
) -> None:
    # Equation 3 divides by the deviation over positions: maps of 1 or 4 positions, which deep networks
    # compute from 8x8 images, make gradients explode; Adam's steps do not grow with the gradients.
    words = [f"model.name={model}", "optimizer=adam", "learning-rate=0.0001", *SETTINGS.get(model, [])]
    bench = Bench(tmp_path, recipe, *words, *(["tiers.ratios=[0.5, 0.0]"] if recipe == "attending" else []))
    for number in (1, 2):
        record, updates = bench.round(number)
        assert record.completed == tuple(sorted(NAMES))
        assert record.test_metrics
        assert (updates["weak"].blob.size < updates["strong"].blob.size) == (recipe == "attending")
    if model not in DELIVERED or recipe != "attending":
        return
    parameters = []
    for name, task in bench.tasks(2, 3, deliver=True).items():
        delivery = do_delivery(task, bench.places[name])
        parameters.append(delivery.metrics.parameters)
        assert delivery.metrics.torch_accuracy == delivery.metrics.onnx_accuracy
        served = load_model(bench.places[name].models / "model.onnx")
        assert served.provenance["tier"] == str(task.tier)
        assert delivery.metrics.onnx_sha256 == slots(bench.places[name].models).current().model.digest
    assert parameters == sorted(set(parameters))
