"""The command line that the campaigns of failures share."""

import argparse
import json
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run_campaign(
    program: str, about: str | None, campaign: Callable[..., Any], *, failures: int, rounds: int, per_run: int
) -> Any:
    """Run `campaign` as its command line says, with these defaults; returns its report."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    for name, number, what in (
        ("--blows", failures, "failures in total"),
        ("--rounds", rounds, "rounds of each run"),
        ("--per-run", per_run, "most failures in one run"),
        ("--seed", 0, "seed of the schedule"),
    ):
        parser.add_argument(name, type=int, default=number, metavar="N", help=f"{what} (default: {number})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    args = parser.parse_args()
    # A shell lets what it starts in the background ignore this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
    if args.json:
        args.json.write_text(json.dumps(vars(report), indent=2) + "\n")
    return report
