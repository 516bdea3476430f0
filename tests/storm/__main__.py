"""`python -m tests.storm`: play many seeds, one seed, or hunt the mutants."""

import argparse
import logging
import sys
from pathlib import Path

from tests.storm.campaign import hunt_all, shrunk_test, storm, table
from tests.storm.mutants import MUTANTS
from tests.storm.seeds import faults_of, scenario_of
from tests.storm.world import play


def main() -> int:
    """Returns 1 if an invariant was violated, or a mutant was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--seed", type=int, help="play this seed alone, with the log of server and devices")
    parser.add_argument(
        "--mutants", type=int, metavar="MOST", help="hunt each mutant with at most MOST seeds"
    )
    parser.add_argument(
        "--mutant", nargs="+", choices=list(MUTANTS), metavar="NAME", help="hunt these mutants alone"
    )
    parser.add_argument("--table", type=Path, help="write the table of mutants to this file")
    args = parser.parse_args()
    if args.seed is not None:
        return _play_one(args.seed)
    if args.mutants is None:
        return bool(storm(args.seeds, first=args.first, processes=args.workers).failed)
    names = args.mutant or list(MUTANTS)
    found = hunt_all(args.mutants, names, processes=args.workers)
    rows = table(found, args.mutants)
    print(rows)
    if args.table is not None:
        args.table.write_text(rows)
    return any(seeds is None for _, seeds, *_ in found) or len(found) < len(names)


def _play_one(seed: int) -> int:
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    scenario = scenario_of(seed)
    faults = faults_of(scenario)
    print(scenario, *faults, sep="\n")
    outcome = play(scenario, faults, logs=True)
    print(outcome)
    if outcome.violation is not None:
        print(shrunk_test(seed))
    return outcome.violation is not None


if __name__ == "__main__":
    sys.exit(main())
