"""Grad-CAM images and heat maps of the newest model in a run folder."""

import asyncio
import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of
from edge_server.config.load import load_config
from edge_server.observability.dashboard import model_view
from edge_server.observability.dashboard.grad_cam_process import grad_cam_value, overlay, picture
from edge_server.observability.dashboard.model_view import GradCamRequests, GradCamUnavailable, why_not
from edge_server.observability.dashboard.run_reader import read_facts
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.values import ModelSpec
from tests.forked import forked_executable

SPEC = ModelSpec(name="cnn", input_shape=(1, 8, 8), num_classes=10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a convolutional model, before its first round."""
    path = tmp_path_factory.mktemp("grad-cam") / "run"
    words = ["data.source=digits", "model.name=cnn", "tiers.ratios=[0.5, 0.0]"]
    folder = RunFolder.create(path, load_config("attending", words))
    module = build_model(SPEC, seed=1)
    folder.save_model(0, arrays_of(module), trace_channels(module, SPEC.input_shape), {})
    return path


def opened(url: str) -> Image.Image:
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("tier", [0, 1, 2])
def test_each_class_has_an_image_and_a_heat_map(run, tier):
    reported = grad_cam_value(run, tier, 10)
    assert (reported["tier"], reported["round"]) == (tier, 0)
    assert [entry["label"] for entry in reported["images"]] == list("0123456789")
    for entry in reported["images"]:
        image, heat = opened(entry["image"]), opened(entry["heat"])
        assert (image.mode, heat.mode, image.size, heat.size) == ("L", "RGBA", (8, 8), (8, 8))
        assert entry["predicted"] in "0123456789"
        # The predicted class of ten has a probability of at least a tenth.
        assert 0.1 <= entry["confidence"] <= 1
    # At least one image has a non-empty heat map.
    assert max(np.asarray(opened(entry["heat"]))[..., 3].max() for entry in reported["images"]) == 200


def test_a_tier_uses_its_own_channels(run):
    full, small = grad_cam_value(run, 2, 3), grad_cam_value(run, 1, 3)
    assert [image["image"] for image in full["images"]] == [image["image"] for image in small["images"]]
    assert [image["confidence"] for image in full["images"]] != [
        image["confidence"] for image in small["images"]
    ]
    # The last tier is not pruned: it is the global model.
    assert grad_cam_value(run, 0, 3)["images"] == full["images"]


def test_an_unknown_tier_is_refused(run):
    with pytest.raises(ConfigError, match="no tier 3: there are 1 to 2"):
        grad_cam_value(run, 3, 1)


def test_labels_are_the_class_names_of_the_model(tmp_path):
    words = ["data.source=digits", "model.name=cnn", "tiers.ratios=[0.5, 0.0]"]
    folder = RunFolder.create(tmp_path / "run", load_config("attending", words))
    module, names = build_model(SPEC, seed=1), [f"digit {number}" for number in range(10)]
    manifest = {"preprocessing": {"class_names": names}}
    folder.save_model(0, arrays_of(module), trace_channels(module, SPEC.input_shape), manifest)
    reported = grad_cam_value(tmp_path / "run", 0, 10)
    assert [image["label"] for image in reported["images"]] == names
    assert {image["predicted"] for image in reported["images"]} <= set(names)


def test_pixels_are_shown_in_their_own_range():
    grey = np.asarray(picture(np.array([[[0, 8, 16]]]), 16.0))
    # 8 of 16 is 127.5, which is rounded to even.
    assert grey.tolist() == [[0, 128, 255]]
    assert np.asarray(picture(np.full((3, 1, 1), 1.0), 2.0)).tolist() == [[[128, 128, 128]]]


def test_heat_is_clear_where_cold_and_yellow_where_hottest():
    colours = np.asarray(overlay(np.array([[0.0, 1.0]])))
    assert colours.tolist() == [[[255, 0, 0, 0], [255, 255, 0, 200]]]


def test_images_are_made_in_another_process_once_per_version(run, monkeypatch, tmp_path):
    monkeypatch.setattr(model_view.sys, "executable", forked_executable(tmp_path))

    async def twice() -> tuple[Any, Any]:
        asking = GradCamRequests(run)
        return await asyncio.gather(asking.images("round-0000", 1, 2), asking.images("round-0000", 1, 2))

    first, second = asyncio.run(twice())
    assert first is second
    assert first == grad_cam_value(run, 1, 2)


def test_a_failed_process_is_reported(run, monkeypatch):
    monkeypatch.setattr(model_view.sys, "executable", "/bin/false")
    with pytest.raises(GradCamUnavailable, match="ended with 1"):
        asyncio.run(GradCamRequests(run).images("round-0000", 1, 1))


def test_a_process_that_takes_too_long_is_ended(run, monkeypatch, tmp_path):
    """A program that never ends replaces the Python interpreter."""
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    endless.chmod(0o755)
    monkeypatch.setattr(model_view.sys, "executable", str(endless))
    monkeypatch.setattr(model_view, "PATIENCE_S", 0.2)
    with pytest.raises(GradCamUnavailable, match="took more than"):
        asyncio.run(GradCamRequests(run).images("round-0000", 1, 1))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["model.input-shape=[1,8,8]", "model.num-classes=10"], "no test data"),
        (["data.source=digits", "model.name=nowhere_at_all:network"], "nowhere_at_all cannot be imported"),
    ],
    ids=["no data", "unknown module"],
)
def test_a_run_without_grad_cam_gives_the_reason(words, reason, run, tmp_path):
    folder = RunFolder.create(tmp_path / "run", load_config("attending", words))
    assert why_not(read_facts(folder.path)) == "there is no model yet"
    (folder.path / "models").rmdir()
    (folder.path / "models").symlink_to(run / "models")
    assert reason in why_not(read_facts(folder.path))
    assert why_not(read_facts(run)) == ""
