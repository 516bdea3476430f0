"""A picture gives the same outputs in training, in the server's tests, and in the exported file."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge_client.agent import device_training
from edge_client.agent.device_training import DeviceTraining
from edge_client.agent.task_runner import do_delivery
from edge_client.data.dataset import preprocess
from edge_client.data.local import LocalData
from edge_client.data.shapes import redrawn
from edge_client.data.sources import load_source
from edge_client.inference.installed_model import served_model_path
from edge_client.inference.onnx_model import load_model
from edge_client.inference.queries import read_input
from edge_client.inference.service.requests import read_request
from edge_client.models.zoo import input_record
from schemas.messages import DeliverTask
from schemas.values import Preprocessing, Resizing, TrainerName
from tests.integration.bench import Bench
from tests.slow import slow

MEAN, STD = (0.48, 0.45, 0.4), (0.23, 0.22, 0.21)
AS_KNOWN = (
    *(f"data.mean={list(MEAN)}", f"data.std={list(STD)}", "data.crop=0.875", "data.interpolation=bicubic"),
    *("model.name=mlp", "model.input-shape=[3,16,16]", "tiers.ratios=[0.0]"),
    *("training.personalise-epochs=1", "training.class-odds=1", "simulation.hold-out=0.2"),
)


def photos(root: Path, *, size: tuple[int, int] = (90, 60), grey: bool = False) -> Path:
    rng = np.random.default_rng(7)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            rough = Image.fromarray(rng.integers(0, 255, (6, 9, 3), dtype=np.uint8)).resize(size)
            (rough.convert("L") if grey else rough).save(root / name / f"{number}.png")
    return root


@pytest.mark.parametrize("trainer", [slow("torch"), "onnx"])
def test_training_and_the_exported_file_compute_the_same_of_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: TrainerName
) -> None:
    folder = photos(tmp_path / "photos", size=(900, 600))
    bench = Bench(tmp_path, "fedavg", *AS_KNOWN, f"data.source=folder:{folder}")
    own = load_source(f"folder:{folder}")
    bench.train_with(trainer, data=LocalData(own, own))
    place = bench.places["weak"]
    seen, outputs = [], DeviceTraining.outputs

    def spy(training, task, received, inputs):
        seen.append((inputs, outputs(training, task, received, inputs)))
        return seen[-1][1]

    monkeypatch.setattr(DeviceTraining, "outputs", spy)
    monkeypatch.setattr(device_training, "choose", lambda shared, others: shared)
    task = bench.tasks(1, 1, deliver=True)["weak"]
    assert isinstance(task, DeliverTask)
    do_delivery(task, place)

    model = load_model(served_model_path(place.models))
    assert (model.preprocessing.mean, model.preprocessing.std) == (MEAN, STD)
    trained_on, computed = seen[0]
    assert trained_on.shape == (6, 3, 16, 16)
    inferred = read_input(folder, model).images
    np.testing.assert_allclose(model.inputs(inferred), trained_on, atol=1e-5)
    np.testing.assert_allclose(model.logits(inferred), computed, atol=1e-5)
    served = read_request((folder / "cat" / "0.png").read_bytes(), model).images
    np.testing.assert_allclose(model.logits(served), computed[:1], atol=1e-5)
    tested = bench.coordinator.context.testing.data
    assert tested is not None
    np.testing.assert_allclose(tested.inputs(), trained_on, atol=1e-5)


def test_a_picture_becomes_what_the_librarys_own_transforms_make_of_it() -> None:
    record = input_record("torchvision:mobilenet_v3_small")
    assert record.interpolation == "bilinear"
    from torchvision.models import MobileNet_V3_Small_Weights

    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    theirs = MobileNet_V3_Small_Weights.DEFAULT.transforms()(Image.fromarray(pixels)).numpy()
    taken = redrawn(pixels.transpose(2, 0, 1), (3, 224, 224), Resizing(crop=record.crop))
    ours = preprocess(taken[None], Preprocessing(mean=record.mean, std=record.std))[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
