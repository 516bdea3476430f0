"""Attention between clients with similar data: the heat map of IGFL (Huang et al. 2021, figure 2).

alpha_ij is that of equation 11 with self-attention. A round's record holds only its mean over i, so this
module runs the rounds itself, in one process: all clients train, and Algorithm 3's weights change the model.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data import dataset, sources
from edge_client.data.partition import parse_partition, partition_indices
from edge_client.models.build import build_model
from edge_client.pruning.surgery import arrays_of, load_arrays
from edge_client.training.loop import single_thread, train
from edge_server.config.config import Config
from edge_server.config.test_data import read_source
from edge_server.simulation.experiments import cells, runner
from edge_server.simulation.experiments.findings import Findings, Table, spread, without_empty
from edge_server.strategy.aggregation import combiners, deltas
from edge_server.strategy.aggregation.updates import ClientUpdate, GlobalUpdate
from edge_server.strategy.weighting.igfl import softmax
from schemas.strategy import TrainingPlan
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import ModelSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Population:
    """The labels of K clients, and their attention to each other: alpha [K, K], the mean over the rounds."""

    labels: tuple[frozenset[int], ...]
    alpha: Floats

    @property
    def matching_rate(self) -> float | None:
        """Share of the most attended clients that have a label in common with the attending client."""
        return matching_rate(self.alpha, self.labels)


def matching_rate(alpha: Floats, labels: tuple[frozenset[int], ...]) -> float | None:
    """Our reading of section 5.4: in each row, the k darkest cells off the diagonal for k similar clients.

    alpha [K, K]; None if no two clients share a label.
    """
    matched = wanted = 0
    for i, own in enumerate(labels):
        others = [j for j in range(len(labels)) if j != i]
        alike = {j for j in others if own & labels[j]}
        darkest = sorted(others, key=lambda j, i=i: -alpha[i, j])[: len(alike)]  # type: ignore[misc]
        matched += len(alike & set(darkest))
        wanted += len(alike)
    return matched / wanted if wanted else None


def find_similarity(plan: cells.Plan, out: Path, *, progress: runner.Progress) -> Findings:
    """Compute each row's populations, one per seed; the heat map shows the first of each row."""
    found: dict[str, list[Population]] = {cell.row: [] for cell in plan.cells}
    runs = plan.runs
    for number, run in enumerate(runs, start=1):
        progress.begin(number, len(runs), run)
        try:
            with single_thread():
                population = _load_or_compute(run, out)
        except KeyboardInterrupt:
            return Findings((), notes=plan.notes, interrupted=True)
        found[run.cell.row].append(population)
        progress.end(number, run, text=f"matching rate {_rate(population.matching_rate)}", left_s=None)
    picture = "heat-map.png"
    _draw({row: populations[0] for row, populations in found.items()}, out / picture)
    return Findings(
        (without_empty(_table(plan, found)),),
        tuple(_record(row, populations) for row, populations in found.items()),
        {"populations": [_detail(row, each) for row, populations in found.items() for each in populations]},
        (picture,),
        plan.notes,
    )


_UNMAPPED = deltas.full_coverage(ChannelMap(groups={}, parameters={}))


def attend(config: Config) -> Population:
    data = read_source(config, sources.part_of(str(config.data.source), "train"))
    shares = _shares(config, data)
    shape, classes = data.input_shape, data.num_classes
    spec = ModelSpec(name=config.model.name, input_shape=shape, num_classes=classes)
    module = build_model(spec, seed=config.federation.seed)
    params, total = arrays_of(module), np.zeros((len(shares), len(shares)))
    scale = float(config.strategy.weighting.options.get("scale", 1.0))  # type: ignore[arg-type]
    for number in range(config.federation.rounds):
        updates = []
        for index, share in enumerate(shares):
            load_arrays(module, params)
            train(module, share, _training(config, number, index))
            updates.append(_update(index, arrays_of(module), params, len(share)))
        alpha = softmax(scale * combiners.dot_products(updates))
        total += alpha
        weights = alpha.mean(axis=0).astype(np.float32)
        moved = zip(weights, updates, strict=True)
        change = [{name: weight * array for name, array in update.delta.items()} for weight, update in moved]
        params = {name: array + sum(part[name] for part in change) for name, array in params.items()}
    labels = tuple(_labels_held(share) for share in shares)
    return Population(labels, total / config.federation.rounds)


def _labels_held(share: dataset.LabelledData) -> frozenset[int]:
    """The labels of at least 2 % of a client's examples; a shard's edge may add others."""
    found, counts = np.unique(share.labels, return_counts=True)
    return frozenset(int(label) for label, n in zip(found, counts, strict=True) if 50 * n >= len(share))


def _shares(config: Config, data: dataset.LabelledData) -> list[dataset.LabelledData]:
    partition, count = parse_partition(config.data.partition_spec), config.clients.num_clients
    indices = partition_indices(
        data.labels, partition, count=count, seed=config.federation.seed, origins=data.origins
    )
    rng = np.random.default_rng(config.federation.seed)
    return [data.subset(rng.permutation(part)[: config.data.samples_per_client]) for part in indices]


def _training(config: Config, number: int, index: int) -> TrainingPlan:
    seed = config.federation.seed * 1_000_003 + number * 1009 + index
    return TrainingPlan(**config.training.of_round(1).model_dump(), seed=seed)


def _update(index: int, after: Arrays, before: Arrays, examples: int) -> GlobalUpdate:
    delta = {name: array - before[name] for name, array in after.items()}
    source = ClientUpdate(f"{index:03}", SubModelSpec(), {"model": delta}, examples)
    return GlobalUpdate(source, delta, _UNMAPPED, _UNMAPPED)


def _load_or_compute(run: cells.CellRun, out: Path) -> Population:
    """The population from the file of an earlier call, or computed now."""
    path, config = out / "runs" / f"{run.folder}.npz", run.config
    text = config.to_toml()
    if path.exists():
        with np.load(path, allow_pickle=False) as kept:
            if str(kept["settings"]) == text:
                labels = tuple(frozenset(np.flatnonzero(row).tolist()) for row in kept["labels"])
                return Population(labels, kept["alpha"])
    population = attend(config)
    most = max(max(labels) for labels in population.labels)
    held = np.array([[label in labels for label in range(most + 1)] for labels in population.labels])
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, settings=text, labels=held, alpha=population.alpha)
    return population


def _table(plan: cells.Plan, found: dict[str, list[Population]]) -> Table:
    rows = []
    for cell in plan.cells:
        rates = spread([population.matching_rate for population in found[cell.row]])
        deviation = f" ± {100 * rates.deviation:.1f}" if rates and rates.deviation is not None else ""
        ours = f"{100 * rates.mean:.1f}{deviation}" if rates else ""
        best = max((population.matching_rate or 0.0 for population in found[cell.row]), default=0.0)
        paper = cell.paper.matching_rate if cell.paper else None
        printed = "" if paper is None else f"up to {paper:g}"
        rows.append((cell.row, ours, f"{100 * best:.1f}", printed, "; ".join(cell.notes)))
    heads = ("population", "matching rate (%)", "best population (%)", "paper (%)", "note")
    return Table("Matching rate", heads, tuple(rows))


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.1%}"


def _record(row: str, populations: list[Population]) -> dict[str, Any]:
    rates = spread([population.matching_rate for population in populations])
    return {
        "row": row,
        "populations": len(populations),
        "matching_rate": rates and rates.mean,
        "matching_rate_std": rates and rates.deviation,
    }


def _detail(row: str, population: Population) -> dict[str, Any]:
    labels = [sorted(own) for own in population.labels]
    alpha = population.alpha.round(5).tolist()
    return {"row": row, "labels": labels, "matching_rate": population.matching_rate, "alpha": alpha}


def _draw(shown: dict[str, Population], path: Path) -> None:
    from edge_server.simulation.experiments.plots import DPI, plt

    figure, axes = plt.subplots(
        1, len(shown), figsize=(5.2 * len(shown), 4.8), squeeze=False, layout="constrained"
    )
    for axis, (row, population) in zip(axes.flat, shown.items(), strict=True):
        image = axis.imshow(population.alpha, cmap="Blues")
        names = [",".join(str(label) for label in sorted(own)) for own in population.labels]
        axis.set_xticks(range(len(names)), names, rotation=60)
        axis.set_yticks(range(len(names)), names)
        axis.set(title=row, xlabel="client j, by its labels", ylabel="client i, by its labels")
        figure.colorbar(image, ax=axis, shrink=0.8, label="mean attention of i to j")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
