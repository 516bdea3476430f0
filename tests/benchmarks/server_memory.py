"""Memory that the server needs to close a round.

Each case is a separate process, forked from one that has imported everything that the server imports. It
reads its resident memory, creates the data that a server has at the end of a round (the model of 24,971,210
float32 numbers, 100 MB, the strategy's state, and updates on disk), and closes the round. The figure is the
growth of resident memory at its peak (`VmHWM`), in models. The old and the new model alone are 2; files are
read in pieces and use no memory of the process: updates, and arrays that a state stores with the model
(SCAFFOLD's control, an optimizer's moments, the last step). Updates have five tiers in turn (ratios 0.7, 0.5,
0.3, 0.1, 0). All updates of a tier are one file with many names (hard links): a round of 1,000 is 53 GB.

`mean` is measured with 1,000 clients. The others would take longer than all benchmarks together (a median
sorts, Krum multiplies every pair of updates), so their number of clients is smaller and given in the detail.
Only a block's share of each client and a few kB of names and paths grow with the number of clients, which a
smaller number shows as well. Flatness is the peak of the most clients over that of 10, both as growth.
`igfl-time` is left out: its state is a model per client, and closing keeps all of them in memory.
"""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from edge_client.pruning.index_sets import LazySlice
from edge_server.strategy.aggregation.array_stores import FileArrays, store_arrays
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups.rule import zeros
from edge_server.strategy.privacy.mechanism import Gaussian, initial_state
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import start_state
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import ComputedArrays
from schemas.tensors.files import FileGroups, FlatGroups, write_tensors
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.resident import peak_rss, rss

RATIOS = (0.7, 0.5, 0.3, 0.1, 0.0)
FEW = 10
MAX_MODELS = 3.0
MAX_GROWTH = 1.1
IMPORTED = ("edge_server.coordinator.coordinator", "dp_accounting")


@dataclass(frozen=True)
class Case:
    """A strategy, and the largest number of clients to measure."""

    spec: StrategySpec
    most: int
    groups: tuple[str, ...] = ("model",)
    moments: tuple[str, ...] = ()
    private: bool = False


@dataclass(frozen=True)
class Taken:
    """The result of one process: bytes of the model and of the growth, and the seconds of closing."""

    clients: int
    model: int
    growth: int
    seconds: float


def _pieces(*names: str) -> tuple[Component, ...]:
    return tuple(Component(name=name) for name in names)


CASES: dict[str, Case] = {
    "mean": Case(StrategySpec(), 1000),
    "overlap-mean": Case(
        StrategySpec(combiner=Component(name="overlap-mean"), groups=_pieces("overlap")), 100
    ),
    "median": Case(StrategySpec(combiner=Component(name="median")), 50),
    "trimmed-mean": Case(StrategySpec(combiner=Component(name="trimmed-mean")), 50),
    "krum": Case(StrategySpec(combiner=Component(name="krum")), 30),
    "igfl-self": Case(StrategySpec(weighting=Component(name="igfl-self")), 30),
    "fedrad": Case(StrategySpec(weighting=Component(name="fedrad")), 100),
    "adafl": Case(StrategySpec(selection=Component(name="attention")), 300),
    "attention-matching": Case(
        StrategySpec(transforms=_pieces("attention-matching", "fill-with-global")),
        50,
        groups=("model", "attention"),
    ),
    "normalised, late": Case(StrategySpec(transforms=_pieces("normalise-steps", "discount-staleness")), 300),
    "privacy": Case(StrategySpec(weighting=Component(name="equal")), 100, private=True),
    "scaffold": Case(
        StrategySpec(weighting=Component(name="equal"), groups=_pieces("control")),
        300,
        groups=("model", "control"),
    ),
    "momentum": Case(StrategySpec(server_optimizer=Component(name="momentum")), 100, moments=("velocity",)),
    "adam": Case(
        StrategySpec(server_optimizer=Component(name="adam")), 100, moments=("first-moment", "second-moment")
    ),
    "last-step": Case(StrategySpec(groups=_pieces("last-step")), 100),
}


def figures(options: Options) -> list[Figure]:
    """The peak in models and its flatness, for every case."""
    found: list[Figure] = []
    for name, (few, many) in measured(options).items():
        ratios = [count.growth / count.model for count in (few, many)]
        detail = (
            f"{few.clients} and {many.clients} clients: {ratios[0]:.2f} and {ratios[1]:.2f} models, "
            f"{few.seconds:.1f} and {many.seconds:.1f} s"
        )
        raw = {"few": asdict(few), "many": asdict(many)}
        found.append(
            Figure(
                "server memory",
                f"{name}: peak while closing",
                "models",
                (max(ratios),),
                MAX_MODELS,
                detail=detail,
                raw=raw,
            )
        )
        found.append(
            Figure(
                "server memory",
                f"{name}: {many.clients} clients over {few.clients}",
                "",
                (ratios[1] / ratios[0],),
                MAX_GROWTH,
            )
        )
    return found


def measured(options: Options) -> dict[str, tuple[Taken, Taken]]:
    """Measure each case with few and with many clients, two processes at a time, the longest cases first."""
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as place:
        files = Path(place)
        sizes = {name: (2, 4) if options.quick else (FEW, case.most) for name, case in CASES.items()}
        prepare(files, max(many for _, many in sizes.values()), small=options.quick)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(IMPORTED))
        taken: dict[str, list[Future[Taken]]] = {}
        with ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=1) as pool:
            for name, both in sorted(sizes.items(), key=lambda item: -item[1][1]):
                taken[name] = [pool.submit(take, name, files, size) for size in both]
            return {name: (taken[name][0].result(), taken[name][1].result()) for name in CASES}


def prepare(folder: Path, clients: int, *, small: bool) -> None:
    """Write the channel map and a file per tier, and a link to it per client."""
    from edge_client.models.build import build_model
    from edge_client.pruning.channel_graph.trace import trace_channels
    from edge_client.pruning.channel_selection import prefix_spec
    from schemas.values import ModelSpec

    name = "mlp" if small else "tests.benchmarks.networks:large"
    spec = ModelSpec(name=name, input_shape=(1, 28, 28), num_classes=10)
    channel_map = trace_channels(build_model(spec, seed=0), spec.input_shape)
    (folder / "channel-map.json").write_text(channel_map.model_dump_json())
    for tier, ratio in enumerate(RATIOS):
        sub_model = prefix_spec(dict.fromkeys(channel_map.groups, ratio), channel_map)
        (folder / f"tier-{tier}.json").write_text(sub_model.model_dump_json())
        held = LazySlice(_drawn(channel_map, tier), sub_model, channel_map)
        with (folder / f"tier-{tier}.safetensors").open("wb") as file:
            write_tensors(file, FlatGroups({"model": held, "control": held}))
    for number in range(clients):
        os.link(folder / f"tier-{number % len(RATIOS)}.safetensors", folder / f"c{number:04}.safetensors")


def _drawn(channel_map: ChannelMap, seed: int) -> ComputedArrays:
    """Small random changes of every parameter; the same rows have the same values in every call."""
    kinds = {n: (np.dtype(np.float32), layout.shape) for n, layout in channel_map.parameters.items()}

    def rows(name: str, start: int, stop: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        shape = kinds[name][1]
        random = np.random.default_rng((seed, start, len(name)))
        return 0.01 * random.standard_normal((stop - start, *shape[1:]), np.float32)

    return ComputedArrays(kinds, rows)


def take(name: str, folder: Path, clients: int) -> Taken:
    """Close a round of `clients` clients in this process."""
    case = CASES[name]
    before = rss() or 0
    channel_map = ChannelMap.model_validate_json((folder / "channel-map.json").read_text())
    strategy = make_strategy(case.spec, RATIOS)
    drawn = _drawn(channel_map, 99)
    params = {name: drawn[name] for name in drawn}
    keep = partial(FileArrays, folder)
    state = start_state(strategy, params, keep=keep)
    moments = {name: store_arrays(zeros(params), keep) for name in case.moments}
    state = replace(state, server_optimizer=moments)
    if case.private:
        strategy = replace(strategy, privacy=Gaussian())
        state = replace(state, privacy=initial_state(Gaussian(), bytes(32)))
    updates = list(_updates(case, folder, clients, channel_map))
    known = [Client(update.client, 1, update.examples) for update in updates]
    began = time.perf_counter()
    after = close_round(strategy, state, updates, channel_map, clients=known, keep=keep)
    seconds, peak = time.perf_counter() - began, peak_rss() or 0
    if not all(np.isfinite(array).all() for array in after.params.values()):
        raise RuntimeError(f"{name}: the model is not finite")
    size = sum(array.nbytes for array in params.values())
    return Taken(clients, size, peak - before, seconds)


def _updates(case: Case, folder: Path, clients: int, channel_map: ChannelMap) -> Iterator[ClientUpdate]:
    for number in range(clients):
        spec = SubModelSpec.model_validate_json((folder / f"tier-{number % len(RATIOS)}.json").read_text())
        sent = FileGroups(folder / f"c{number:04}.safetensors")
        groups = {group: sent[group] for group in case.groups if group in sent}
        if "attention" in case.groups:
            random = np.random.default_rng(number)
            layers = {layer: g.channels for g in channel_map.groups.values() for layer in g.layers}
            groups["attention"] = {n: random.random(c).astype(np.float32) for n, c in layers.items()}  # type: ignore[assignment]
        metrics = {"steps": 5.0 + number % 3, "staleness": number % 2, "accuracy": 0.5, "received_loss": 1.0}
        yield ClientUpdate(f"c{number:04}", spec, groups, 10 + number, metrics)
