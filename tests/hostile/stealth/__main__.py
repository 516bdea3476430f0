"""`python -m tests.hostile.stealth`: play every attack against recipes, and print or write a table.

A cell is the mean accuracy over seeds in percent, and in brackets mean and range of the difference from the
run in which the same devices are silent; for backdoors also the share of stamped pictures of other classes
that are called the backdoor's class. `r` counts refused updates of the attackers, `h` of honest devices.
"""

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from edge_server.config.load import load_config
from tests.hostile.stealth.attacks import Attack, attacks
from tests.hostile.stealth.play import Result, play

RECIPES = ("attending", "fedavg", "median", "trimmed-mean", "krum")
SEEDS = (11, 12, 13)
ROUNDS = 10
NORMALISED = "model.name=cnn-batch"


def words_of(name: str, partition: str) -> tuple[str, ...]:
    """The settings of a cell: statistics are attacked in a network that has some."""
    fleet = (f'data.partition="{partition}"', f"rounds={ROUNDS}", f"evaluate-every={ROUNDS}")
    return (*fleet, NORMALISED, "learning-rate=0.05") if name.startswith("statistics") else fleet


def cell(found: Sequence[Result], silent: Sequence[Result], name: str) -> str:
    """One cell of the table in words."""
    drops = [100 * (one.accuracy - other.accuracy) for one, other in zip(found, silent, strict=True)]
    accuracy = 100 * mean(one.accuracy for one in found)
    points = f"{accuracy:.1f} ({mean(drops):+.1f}; {min(drops):+.1f} to {max(drops):+.1f})"
    stamped = f", {100 * mean(one.stamped for one in found):.0f} %" if name.startswith("backdoor") else ""
    refused = sum(one.refused for one in found), sum(one.honest_refused for one in found)
    return points + stamped + (f" r {refused[0]} h {refused[1]}" if any(refused) else "")


def table(
    recipes: Sequence[str],
    names: Iterable[str],
    partition: str,
    seeds: Sequence[int],
    stated: Sequence[str],
) -> str:
    """The table as Markdown, a row an attack; rows are printed as they are made."""
    bounds = load_config("fedavg", stated).firewall
    known = {"no liar": Attack(), "silent": Attack(), **attacks(bounds, ROUNDS)}
    lines = [f"| attack | {' | '.join(recipes)} |", "| --- |" + " --- |" * len(recipes)]
    quiet: dict[tuple[str, tuple[str, ...], int], list[Result]] = {}
    for name in names:
        words, attack = words_of(name, partition), known[name]
        words += tuple(stated)
        cells = []
        for recipe in recipes:
            key = recipe, words, attack.liars
            if key not in quiet:
                quiet[key] = _plays(recipe, None, words, seeds, attack.liars)
            found = _plays(recipe, attack, words, seeds, attack.liars) if name != "silent" else quiet[key]
            cells.append(cell(found, quiet[key], name))
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def _plays(
    recipe: str, attack: Attack | None, words: Sequence[str], seeds: Sequence[int], liars: int
) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            play(Path(folder, str(seed)), recipe, attack, *words, f"federation.seed={seed}", liars=liars)
            for seed in seeds
        ]


def main() -> None:
    """Play the cells that the options choose."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.stealth", description=__doc__)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--attacks", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--partition", default="dirichlet(0.3)")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument(
        "--set", nargs="+", default=(), metavar="KEY=VALUE", help="firewall.norm-factor=10 ..."
    )
    parser.add_argument("--table", type=Path, help="write the table to this file")
    args = parser.parse_args()
    names = args.attacks or ["no liar", "silent", *attacks(load_config("fedavg").firewall, ROUNDS)]
    found = table(args.recipes, names, args.partition, args.seeds, args.set)
    if args.table is not None:
        args.table.write_text(found + "\n")


if __name__ == "__main__":
    main()
