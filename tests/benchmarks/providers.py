"""What a provider of onnxruntime gains on the shipped networks, and what it costs to choose.

    python -m tests.benchmarks providers            figures
    python -m tests.benchmarks.providers            the table of README.md (5 minutes)

Needs an environment whose onnxruntime has more than the CPU, such as that of `make test-providers`. Each
line is the trial that a device makes: the network with its initial weights, one thread, random inputs, in a
process of its own, the CPU and the provider in turns. The choice is timed from its call to its record.
"""

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime
import torch

from edge_client.inference.providers.choice import ProviderTrial
from edge_client.inference.providers.table import ANY_PROVIDER
from edge_client.inference.providers.trial import TOTAL_S, Use, settle_provider
from edge_client.models.build import build_model
from edge_client.models.registry import MODELS, entry
from schemas.values import ModelSpec
from tests.benchmarks.figure import Figure
from tests.benchmarks.machine import describe
from tests.benchmarks.options import Options
from tests.benchmarks.pruned import export_module

BATCHES = (1, 32)
TURNS = 3


@dataclass(frozen=True)
class Chosen:
    """The trials of one network with one batch, the chosen provider of each, and each choice's seconds."""

    network: str
    shape: tuple[int, ...]
    batch: int
    trials: tuple[ProviderTrial, ...]
    chosen: tuple[str, ...]
    seconds: tuple[float, ...]

    @property
    def speed(self) -> float:
        return statistics.median(trial.speed for trial in self.trials)


def figures(options: Options) -> list[Figure]:
    """How often the provider is worth it, and the seconds of a choice."""
    if not ANY_PROVIDER.accelerators():
        reason = "this onnxruntime has the CPU alone: .venv/providers has another (make test-providers)"
        return [Figure("providers", "seconds of a choice", "s", (), reason=reason)]
    names = ["two-nn"] if options.quick else [*MODELS.shipped]
    found = list(measured(names, turns=1 if options.quick else TURNS))
    detail = f"onnxruntime {onnxruntime.__version__}, {len(names)} networks, {BATCHES} examples, one thread"
    lines = []
    for batch in BATCHES:
        own = [one for one in found if one.batch == batch]
        name = f"{own[0].trials[0].provider} over the CPU, batches of {batch}: times as fast"
        lines.append(Figure("providers", name, "x", tuple(one.speed for one in own), detail=detail))
    seconds = tuple(second for one in found for second in one.seconds)
    lines.append(Figure("providers", "seconds of a choice", "s", seconds, target=TOTAL_S))
    return lines


def measured(names: Sequence[str], *, turns: int = TURNS) -> Iterator[Chosen]:
    for name in names:
        shape = entry(name).example_shape
        torch.manual_seed(0)
        spec = ModelSpec(name=name, input_shape=shape, num_classes=entry(name).example_outputs)
        data = export_module(build_model(spec).eval(), shape)
        for batch in BATCHES:
            yield _measured(name, shape, data, batch, turns)


def _measured(name: str, shape: tuple[int, ...], data: bytes, batch: int, turns: int) -> Chosen:
    trials, chosen, seconds = [], [], []
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(data)
            began = time.perf_counter()
            choice = settle_provider(path, hashlib.sha256(data).hexdigest(), ANY_PROVIDER, Use(1, batch))
            seconds.append(time.perf_counter() - began)
        assert choice is not None
        chosen.append(choice.provider)
        trials.append(choice.trials[0])
    return Chosen(name, shape, batch, tuple(trials), tuple(chosen), tuple(seconds))


def make_row(found: Chosen) -> str:
    """The table's row: of the trial with the median speed."""
    trial = sorted(found.trials, key=lambda trial: trial.speed)[len(found.trials) // 2]
    speeds = sorted(trial.speed for trial in found.trials)
    cells = (
        f"{found.network} {'x'.join(map(str, found.shape))}",
        str(found.batch),
        f"{trial.cpu_ms:.3f}",
        f"{trial.ms:.3f}",
        f"{found.speed:.2f} ({speeds[0]:.2f} to {speeds[-1]:.2f})",
        f"{max(trial.difference for trial in found.trials):.0e}",
        f"{trial.load_s:.2f}",
        f"{trial.warm_up_ms:.0f}",
        f"{trial.memory_bytes / 1e6:.0f}",
        f"{statistics.median(found.seconds):.1f}",
        max(found.chosen, key=found.chosen.count) if not trial.failure else trial.failure,
    )
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| network | batch | CPU ms | provider ms | times as fast | difference | load s | warm-up ms | memory MB "
    "| choice s | chosen |\n| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |"
)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS, help="(default: %(default)s)")
    args = parser.parse_args()
    print("{processor}, {cores} cores, {system}, load {load_before} before\n".format(**describe()))
    print(HEAD)
    for found in measured([*MODELS.shipped], turns=args.turns):
        print(make_row(found), flush=True)


if __name__ == "__main__":
    main()
