"""`edge-server replay`: compute a run's aggregates again."""

import argparse
from dataclasses import asdict
from pathlib import Path

from edge_client.cli.app import DONE, FAILED
from edge_client.cli.options import Option
from edge_client.system.plain_text import print_json, say

HELP = "compute a run's aggregates again"
EXAMPLES = """\
Aggregates every closed round again from the journal and the updates in the run folder, and compares the
model's digest with the journal's. Exit code 1 if one differs or is damaged. `[federation] replay-mb` limits
the kept updates; a simulation keeps none, because its seed repeats it.

examples:
  edge-server replay runs/home-20260101-120000
"""


OPTIONS = (Option("run", Path, "run folder", metavar="RUN"),)


def execute(args: argparse.Namespace) -> int:
    from edge_server.coordinator.replay import Replayed, ReplayVerdict, replay

    def line(one: Replayed) -> str:
        shown = f"{one.journal_sha256[:16]}" + (f" {one.sha256[:16]}" if one.sha256 else "")
        return (
            f"round {one.round:<5} {one.updates:>5} updates  {one.verdict:<9} {shown} {one.detail}".rstrip()
        )

    replayed = []
    for result in replay(args.run):
        replayed.append(result)
        if args.format != "json":
            say(line(result), flush=True)
    counts = {
        str(verdict): sum(result.verdict is verdict for result in replayed) for verdict in ReplayVerdict
    }
    if args.format == "json":
        print_json({"rounds": [asdict(result) for result in replayed], **counts})
    else:
        say(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    return FAILED if counts[ReplayVerdict.DIFFERS] or counts[ReplayVerdict.DAMAGED] else DONE
