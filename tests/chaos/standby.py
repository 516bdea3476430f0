"""`python -m tests.chaos.standby`: kill, stop and cut off the active server of a pair two hundred times."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.chaos.takeovers import TakeoverReport, takeovers


def table(report: TakeoverReport) -> str:
    """The report as a table in Markdown."""
    lines = ["| failure | takeovers | median | slowest |", "| --- | --- | --- | --- |"]
    every = [second for seconds in report.seconds.values() for second in seconds]
    for kind, seconds in {**report.seconds, "all": every}.items():
        if seconds:
            lines.append(f"| {kind} | {len(seconds)} | {median(seconds):.2f} s | {max(seconds):.2f} s |")
    counts = (
        f"{report.takeovers} takeovers in {report.runs} runs: lost {report.lost}, doubled {report.doubled}, "
        f"rounds closed differently by a replaced server {report.forked}, runs that ended with another model "
        f"{report.different}; {report.late} words of replaced servers came late."
    )
    return "\n".join([*lines, "", counts])


def main() -> int:
    """Run the campaign; exit code 1 if anything was lost, doubled or different."""
    parser = argparse.ArgumentParser(prog="tests.chaos.standby", description=__doc__)
    for name, number, what in (
        ("--blows", 200, "failures in total"),
        ("--rounds", 60, "rounds of each run"),
        ("--per-run", 20, "most failures in one run"),
        ("--seed", 0, "seed of the schedule"),
    ):
        parser.add_argument(name, type=int, default=number, metavar="N", help=f"{what} (default: {number})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edge-standby-") as folder:
        report = takeovers(
            Path(folder),
            failures=args.blows,
            rounds=args.rounds,
            per_run=args.per_run,
            seed=args.seed,
            say=lambda line: print(f"{time.monotonic() - began:7.0f} s  {line}", flush=True),
        )
    print(f"\n{table(report)}")
    if args.json:
        args.json.write_text(json.dumps(vars(report), indent=2) + "\n")
    return 1 if report.lost or report.doubled or report.forked or report.different else 0


if __name__ == "__main__":
    sys.exit(main())
