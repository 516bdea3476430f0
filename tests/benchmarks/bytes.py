"""Transferred bytes and accuracy per combination of codecs: `python -m tests.benchmarks.bytes` has options.

MNIST, Dirichlet 0.1 over 10 clients of 150 images, `two-nn`, five tiers (`heterofl`), 30 rounds of one epoch.
All runs of a seed have the same shares, initial weights, batches and tiers: only the codecs differ.
Bytes are everything that devices send, messages included, over those of float32 updates of full models
(`fedavg`), measured in the same way in the same run; so pruning is included. Accuracy is the mean of the
last ten tests, one every other round, on 2,000 images: with shares this different no single round is typical.
It is reported as points above the same recipe's accuracy with float32 both ways. Where 30 rounds would give
no more information there are two: full models send the same bytes in every round, and `int8` without `zstd`
has exactly the same numbers as `int8` with `zstd`.

`bytes` compares the default codecs, both ways, with float32; `bytes-all` measures every combination, one way
each.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge_server.config.config import DEFAULT_DOWNLINK, DEFAULT_UPLINK, Config
from edge_server.config.load import check_config, read_recipe
from edge_server.config.test_data import merge_tables
from edge_server.simulation.simulator import simulate
from schemas.strategy import Component
from tests.benchmarks.figure import Figure, table
from tests.benchmarks.options import Options
from tests.benchmarks.virtual_devices import Rounds

AREA, EVERY = "bytes", "bytes, every codec"
FEWER, POINTS = 12, 0.5
LAST_TESTS = 10
FULL, PLAIN = "float32 of full models", "float32"


def _int8(levels: int) -> dict[str, Any]:
    return {"name": "int8", "levels": levels}


UPLINKS: Mapping[str, Sequence[Any]] = {
    PLAIN: (),
    "fp16": ("fp16",),
    "int8": ("int8",),
    "int8 + zstd": ("int8", "zstd"),
    "int8 of 7 levels + zstd": (_int8(7), "zstd"),
    "int8 of 3 levels + zstd": (_int8(3), "zstd"),
    "int8 of 1 level + zstd": (_int8(1), "zstd"),
    "top-k 5% + int8 + zstd": ({"name": "top-k", "share": 0.05}, "int8", "zstd"),
}
SAME_NUMBERS = frozenset({"int8"})
"""Combinations whose accuracy equals that of another combination."""
CHANGES = "delta + int8 of 7 levels + zstd"
DOWNLINKS: Mapping[str, Sequence[Any]] = {
    "zstd": ("zstd",),
    "fp16": ("fp16",),
    "int8": ("int8",),
    "int8 + zstd": ("int8", "zstd"),
    "delta + zstd": ("delta", "zstd"),
    "delta + fp16 + zstd": ("delta", "fp16", "zstd"),
    "delta + int8 + zstd": ("delta", "int8", "zstd"),
    CHANGES: ("delta", _int8(7), "zstd"),
}
"""Codecs of models to the devices; the updates are sent in float32."""
USUAL_DOWN = ("fp16", "int8", CHANGES)
"""Downlinks measured by default."""


@dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    options: Options
    seed: int
    rounds: int
    workers: int


@dataclass(frozen=True)
class Taken:
    """One run: bytes up and down per round, and the final accuracy."""

    bytes_up: float
    bytes_down: float
    accuracy: float


def run(recipe: str, setting: Setting, *, uplink: Sequence[Any] = (), downlink: Sequence[Any] = ()) -> Taken:
    """Simulate one combination."""
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=setting.options.folder) as folder:
        out = Path(folder) / "run"
        summary = simulate(config(recipe, uplink, downlink, setting), out=out, watcher=Rounds(), export=False)
        if summary.outcome != "finished":
            raise RuntimeError(f"the simulation has {summary.outcome}: {summary.detail}")
        lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    tests = [line["test_accuracy"] for line in lines if line["test_accuracy"] is not None]
    up, down = summary.uplink_bytes / len(lines), summary.downlink_bytes / len(lines)
    return Taken(up, down, statistics.fmean(tests[-LAST_TESTS:]))


def config(recipe: str, uplink: Sequence[Any], downlink: Sequence[Any], setting: Setting) -> Config:
    """The configuration of one combination."""
    quick = setting.options.quick
    stated = {
        "federation": {
            "seed": setting.seed,
            "rounds": setting.rounds,
            "deliver": "none",
            "evaluate-every": 2,
            "evaluate-tiers-every": 1_000_000,
        },
        "clients": {"num-clients": 10, "deadline-s": 1e6},
        "data": {
            "source": "MNIST",
            "data-root": str(setting.options.data_root),
            "partition": "dirichlet",
            "alpha": 0.1,
            "samples-per-client": 20 if quick else 150,
            "test-samples": 100 if quick else 2000,
        },
        "model": {"name": "two-nn"},
        "training": {"learning-rate": 0.05, "batch-size": 20, "local-epochs": 1},
        "simulation": {"workers": setting.workers},
        "strategy": {"uplink": list(uplink), "downlink": list(downlink)},
    }
    return check_config(merge_tables(read_recipe(recipe), stated), "bytes")


def figures(options: Options) -> list[Figure]:
    """The default codecs, and float32."""
    settings = _settings(options)
    plain = [run("heterofl", setting) for setting in settings]
    up = next(name for name, codecs in UPLINKS.items() if _are(codecs, DEFAULT_UPLINK))
    down = next(name for name, codecs in DOWNLINKS.items() if _are(codecs, DEFAULT_DOWNLINK))
    ways = {"uplink": UPLINKS[up], "downlink": DOWNLINKS[down]}
    ours, full = [run("heterofl", setting, **ways) for setting in settings], _full(settings)
    label = f"{up} up, {down} down, the default"
    return [
        *_upward(PLAIN, plain, plain, full, shipped=False),
        *_upward(label, ours, plain, full, shipped=True),
        _fewer_down(label, ours, plain),
    ]


def every(options: Options) -> list[Figure]:
    """All combinations."""
    settings = _settings(options)
    plain = [run("heterofl", setting) for setting in settings]
    found = [*upward(settings, plain, UPLINKS), *downward(settings, plain, USUAL_DOWN)]
    return [replace(figure, area=EVERY) for figure in found]


def _settings(options: Options) -> list[Setting]:
    return [Setting(options, seed=1, rounds=2 if options.quick else 30, workers=2)]


def _are(codecs: Sequence[Any], components: tuple[Component, ...]) -> bool:
    return tuple(map(Component.model_validate, codecs)) == components


def _full(settings: Sequence[Setting]) -> list[Taken]:
    return [run("fedavg", _short(setting)) for setting in settings]


def upward(settings: Sequence[Setting], plain: Sequence[Taken], names: Iterable[str]) -> list[Figure]:
    """Bytes and accuracy of the named uplinks; `plain` are the runs with float32 both ways."""
    full, found = _full(settings), []
    for name in names:
        short = name in SAME_NUMBERS
        ours = [
            run("heterofl", _short(setting) if short else setting, uplink=UPLINKS[name])
            if name != PLAIN
            else known
            for setting, known in zip(settings, plain, strict=True)
        ]
        shipped = _are(UPLINKS[name], DEFAULT_UPLINK)
        label = f"{name}, the default" if shipped else name
        found += _upward(label, ours, plain, full, shipped=shipped)
    return found


def downward(settings: Sequence[Setting], plain: Sequence[Taken], names: Iterable[str]) -> list[Figure]:
    """Bytes and accuracy of the named downlinks, over float32 of the same sub-models."""
    found = []
    for name in names:
        ours = [run("heterofl", setting, downlink=DOWNLINKS[name]) for setting in settings]
        found += [_fewer_down(f"{name} down", ours, plain), _points(f"{name} down", ours, plain, None)]
    return found


def _fewer_down(label: str, ours: Sequence[Taken], plain: Sequence[Taken]) -> Figure:
    fewer = tuple(its.bytes_down / mine.bytes_down for its, mine in zip(plain, ours, strict=True))
    return Figure(AREA, f"{label}: times fewer bytes than {PLAIN} down", "", fewer)


def _short(setting: Setting) -> Setting:
    """The setting with two rounds: every other round ends with a test."""
    return replace(setting, rounds=2)


def _upward(
    name: str, ours: Sequence[Taken], plain: Sequence[Taken], full: Sequence[Taken], *, shipped: bool
) -> list[Figure]:
    fewer = tuple(its.bytes_up / mine.bytes_up for its, mine in zip(full, ours, strict=True))
    megabytes, whole = (taken[0].bytes_up / 1e6 for taken in (ours, full))
    detail = f"{megabytes:.2f} MB a round of 10 devices, {whole:.2f} MB of full models"
    above = f"{name}: times fewer bytes up than {FULL}"
    bytes_up = Figure(AREA, above, "", fewer, FEWER if shipped else None, "at least", detail)
    if name in SAME_NUMBERS:
        return [bytes_up]
    if name == PLAIN:
        accuracies = tuple(100 * outcome.accuracy for outcome in ours)
        return [bytes_up, Figure(AREA, f"{PLAIN}: accuracy", "%", accuracies)]
    return [bytes_up, _points(name, ours, plain, -POINTS if shipped else None)]


def _points(label: str, ours: Sequence[Taken], plain: Sequence[Taken], target: float | None) -> Figure:
    points = tuple(100 * (mine.accuracy - its.accuracy) for mine, its in zip(ours, plain, strict=True))
    accuracies = ", ".join(f"{100 * outcome.accuracy:.1f}%" for outcome in ours)
    name = f"{label}: points of accuracy above {PLAIN}"
    return Figure(AREA, name, "", points, target, "at least", f"accuracy {accuracies}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path("../shared/data"), help="folder with MNIST")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=list(UPLINKS), default=list(UPLINKS))
    parser.add_argument("--down", nargs="*", choices=list(DOWNLINKS), help="codecs of models to measure")
    args = parser.parse_args()
    settings = [Setting(Options(args.data_root), seed, args.rounds, args.workers) for seed in args.seeds]
    plain = [run("heterofl", setting) for setting in settings]
    usual = USUAL_DOWN if len(args.only) == len(UPLINKS) else ()
    down = usual if args.down is None else args.down
    print(table([*upward(settings, plain, args.only), *downward(settings, plain, down)]))


if __name__ == "__main__":
    main()
