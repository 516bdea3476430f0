"""`python -m tests.alone`: fleets of 2, 3 and 5 devices, and the share of them that end at or above alone.

A device is tested on its own mix of classes. It is at or above alone if its accuracy is not below that of
the model which it trained from the run's first weights for the run's epochs, on its data alone.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from tests.alone.fleets import MODELS, Accuracies, play

SIZES = (2, 3, 5)
PARTITIONS = ("dirichlet(0.3)", "shards(2)")
SEEDS = (31, 32, 33)
NETWORKS = {
    "defaults (`two-nn`)": (),
    "`mlp`": ("model.name=mlp",),
    "`cnn`": ("model.name=cnn",),
    "`mlp`, SGD 0.05, 5 epochs, 10 rounds": (
        "model.name=mlp",
        "local-epochs=5",
        "learning-rate=0.05",
        "rounds=10",
    ),
    "`mlp`, SGD 0.01, 1 epoch, 10 rounds": (
        "model.name=mlp",
        "local-epochs=1",
        "learning-rate=0.01",
        "rounds=10",
    ),
}
HEAD = (
    "| network | partition | devices | at or above alone: shared / default / asked | within a point | "
    "own classes: shared / default / asked / alone | all classes: shared / default / asked / alone |"
)


def row(network: str, partition: str, found: Sequence[Mapping[str, Accuracies]]) -> str:
    """One row of the table, in percent."""

    def at_least(margin: float) -> str:
        leads = [[each[name][0] - each["alone"][0] + margin >= 0 for each in found] for name in MODELS[:-1]]
        return " / ".join(str(sum(lead)) for lead in leads)

    own, every = (
        " / ".join(f"{100 * mean(each[name][place] for each in found):.1f}" for name in MODELS)
        for place in (0, 1)
    )
    return f"| {network} | {partition} | {len(found)} | {at_least(0)} | {at_least(0.01)} | {own} | {every} |"


def main() -> None:
    """Play the fleets that the options choose, and print the table as it grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.alone", description=__doc__)
    parser.add_argument("--data-root", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--networks", nargs="+", type=int, default=range(len(NETWORKS)), metavar="NUMBER")
    args = parser.parse_args()
    print(HEAD, "| --- | --- " + "| ---: " * 5 + "|", sep="\n", flush=True)
    for number in args.networks:
        network, words = list(NETWORKS.items())[number]
        for partition in PARTITIONS:
            found = [
                each
                for seed in args.seeds
                for size in SIZES
                for each in play(args.data_root, seed, size, partition, words)
            ]
            print(row(network, partition, found), flush=True)


if __name__ == "__main__":
    main()
