"""The exported files of every shipped network and tier, and inputs for them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.shapes import fit_data
from edge_client.data.sources import load_source
from edge_client.data.tasks.labels import in_task
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_client.inference.export.onnx import export_onnx, find_graph
from edge_client.models.build import build_model
from edge_client.models.registry import MODELS, entry
from edge_client.pruning.channel_graph.trace import trace
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.surgery import compact
from edge_client.training.evaluation import loss_of
from schemas.values import ModelSpec, Preprocessing, Resizing
from tests.edge_client.data.tasks.examples import examples
from tests.runtimes.measure import BATCHES

RATIOS = (0.7, 0.5, 0.3, 0.1, 0.0)  # of the tiers 1 to 5, as a federation has them by default
STEPS, BATCH, RATE = 40, 32, 0.02  # of a short training
SPREAD = 0.3  # of the weights that say boxes: with larger ones many scores are equal, and the order is chance
PHOTOS = 8  # in a step of a detector
FRAME = (3, 64, 96)  # of photos with boxes

DETECTOR = "detector:mobilenet-v2"
NETWORKS = (*MODELS, DETECTOR)
TASKS = {"autoencoder": "anomaly", DETECTOR: "detection"}
"""The tasks of networks; all others classify."""
DIGITS, COLOURS, RECORDINGS, ROOM, CELLS = "MNIST", "cifar10-subset", "fsdd", "occupancy", "bccd"
DATA = {
    "two-nn": DIGITS,
    "mlp": DIGITS,
    "speech-cnn": RECORDINGS,
    "cnn-1d": ROOM,
    "tcn": ROOM,
    "autoencoder": ROOM,
    DETECTOR: CELLS,
}
"""The data of networks; of all others it is `COLOURS`."""
STATISTICS = {DIGITS: ((0.1307,), (0.3081,)), COLOURS: ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))}
"""Mean and standard deviation of pixels from 0 to 1."""


@dataclass(frozen=True)
class File:
    """An exported file, and raw examples [32, ...] for it."""

    network: str
    tier: int
    path: Path
    images: np.ndarray


def write_files(folder: Path, data_root: Path, *, networks: Sequence[str] = ()) -> Iterator[File]:
    """Write the files of the networks (empty: all), `NETWORK-TIER.onnx`, and give each when it is there."""
    for name in networks or NETWORKS:
        data = in_task(read_data(name, data_root), TASKS.get(name, CLASSIFICATION.name), ())
        outputs = data.learning_task.outputs(data.num_classes, data.input_shape)
        spec = ModelSpec(name=name, input_shape=data.input_shape, num_classes=outputs)
        module = build_model(spec)
        train(module, data)
        if data.has_boxes:
            say_many(module)
        channel_map = trace(module, spec.input_shape).channel_map
        graph = find_graph(module, spec.input_shape)
        images = data.images[np.linspace(0, len(data) - 1, max(BATCHES)).astype(int)]
        for tier, ratio in enumerate(RATIOS, start=1):
            cut = prefix_spec(group_ratios(entry(name), ratio, channel_map), channel_map)
            path = folder / f"{name}-{tier}.onnx"
            export_onnx(
                compact(module, cut, channel_map),
                path,
                input_shape=spec.input_shape,
                preprocessing=data.preprocessing,
                provenance={"tier": str(tier)},
                sample=images[:8],
                graphs=[graph],
                task=data.task,
            )
            yield File(name, tier, path, images)


def read_data(network: str, root: Path) -> LabelledData:
    """The data of a network, or drawn examples where `root` has none."""
    kind = DATA.get(network, COLOURS)
    if not (root / kind).is_dir():
        return _drawn(network)
    if kind == CELLS:
        photos = load_source(f"voc:{root / CELLS}?side={max(FRAME)}", split="test")
        about = photos.preprocessing.model_copy(update={"resizing": Resizing(letterbox=True)})
        return fit_data(replace(photos, preprocessing=about), FRAME)
    if kind == ROOM:
        return _read_room(root / ROOM / "datatest.txt", rows=network == "autoencoder")
    if kind == COLOURS:
        arrays = np.load(root / COLOURS / "cifar10_subset.npz")
        data = make_labelled_data(arrays["x_test"].transpose(0, 3, 1, 2), arrays["y_test"].reshape(-1))
    elif kind == RECORDINGS:
        options = "name={label}_{speaker}_{index}&rate=8000&seconds=0.512&hop=none"
        return load_source(f"wav:{root / RECORDINGS / 'recordings'}?{options}")
    else:
        data = load_source(kind, data_root=root, split="test")
    mean, std = STATISTICS[kind]
    return _with(data, data.preprocessing.model_copy(update={"mean": mean, "std": std}))


def train(module: nn.Module, data: LabelledData) -> None:
    """A few steps of gradient descent, by a fixed seed."""
    generator, batch = np.random.default_rng(0), PHOTOS if data.has_boxes else BATCH
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
    module.train()
    for _ in range(STEPS):
        part = data.subset(generator.choice(len(data), min(batch, len(data)), replace=False))
        inputs = part.inputs()
        outputs, targets = module(torch.from_numpy(inputs)), torch.from_numpy(part.targets(inputs))
        loss = loss_of(data.task)(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    module.eval()


def say_many(detector: nn.Module) -> None:
    """Let it say boxes of all sizes and scores, which it has not learned after a few steps."""
    generator, head = torch.Generator().manual_seed(0), detector.get_submodule("head")
    for name in ("classes", "distances", "centreness"):
        nn.init.normal_(head.get_parameter(f"{name}.weight"), std=SPREAD, generator=generator)
    nn.init.constant_(head.get_parameter("classes.bias"), -2.0)


def _read_room(path: Path, *, rows: bool) -> LabelledData:
    """Windows [5, 64] of a room's readings a minute apart, or single rows [5]; occupied or not."""
    lines = [line.rstrip().split(",") for line in path.read_text().splitlines()[1:]]
    values = np.array([line[2:] for line in lines], np.float32)
    readings, occupied = values[:, :5], values[:, 5].astype(np.int64)
    about = Preprocessing(
        scale=1.0, mean=tuple(map(float, readings.mean(0))), std=tuple(map(float, readings.std(0)))
    )
    if rows:
        return make_labelled_data(readings, occupied, preprocessing=about)
    windows = np.lib.stride_tricks.sliding_window_view(readings, 64, axis=0)[::16]
    return make_labelled_data(np.ascontiguousarray(windows), occupied[63::16], preprocessing=about)


def _drawn(network: str) -> LabelledData:
    if network == DETECTOR:
        return examples(TASKS[network], 256)
    about, generator = entry(network), np.random.default_rng(0)
    images = generator.standard_normal((256, *about.example_shape), dtype=np.float32)
    return make_labelled_data(images, generator.integers(0, 10, 256))


def _with(data: LabelledData, about: Preprocessing) -> LabelledData:
    named = about.model_copy(update={"class_names": data.class_names})
    return replace(data, preprocessing=named)
