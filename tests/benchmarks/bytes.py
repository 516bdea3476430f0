"""Transferred bytes and accuracy per combination of codecs.

MNIST, Dirichlet 0.1 over 10 clients of 150 images, `two-nn`, five tiers (`heterofl`), 30 rounds of one epoch.
All runs have the same shares, initial weights, batches and tiers: only the codecs differ.
Bytes are everything that devices send, messages included, over those of float32 updates of full models
(`fedavg`), measured in the same way in the same run; so pruning is included. Accuracy is the mean of the
last ten tests, one every other round, on 2,000 images: with shares this different no single round is typical.
It is reported as points above the same recipe's accuracy with float32 both ways. Where 30 rounds would give
no more information there are two: full models send the same bytes in every round, and `int8` without `zstd`
has exactly the same numbers as `int8` with `zstd`.

`bytes` compares the default codecs, both ways, with float32; `bytes-all` measures every combination, one way
each.
"""

import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge_server.config.config import DEFAULT_DOWNLINK, DEFAULT_UPLINK, Config
from edge_server.config.load import check_config, read_recipe
from edge_server.config.test_data import merge_tables
from edge_server.simulation.simulator import simulate
from schemas.strategy import Component
from tests.benchmarks.figure import Figure
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
DOWNLINKS: Mapping[str, Sequence[Any]] = {
    "fp16": ("fp16",),
    "int8": ("int8",),
    "delta + int8 of 7 levels + zstd": ("delta", _int8(7), "zstd"),
}
"""Codecs of models to the devices; the updates are sent in float32."""


@dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    options: Options
    rounds: int


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
            "seed": 1,
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
        "simulation": {"workers": 2},
        "strategy": {"uplink": list(uplink), "downlink": list(downlink)},
    }
    return check_config(merge_tables(read_recipe(recipe), stated), "bytes")


def figures(options: Options) -> list[Figure]:
    """The default codecs, and float32."""
    setting = _setting(options)
    plain = run("heterofl", setting)
    up = next(name for name, codecs in UPLINKS.items() if _are(codecs, DEFAULT_UPLINK))
    down = next(name for name, codecs in DOWNLINKS.items() if _are(codecs, DEFAULT_DOWNLINK))
    ours = run("heterofl", setting, uplink=UPLINKS[up], downlink=DOWNLINKS[down])
    label, full = f"{up} up, {down} down, the default", _full(setting)
    return [
        *_upward(PLAIN, plain, plain, full, shipped=False),
        *_upward(label, ours, plain, full, shipped=True),
        _fewer_down(label, ours, plain),
    ]


def every(options: Options) -> list[Figure]:
    """All combinations."""
    setting = _setting(options)
    plain = run("heterofl", setting)
    found = [*_every_uplink(setting, plain), *_every_downlink(setting, plain)]
    return [replace(figure, area=EVERY) for figure in found]


def _setting(options: Options) -> Setting:
    return Setting(options, rounds=2 if options.quick else 30)


def _are(codecs: Sequence[Any], components: tuple[Component, ...]) -> bool:
    return tuple(map(Component.model_validate, codecs)) == components


def _full(setting: Setting) -> Taken:
    return run("fedavg", _short(setting))


def _every_uplink(setting: Setting, plain: Taken) -> Iterator[Figure]:
    """Bytes and accuracy of each uplink; `plain` is the run with float32 both ways."""
    full = _full(setting)
    for name, codecs in UPLINKS.items():
        own = _short(setting) if name in SAME_NUMBERS else setting
        ours = plain if name == PLAIN else run("heterofl", own, uplink=codecs)
        shipped = _are(codecs, DEFAULT_UPLINK)
        yield from _upward(f"{name}, the default" if shipped else name, ours, plain, full, shipped=shipped)


def _every_downlink(setting: Setting, plain: Taken) -> Iterator[Figure]:
    """Bytes and accuracy of each downlink, over float32 of the same sub-models."""
    for name, codecs in DOWNLINKS.items():
        ours = run("heterofl", setting, downlink=codecs)
        yield _fewer_down(f"{name} down", ours, plain)
        yield _points(f"{name} down", ours, plain, None)


def _fewer_down(label: str, ours: Taken, plain: Taken) -> Figure:
    fewer = plain.bytes_down / ours.bytes_down
    return Figure(AREA, f"{label}: times fewer bytes than {PLAIN} down", "", (fewer,))


def _short(setting: Setting) -> Setting:
    """The setting with two rounds: every other round ends with a test."""
    return replace(setting, rounds=2)


def _upward(name: str, ours: Taken, plain: Taken, full: Taken, *, shipped: bool) -> list[Figure]:
    detail = (
        f"{ours.bytes_up / 1e6:.2f} MB a round of 10 devices, {full.bytes_up / 1e6:.2f} MB of full models"
    )
    above, fewer = f"{name}: times fewer bytes up than {FULL}", full.bytes_up / ours.bytes_up
    bytes_up = Figure(AREA, above, "", (fewer,), FEWER if shipped else None, "at least", detail)
    if name in SAME_NUMBERS:
        return [bytes_up]
    if name == PLAIN:
        return [bytes_up, Figure(AREA, f"{PLAIN}: accuracy", "%", (100 * ours.accuracy,))]
    return [bytes_up, _points(name, ours, plain, -POINTS if shipped else None)]


def _points(label: str, ours: Taken, plain: Taken, target: float | None) -> Figure:
    points, name = 100 * (ours.accuracy - plain.accuracy), f"{label}: points of accuracy above {PLAIN}"
    return Figure(AREA, name, "", (points,), target, "at least", f"accuracy {100 * ours.accuracy:.1f}%")
