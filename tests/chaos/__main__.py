"""`make chaos`: kill server, aggregators, devices and broker and cut connections, five hundred times."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.campaign import campaign


def main() -> int:
    """Run the campaign; exit code 1 if a run differs from the undisturbed one."""
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    for name, number, what in (
        ("--blows", 500, "failures in total"),
        ("--rounds", 12, "rounds of each run"),
        ("--per-run", 60, "most failures in one run"),
        ("--seed", 0, "seed of the schedule"),
    ):
        parser.add_argument(name, type=int, default=number, metavar="N", help=f"{what} (default: {number})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edge-chaos-") as folder:
        report = campaign(
            Path(folder),
            failures=args.blows,
            rounds=args.rounds,
            per_run=args.per_run,
            seed=args.seed,
            say=lambda line: print(f"{time.monotonic() - began:7.0f} s  {line}", flush=True),
        )
    print(f"\n{'failure':<8} {'recoveries':>10} {'median':>9} {'maximum':>9}")
    for kind, count, middle, most in report.rows():
        print(f"{kind:<8} {count:>10} {middle:>7.2f} s {most:>7.2f} s")
    print(
        f"\n{report.failures} failures in {report.runs} runs: lost {report.lost}, doubled {report.doubled}, ",
        end="",
    )
    print(f"runs that ended with another model {report.different}")
    if args.json:
        args.json.write_text(json.dumps(vars(report), indent=2) + "\n")
    return 1 if report.lost or report.doubled or report.different else 0


if __name__ == "__main__":
    sys.exit(main())
