"""What the verbs share that ask devices without training: the federation, and the run that asks."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.app import INTERRUPTED
from edge_client.cli.options import Option
from edge_client.system.plain_text import say
from edge_server.cli.commands.options import BROKER_OPTIONS, RUN_OPTIONS, again, config_words, overrides_of

if TYPE_CHECKING:
    from edge_server.config.config import Config


ASKING = (
    *config_words("override the file, e.g. quorum=0.8"),
    Option("--simulate", bool, "ask virtual devices on this machine instead of real ones"),
    *BROKER_OPTIONS,
    *RUN_OPTIONS,
)
"""The federation, its overrides, and who is asked."""


def load_asking(args: argparse.Namespace, *settings: str) -> "Config":
    """The federation with the user's overrides, then the verb's own `settings`."""
    from edge_server.config.load import load_config

    return load_config(args.config, [*overrides_of(args), *settings])


def ask(args: argparse.Namespace, config: "Config", out: Path) -> int:
    """Run `config` in the folder `out` with real or virtual devices; returns the exit code."""
    from edge_server.coordinator.launch import exit_code, run_and_report, serve
    from edge_server.observability.watchers import watchers
    from edge_server.simulation.simulator import simulate

    if args.simulate:
        with watchers(args, out) as watcher:
            code = exit_code(simulate(config, out=out, watcher=watcher, export=False))
    else:
        code = run_and_report(args, out, lambda *to: serve(config, *to, out=out))
    if code == INTERRUPTED:
        say(f"nothing was measured; {again(args)} asks again", file=sys.stderr)
    return code
