"""`edge-server standby`: follow a federation's server, and take over when it is gone."""

import argparse
import sys
from pathlib import Path

from edge_client.cli.options import Option, read_broker_option
from edge_client.system.plain_text import say
from edge_server.cli.commands.options import FINAL_REGISTRY, SERVER_BROKER, WATCHING, begin_run_log

HELP = "follow a server, and take over"
EXAMPLES = """\
examples:
  edge-server standby copies/home --of home --broker mqtt://192.168.1.10:1883
  edge-server handover runs/home-20261126-120000        on the active server: hand over now

The standby keeps a copy of the active server's run folder in RUN, by way of the broker. While it is up to
date, the server confirms nothing to a device before the copy has it. When the server is gone, stopped, or cut
off for a few seconds, the standby takes over, and serves the run to its end. The old server, should it come
back, ends; its folder is older from then on.

The signing key is never sent: copy RUN/signing.key, or the file that [federation] signing-key names, from the
server first. Test data is read from the same path as on the server. Where a standby has taken over, the same
command continues the run.

exit codes: those of `edge-server run` after a takeover; 0 if the run ended without one, 2 if it cannot be
followed, 143 if the standby was stopped
"""


OPTIONS = (
    Option("run", Path, "the folder of the copy", metavar="RUN"),
    Option("--of", help="the name of the federation", metavar="FEDERATION", required=True),
    *SERVER_BROKER,
    FINAL_REGISTRY,
    *WATCHING,
)


def execute(args: argparse.Namespace) -> int:
    from edge_client.cli.app import DONE, SUSPENDED
    from edge_server.coordinator.launch import print_finished, run_and_report, serve
    from edge_server.coordinator.run_start import finished_run
    from edge_server.coordinator.standby.replica_copy import was_copy
    from edge_server.coordinator.standby.takeover import copied_config, follow

    begin_run_log(args)
    lease = None
    if not was_copy(args.run):
        address = read_broker_option(args)
        end, lease = follow(args.of, address, args.run, say=_say)
        if lease is None:
            _say("the run is over" if end == "over" else "stopped")
            return DONE if end == "over" else SUSPENDED
        _say(f"takes over, in epoch {lease.state.epoch}")
    config = copied_config(args.run)
    if (done := finished_run(args.run, config)) is not None:
        return print_finished(args.run, done, args.format)
    return run_and_report(
        args,
        args.run,
        lambda address, watcher: serve(
            config, address, watcher, out=args.run, registry=args.registry, lease=lease
        ),
    )


def _say(line: str) -> None:
    say(f"edge-server: {line}", file=sys.stderr, flush=True)
