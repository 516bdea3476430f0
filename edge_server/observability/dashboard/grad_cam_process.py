"""Grad-CAM (Selvaraju et al. 2017) of test images with the newest model, as PNGs.

A process of its own that prints JSON: torch's threads and random numbers belong to the run, whose bits must
not depend on whether somebody opens the page.
"""

import base64
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from edge_client.data.classes import in_classes
from edge_client.data.dataset import LabelledData
from edge_client.models import build, fixed_state, registry
from edge_client.pruning import index_sets, surgery
from edge_client.pruning.channel_selection import group_ratios
from edge_server.config import load, test_data
from edge_server.config.config import Config
from edge_server.observability.dashboard.run_reader import newest_version
from edge_server.observability.grad_cam import grad_cam
from edge_server.storage.run_folder import RunFolder, read_fixed
from edge_server.strategy.pruning.pruners import Evidence
from schemas.errors import ConfigError, EdgeError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.tensors.files import FileGroups
from schemas.values import Preprocessing

MAX_OPAQUE = 200  # Maximum opacity of the overlay (of 255), so that the picture stays visible
WHOLE = 0  # The global model, in place of a tier


def grad_cam_value(run: Path, tier: int, count: int) -> dict[str, Any]:
    """The value of `/api/gradcam` for `count` test images; raises `ConfigError` where there can be none."""
    config = load.load_config(str(run / "federation.toml"))
    data = test_data.load_test_data(config)
    version = newest_version(RunFolder(run))
    if data is None:
        raise ConfigError("the federation file names no test data ([data] source)")
    if version is None:
        raise ConfigError("there is no model yet")
    if data.labels.ndim > 1:
        raise ConfigError("Grad-CAM shows what decides for a picture's class, and this model gives none")
    data = _in_the_models_classes(data, version)
    chosen = data.subset(one_of_each_class(data, count))
    module = tier_model(config, data, version, tier)
    inputs = torch.from_numpy(chosen.inputs())
    if inputs.ndim != 4:
        raise ConfigError("Grad-CAM needs images, and this model's inputs are none")
    with torch.no_grad():
        module.eval()
        shares = torch.softmax(module(inputs), dim=1)
    confidence, predicted = shares.max(dim=1)
    heat = grad_cam(module, inputs, predicted)
    names = data.class_names
    scale = data.preprocessing.scale
    return {
        "tier": tier,
        "round": int(version.name.split("-")[1]),
        "images": [
            {
                "label": names[chosen.labels[place]],
                "predicted": names[int(predicted[place])],
                "confidence": float(confidence[place]),
                "image": data_url(picture(chosen.images[place], scale)),
                "heat": data_url(overlay(heat[place])),
            }
            for place in range(len(chosen))
        ],
    }


def _in_the_models_classes(data: LabelledData, version: Path) -> LabelledData:
    """The server's examples with labels in the class order of this model version."""
    manifest = json.loads((version / "manifest.json").read_bytes())
    names = Preprocessing.model_validate(manifest.get("preprocessing", {})).class_names
    return in_classes(data, names) if names else data


def one_of_each_class(data: LabelledData, count: int) -> NDArray[np.intp]:
    """Indices of `count` examples: the first of each class, then the second of each, and so on."""
    turns = np.zeros(len(data), dtype=np.int64)
    for label in range(data.num_classes):
        own = np.flatnonzero(data.labels == label)
        turns[own] = np.arange(len(own))
    return np.lexsort((data.labels, turns))[:count]


def _tier_spec(
    config: Config, version: Path, tier: int, channels: ChannelMap, params: Arrays
) -> SubModelSpec:
    """The sub-model that the version names for a tier; computed for versions that name none."""
    tiers = json.loads((version / "manifest.json").read_bytes()).get("tiers", {})
    if str(tier) in tiers:
        return SubModelSpec.model_validate(tiers[str(tier)])
    network = replace(registry.entry(config.model.name), multiple=config.tiers.keep_multiple)
    ratios = group_ratios(network, config.tiers.ratios[tier - 1], channels)
    return config.make_strategy().pruner.tier(ratios, channels, Evidence(ordered=True, params=params))


def tier_model(config: Config, data: LabelledData, version: Path, tier: int) -> nn.Module:
    """The sub-model of a tier (0: the global model) of a version in the run folder."""
    channels = ChannelMap.model_validate_json((version / "channel-map.json").read_bytes())
    params = FileGroups(version / "state.safetensors")["model"]
    spec = SubModelSpec()
    if tier != WHOLE:
        if not 1 <= tier <= len(config.tiers.ratios):
            raise ConfigError(f"there is no tier {tier}: there are 1 to {len(config.tiers.ratios)}")
        spec = _tier_spec(config, version, tier, channels, params)
    whole = build.build_blank(test_data.model_spec(config, data))
    fixed_state.fill_fixed(whole, read_fixed(version))
    module = surgery.cut_down(whole, spec, channels)
    surgery.load_arrays(module, index_sets.extract(params, spec, channels))
    return module


def picture(pixels: NDArray[Any], scale: float) -> Image.Image:
    """An example [C, H, W] with values up to `scale` as an image: in colour, or its mean in grey."""
    levels = np.clip(pixels.astype(np.float32) / scale * 255, 0, 255)
    if len(levels) == 3:
        return Image.fromarray(np.moveaxis(levels, 0, -1).round().astype(np.uint8))
    return Image.fromarray(levels.mean(axis=0).round().astype(np.uint8))


def overlay(heat: NDArray[Any]) -> Image.Image:
    """Heat [H, W] from 0 to 1 as an overlay: transparent at 0, red, yellow at 1."""
    colours = np.zeros((*heat.shape, 4), dtype=np.uint8)
    colours[..., 0] = 255
    colours[..., 1] = (heat * 255).round()
    colours[..., 3] = (heat * MAX_OPAQUE).round()
    return Image.fromarray(colours)


def data_url(image: Image.Image) -> str:
    written = io.BytesIO()
    image.save(written, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"


def main(words: list[str]) -> int:
    """Print the images for RUN TIER COUNT; on failure print the reason to standard error and return 2."""
    run, tier, count = words
    try:
        print(json.dumps(grad_cam_value(Path(run), int(tier), int(count))))
    except (EdgeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
