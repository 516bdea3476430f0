"""`python -m tests.hostile.stealth.honest`: how many updates of honest devices are refused.

A row has, over its seeds, the updates, those that were refused, the largest sum of harm of a device, beyond
which `leave-one-out` refuses it, and the mean accuracy in percent, also with `leave-one-out = 0`.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from edge_server.config.load import load_config
from edge_server.coordinator.validation.leave_one_out import LeaveOneOut, Loss, Sample
from edge_server.simulation.simulator import simulate
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import Quiet, history

PHOTOS = ("data.source=FashionMNIST", "samples-per-client=200")
DIGITS = ("data.source=digits",)
ROOM = ("data.source=csv:occupancy/datatraining.txt?label=Occupancy&ignore=date",)
FLEETS = {
    "FashionMNIST, Dirichlet 0.1": ((*PHOTOS, 'data.partition="dirichlet(0.1)"'), (3, 5)),
    "FashionMNIST, two shards each": ((*PHOTOS, 'data.partition="shards(2)"'), (3, 5)),
    "digits, Dirichlet 0.1": ((*DIGITS, 'data.partition="dirichlet(0.1)"'), (5, 10)),
    "digits, one example each": ((*DIGITS, "samples-per-client=1"), (5, 10)),
    "room, days": ((*ROOM, "data.partition=blocks"), (3, 5)),
    "room, one class each": ((*ROOM, 'data.partition="shards(1)"'), (3, 5)),
}
SEEDS = (61, 62, 63)


@dataclass(frozen=True)
class Result:
    """The last model's accuracy, the run's updates and those refused, and the largest sum of harm."""

    accuracy: float
    updates: int
    refused: int
    harm: float


def play(recipe: str, *words: str) -> Result:
    """Simulate a fleet of honest devices with the default training."""
    config = load_config(recipe, ["model.name=mlp", "deliver=none", "evaluate-every=20", *words])
    with tempfile.TemporaryDirectory() as folder, in_process():
        summary = simulate(config, out=Path(folder, "run"), watcher=Quiet(), export=False)
        lines = history(Path(folder, "run"))
    assert summary.test_accuracy is not None, summary.outcome
    refused = sum(len(line["rejected"]) for line in lines)
    updates = sum(len(line["completed"]) for line in lines) + refused
    harms = [line["harm"] for line in lines if line.get("harm")]
    return Result(summary.test_accuracy, updates, refused, _largest(harms, config.firewall.leave_one_out))


def _largest(harms: Sequence[Mapping[str, float]], allowed: float) -> float:
    """The largest sum that the harm of a device had in the run; 0 where it was not measured."""
    compare = LeaveOneOut(Sample(lambda params, similar: Loss(0.0), ignorant=1.0, macs=0.0), allowed)
    sums = [compare.totals(harms[:end]).values() for end in range(1, len(harms) + 1)]
    return max((total for totals in sums for total in totals), default=0.0)


def row(name: str, recipe: str, seeds: Sequence[int], words: Sequence[str]) -> str:
    """One row of the table."""
    stated, sizes = FLEETS[name]
    fleets = [(f"num-clients={size}", f"federation.seed={seed}") for size in sizes for seed in seeds]
    found = [play(recipe, *stated, *fleet, *words) for fleet in fleets]
    free = [play(recipe, *stated, *fleet, *words, "firewall.leave-one-out=0") for fleet in fleets]
    cells = (
        f"{name}, {' and '.join(map(str, sizes))} devices",
        sum(each.updates for each in found),
        sum(each.refused for each in found),
        f"{max(each.harm for each in found):.2f}",
        *(f"{100 * mean(each.accuracy for each in runs):.1f}" for runs in (found, free)),
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Play the fleets that the options choose, and print the table as it grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.stealth.honest", description=__doc__)
    parser.add_argument("--recipe", default="attending")
    parser.add_argument("--fleets", nargs="+", type=int, default=range(len(FLEETS)), metavar="NUMBER")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--set", nargs="+", default=(), metavar="KEY=VALUE", help="firewall.robust=true ...")
    parser.add_argument("--data-root", type=Path, default=Path("../shared/data"))
    args = parser.parse_args()
    words = (f"data-root={args.data_root}", *args.set)
    print("| fleet | updates | refused | largest sum of harm | accuracy | not compared |")
    print("| --- |" + " ---: |" * 5, flush=True)
    for number in args.fleets:
        print(row(list(FLEETS)[number], args.recipe, args.seeds, words), flush=True)


if __name__ == "__main__":
    main()
