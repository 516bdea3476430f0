"""`edge-server handover`: let the standby take over now."""

import argparse
import os
import select
import signal
import sys
from pathlib import Path

from edge_client.cli.options import Option
from edge_client.system.plain_text import say

HELP = "let the standby take over now"
EXAMPLES = """\
examples:
  edge-server handover runs/home-20261126-120000

On the machine of the active server, for instance before its maintenance. The server stops as with SIGTERM,
and its standby takes over at once. Refused unless a standby is up to date.

exit codes: 0 the server has stopped, 1 it has not within 60 s, 2 nothing to hand over
"""
PATIENCE_S = 60.0


OPTIONS = (Option("run", Path, "the active server's run folder", metavar="RUN"),)


def execute(args: argparse.Namespace) -> int:
    from edge_client.cli.app import DONE, FAILED

    pid, origin = _ready(args.run)
    descriptor = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGTERM)
        ended = bool(select.select([descriptor], [], [], PATIENCE_S)[0])
    finally:
        os.close(descriptor)
    if not ended:
        say(f"edge-server: process {pid} still runs", file=sys.stderr)
        return FAILED
    say(f"handed over to the standby on {origin}")
    return DONE


def _ready(run: Path) -> tuple[int, str]:
    """The active server's process, and its standby; raises `ConfigError` unless both are there."""
    from edge_server.coordinator.run_start import lock_holder
    from edge_server.coordinator.standby.standby_status import STATUS, StandbyStatus
    from edge_server.transport.lease.holder import runs_here
    from schemas.errors import ConfigError

    holder = lock_holder(run)
    if holder is None or not runs_here(holder):
        raise ConfigError("no server runs there on this machine", place=run)
    try:
        status = StandbyStatus.model_validate_json((run / STATUS).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError("no standby follows this server", place=run) from error
    if not status.follows:
        raise ConfigError(
            f"the standby on {status.origin} is not up to date", place=run, remedy="try again later"
        )
    return holder.pid, status.origin
