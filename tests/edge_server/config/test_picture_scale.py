"""How a federation says what becomes full brightness of picture files."""

from pathlib import Path

import pytest

from edge_client.data.pictures.scale import parsed_scale, scale_in_words, scale_misfit
from edge_server.config.load import load_config
from edge_server.coordinator import evaluation
from schemas.errors import ConfigError
from schemas.values import MIN_MAX, PictureScale
from tests.edge_client.data.pictures.test_image_folders import depth_folder


def scale_of(*words: str) -> PictureScale | None:
    config = load_config("fedavg", ["model.name=mlp", *words])
    return evaluation.Testing(config).preprocessing.picture_scale


def test_the_server_states_the_scale_of_its_source_or_of_its_file(tmp_path: Path) -> None:
    folder = f"folder:{depth_folder(tmp_path, count=1)}"
    without = ["model.input-shape=[1,8,8]", "data.classes=['far','near']"]
    stated = "data.picture-scale=1/4095"
    for words, scale in (
        ([f"data.source={folder}?scale=min-max"], MIN_MAX),
        ([f"data.source={folder}?scale=1/4095", stated], 1 / 4095),
        ([*without, stated], 1 / 4095),
        (without, None),
    ):
        assert scale_of(*words) == scale
    with pytest.raises(
        ConfigError, match=r"\[data\] source: the federation takes pictures with scale=1/4095"
    ):
        scale_of(f"data.source={folder}", stated)
    with pytest.raises(ConfigError, match=r"picture-scale: scale=most must be full, min-max, or a"):
        load_config("fedavg", ["data.picture-scale=most"])


def test_a_scale_in_a_message_is_one_that_fits() -> None:
    assert scale_in_words(1 / 4095) == "1/4095"
    for scale in (1 / 4095, 0.3, 2.0, 1e-5 / 3):
        assert scale_misfit(parsed_scale(scale_in_words(scale), source=""), scale) == ""
    assert "this data has scale=1/1023" in scale_misfit(1 / 1023, 1 / 4095)
