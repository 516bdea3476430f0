"""Benefit of pruning on the device: the cost of each tier's file in onnxruntime, compared with its MACs.

    python -m tests.benchmarks pruned               figures
    python -m tests.benchmarks.pruned               the table of README.md (4 minutes at most)

Per network and tier: parameters, multiply-accumulates (MACs), size, latency as fp32 and as int8 (one image,
one thread), memory of a process that runs it; with the papers' exact counts of channels and with counts
rounded up to a multiple of 8 (`[tiers] keep-multiple`). All files of a network take turns; each turn takes
the best of a few runs, and every ratio compares two latencies of the same turn.

Weights are the initial ones: onnxruntime's latency does not depend on them. torch's older exporter writes the
files in one second instead of the ten seconds of the exporter that devices use; once onnxruntime has
optimised the graphs, both consist of the same operators and have the same latency.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.quantization.quantize import quantise_model
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.surgery import compact, count_macs, parameter_count
from schemas.values import ModelSpec
from tests.benchmarks.figure import Figure
from tests.benchmarks.machine import describe
from tests.benchmarks.options import Options

NETWORKS = (
    ("two-nn", (1, 28, 28)),
    ("resnet56", (3, 32, 32)),
    ("mobilenet-v2", (3, 32, 32)),
    ("mobilenet-v2", (3, 96, 96)),
)
RATIOS = (0.7, 0.5, 0.3, 0.1, 0.0)
MULTIPLES = (1, 8)
TURNS, RUNS = 15, 5
TARGET_PERCENT = 25.0


@dataclass(frozen=True)
class Tier:
    """One sub-model of a network; its channel counts are rounded up to a multiple of `multiple`."""

    number: int
    ratio: float
    multiple: int
    parameters: int
    macs: int
    data: bytes
    int8: bytes

    @property
    def whole(self) -> bool:
        """Whether it is the full network."""
        return self.ratio == 0


@dataclass(frozen=True)
class Timed:
    """A tier with its milliseconds per turn, as fp32 and as int8, and the memory of its process."""

    tier: Tier
    fp32: tuple[float, ...]
    int8: tuple[float, ...]
    rss_bytes: int


def figures(options: Options) -> list[Figure]:
    """The deviation of tier 1's latency, relative to the full network, from its share of MACs."""
    found = []
    for name, shape in NETWORKS[:1] if options.quick else NETWORKS:
        timed = measured(name, shape, turns=2 if options.quick else TURNS)
        full = next(timing for timing in timed if timing.tier.whole)
        found += [
            _figure(f"{name} {shape[-1]}x{shape[-1]}", timing, full)
            for timing in timed
            if timing.tier.number == 1
        ]
    return found


def _figure(name: str, timing: Timed, full: Timed) -> Figure:
    share = timing.tier.macs / full.tier.macs
    ratios = [mine / its for mine, its in zip(timing.fp32, full.fp32, strict=True)]
    counts = "exact counts" if timing.tier.multiple == 1 else f"multiples of {timing.tier.multiple}"
    return Figure(
        "pruned",
        f"{name}, tier 1, {counts}: latency off MACs",
        "%",
        tuple(abs(ratio / share - 1) * 100 for ratio in ratios),
        target=TARGET_PERCENT,
        detail=f"latency {statistics.median(ratios):.2f} of the full network's, MACs {share:.2f}; "
        f"{statistics.median(timing.fp32):.3f} ms of {statistics.median(full.fp32):.3f} ms",
        reason="README.md, 'Pruned models on the device', explains the latency",
        raw={"ratios": ratios, "macs_share": share},
    )


def measured(name: str, shape: tuple[int, ...], *, turns: int = TURNS) -> list[Timed]:
    """Time every tier of a network."""
    tiers = list(_tiers(name, shape))
    fp32 = [_loaded(tier.data) for tier in tiers]
    int8 = [_loaded(tier.int8) for tier in tiers]
    times = _turns([*fp32, *int8], shape, turns)
    return [
        Timed(tier, times[index], times[len(tiers) + index], _resident(tier.data))
        for index, tier in enumerate(tiers)
    ]


def _tiers(name: str, shape: tuple[int, ...]) -> Iterator[Tier]:
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=10)).eval()
    channel_map = trace_channels(module, shape)
    seen: set[tuple[int, int]] = set()
    for multiple in MULTIPLES:
        for number, ratio in enumerate(RATIOS, start=1):
            ratios = group_ratios(replace(entry(name), multiple=multiple), ratio, channel_map)
            smaller = compact(module, prefix_spec(ratios, channel_map), channel_map).eval()
            size = (number, parameter_count(smaller))
            # Rounding does not change exact counts that are already multiples.
            if size not in seen:
                seen.add(size)
                data = export_module(smaller, shape)
                inputs = np.random.default_rng(0).standard_normal((4, *shape), dtype=np.float32)
                eight = quantise_model(data, inputs, {})
                yield Tier(number, ratio, multiple, size[1], count_macs(smaller, shape), data, eight)


def export_module(module: torch.nn.Module, shape: tuple[int, ...]) -> bytes:
    """The module's ONNX file, with a free batch axis."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            module,
            (torch.zeros(2, *shape),),
            str(path),
            dynamo=False,
            opset_version=18,
            input_names=["input"],
            output_names=["logits"],
            dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}},
        )
        return _plain(path)


def _plain(path: Path) -> bytes:
    """The file without the nodes between weights and layers, which the quantiser rejects."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path.with_name("plain.onnx"))
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return path.with_name("plain.onnx").read_bytes()


def _loaded(data: bytes) -> LoadedModel:
    return load_model(Path("model.onnx"), threads=1, data=data)


def _turns(models: Sequence[LoadedModel], shape: tuple[int, ...], turns: int) -> list[tuple[float, ...]]:
    """Milliseconds per turn of each model: the best of its runs in that turn."""
    inputs = np.random.default_rng(0).standard_normal((1, *shape), dtype=np.float32)
    taken: list[list[float]] = [[] for _ in models]
    for turn in range(turns + 1):
        for model, times in zip(models, taken, strict=True):
            best = min(_seconds(model, inputs) for _ in range(RUNS))
            # The first turn warms up.
            if turn:
                times.append(best * 1e3)
    return [tuple(times) for times in taken]


def _seconds(model: LoadedModel, inputs: np.ndarray) -> float:
    began = time.perf_counter()
    model.run(inputs)
    return time.perf_counter() - began


def _resident(data: bytes) -> int:
    """The resident memory reported by `edge-client bench`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        words = ["bench", str(path), "--threads", "1", "--seconds", "0.05", "--format", "json"]
        reported = subprocess.check_output([sys.executable, "-m", "edge_client.cli.main", *words], text=True)
    return int(json.loads(reported)["results"][0]["rss_bytes"])


def rows(name: str, shape: tuple[int, ...], timed: Sequence[Timed]) -> Iterator[str]:
    """The table's rows of one network."""
    full = next(timing for timing in timed if timing.tier.whole)
    for timing in timed:
        tier, share = timing.tier, timing.tier.macs / full.tier.macs
        ratios = sorted(mine / its for mine, its in zip(timing.fp32, full.fp32, strict=True))
        ratio = statistics.median(ratios)
        cells = (
            f"{name} {shape[-1]}x{shape[-1]}",
            str(tier.number),
            "exact" if tier.multiple == 1 else f"x{tier.multiple}",
            f"{tier.parameters:,}",
            f"{tier.macs / 1e6:.2f} M",
            f"{len(tier.data) / 1e6:.2f} MB",
            f"{len(tier.int8) / 1e6:.2f} MB",
            f"{statistics.median(timing.fp32):.3f}",
            f"{statistics.median(timing.int8):.3f}",
            f"{timing.rss_bytes / 1e6:.0f}",
            f"{share:.2f}",
            f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            f"{(ratio / share - 1) * 100:+.0f}%",
        )
        yield f"| {' | '.join(cells)} |"


HEAD = (
    "| network | tier | channels | parameters | MACs | fp32 file | int8 file | fp32 ms | int8 ms | RSS MB "
    "| MACs share | latency share | off |\n"
    "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |"
)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS, help="(default: %(default)s)")
    args = parser.parse_args()
    reported = describe()
    print("{processor}, {cores} cores, {system}, load {load_before} before\n".format(**reported))
    print(HEAD)
    for name, shape in NETWORKS:
        for line in rows(name, shape, measured(name, shape, turns=args.turns)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
