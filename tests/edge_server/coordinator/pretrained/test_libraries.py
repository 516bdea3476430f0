"""Weights that torchvision and timm publish; nothing is downloaded, as their lists name files here."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torchvision import models
from torchvision.models._api import Weights, WeightsEnum
from torchvision.transforms._presets import ImageClassification

from edge_client.models.build import build_model
from edge_client.models.registry import InputRecord
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of
from edge_server.coordinator.initial_model import find_initial_model
from edge_server.coordinator.pretrained.model import PretrainedModel
from edge_server.storage.records import StartedFrom
from schemas.errors import ConfigError
from schemas.values import ModelSpec
from tests.edge_server.coordinator.test_initial_model import file

NETWORK = "torchvision:shufflenet_v2_x0_5"
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


class Published:
    """What a torchvision of this test publishes: two kinds of weights, in files with digests in names."""

    def __init__(self, folder: Path) -> None:
        self.module = models.shufflenet_v2_x0_5(num_classes=3)
        torch.save(self.module.state_dict(), folder / "w.pth")
        digest = hashlib.sha256((folder / "w.pth").read_bytes()).hexdigest()
        self.file = (folder / "w.pth").rename(folder / f"shuffle-{digest[:8]}.pth")
        other = folder / "shuffle-00000000.pth"
        other.write_bytes(self.file.read_bytes())
        kinds = {"V1": _weights(self.file), "DEFAULT": _weights(self.file), "OTHER": _weights(other)}
        self.weights = WeightsEnum("Published", kinds)

    def withdraw(self) -> None:
        self.file.unlink()


def _inputs() -> Any:
    return ImageClassification(crop_size=96, resize_size=128, mean=MEAN, std=STD)


def _weights(path: Path) -> Weights:
    return Weights(path.as_uri(), _inputs, {"categories": ["hen", "cat", "dog"]})


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    (tmp_path / "published").mkdir()
    published = Published(tmp_path / "published")
    monkeypatch.setattr(models, "get_model_weights", lambda name: published.weights)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "cache"))
    return published


def read(
    stated: str, network: str, *, colours: int = 3, classes: tuple[str, ...] = ("cat", "dog", "hen")
) -> tuple[Mapping[str, Any], StartedFrom, Mapping[str, Any]]:
    """What a network takes of weights, the origin, and what it draws itself."""
    spec = ModelSpec(name=network, input_shape=(colours, 64, 64), num_classes=len(classes))
    module = build_model(spec)
    own = arrays_of(module)
    first = find_initial_model(file(f"from={stated}"), [])
    assert isinstance(first, PretrainedModel)
    return *first.read(spec, trace_channels(module, spec.input_shape), own, classes), own


def test_weights_of_torchvision_are_fetched_once_and_rows_go_by_the_names_of_classes(
    published: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, about, _ = read(NETWORK, NETWORK)
    theirs = published.module.state_dict()
    np.testing.assert_array_equal(mine["conv1.0.weight"], theirs["conv1.0.weight"])
    np.testing.assert_array_equal(mine["fc.bias"], theirs["fc.bias"][[1, 2, 0]])
    assert about.stated == NETWORK
    assert about.state_sha256 == hashlib.sha256(published.file.read_bytes()).hexdigest()
    kept = tmp_path / "cache" / "checkpoints" / published.file.name
    assert f"downloading {published.file.as_uri()} to {kept}" in capsys.readouterr().err
    published.withdraw()
    again, _, _ = read(f"{NETWORK}.V1", NETWORK)
    np.testing.assert_array_equal(again["fc.bias"], mine["fc.bias"])
    assert "downloading" not in capsys.readouterr().err


def test_a_grey_picture_gives_what_it_gives_in_three_colours(published: Published) -> None:
    mine, about, _ = read(NETWORK, NETWORK, colours=1)
    theirs = published.module.conv1[0].weight.detach().numpy()
    np.testing.assert_allclose(mine["conv1.0.weight"], theirs.sum(axis=1, keepdims=True), atol=1e-6)
    assert about.weights is not None
    assert about.weights.summed == ("conv1.0.weight",)


def test_the_inputs_of_weights_are_known_without_fetching_them(published: Published) -> None:
    published.withdraw()
    first = find_initial_model(file(f"from={NETWORK}"), [])
    assert isinstance(first, PretrainedModel)
    assert first.inputs == InputRecord((96, 96), MEAN, STD, 0.75, "bilinear")


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("torchvision:shufflenet_v2_x0_6", "did you mean 'torchvision:shufflenet_v2_x0_5'"),
        (
            f"{NETWORK}.V2",
            "torchvision has no weights 'V2' of 'shufflenet_v2_x0_5' .it has V1, DEFAULT, OTHER",
        ),
        ("timm:lcnet_500", "did you mean 'timm:lcnet_050'"),
        ("timm:lcnet_050.a1", "timm has no weights 'a1' of 'lcnet_050'"),
        (
            "timm:lcnet_035",
            "timm knows the network 'lcnet_035' and has no weights of it: name others, such as timm:lcnet",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(stated: str, message: str, published: Published) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        find_initial_model(file(f"from={stated}"), [])
    assert str(raised.value).startswith("[model] from: ")


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (NETWORK, "cannot be downloaded: .*No such file"),
        (f"{NETWORK}.OTHER", "cannot be downloaded: invalid hash"),
    ],
)
def test_what_cannot_be_fetched_is_an_error_that_names_the_place_of_a_copy(
    stated: str, message: str, published: Published, tmp_path: Path
) -> None:
    published.withdraw()
    with pytest.raises(ConfigError, match=message) as raised:
        read(stated, NETWORK)
    assert raised.value.remedy.startswith(f"copy it to {tmp_path / 'cache' / 'checkpoints'}/shuffle-")
    assert not [*(tmp_path / "cache" / "checkpoints").iterdir()]


def test_weights_of_timm_are_those_of_its_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = timm.create_model("lcnet_050", pretrained=False)
    torch.save(made.state_dict(), tmp_path / "w.pth")
    create = timm.create_model

    def create_offline(name: str, *, pretrained: bool, **options: Any) -> Any:
        overlay = {"pretrained_cfg_overlay": {"file": str(tmp_path / "w.pth")}} if pretrained else {}
        return create(name, pretrained=pretrained, **overlay, **options)

    monkeypatch.setattr(timm, "create_model", create_offline)
    mine, about, own = read("timm:lcnet_050.ra2_in1k", "timm:lcnet_050", colours=1)
    stem = made.conv_stem.weight.detach().numpy()
    np.testing.assert_allclose(mine["conv_stem.weight"], stem.sum(axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(mine["conv_head.bias"], made.conv_head.bias.detach())
    np.testing.assert_array_equal(mine["classifier.weight"], own["classifier.weight"])
    assert about.weights is not None
    assert {*about.weights.drawn} == {"classifier.weight", "classifier.bias"}


def test_weights_of_timm_without_a_network_are_an_error_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(timm, "create_model", fail)
    first = find_initial_model(file("from=timm:lcnet_050"), [])
    assert isinstance(first, PretrainedModel)
    with pytest.raises(ConfigError, match=r"timm:lcnet_050 cannot be downloaded: no route to host: let timm"):
        first.source.read(first.stated, (3, 64, 64))
