"""`edge-server run`: serve a federation."""

import argparse
import sys

from edge_client.cli.app import INTERRUPTED
from edge_client.cli.output import Subparsers, add_verb
from edge_client.system.plain_text import say
from edge_server.cli.commands.fleet.serve import add_service_option
from edge_server.cli.commands.options import (
    add_broker_options,
    add_config_words,
    add_final_registry,
    add_run_options,
    begin_run_log,
    overrides_of,
)
from edge_server.storage.run_names import RUNS, run_folder

EXAMPLES = """\
examples:
  edge-server run federation.toml --broker mqtt://192.168.1.10:1883
  edge-server run attending data.source=digits num-clients=3 rounds=5

Devices join with `edge-client run --broker URL --federation NAME`. Ctrl-C ends the run; its folder is then
complete, with the last model, history.jsonl and summary.json, and from=FOLDER begins another run with its
model. After a kill, SIGTERM or a full disk the same command continues the round; --new begins another run.
For a finished run the command prints so and exits with code 0.
"""


def register(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "run", help="serve a federation", examples=EXAMPLES)
    add_config_words(parser)
    add_broker_options(parser)
    add_run_options(parser)
    add_final_registry(parser)
    parser.add_argument(
        "--new", action="store_true", help="begin a new run instead of continuing an interrupted one"
    )
    add_service_option(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from edge_server.config.load import load_config
    from edge_server.coordinator.launch import print_finished, run_and_report, serve
    from edge_server.coordinator.run_start import finished_run, unfinished_run
    from edge_server.storage.run_files import known_rounds

    config = load_config(args.config, overrides_of(args))
    if args.out is not None and (done := finished_run(args.out, config)) is not None:
        return print_finished(args.out, done, args.format)
    cut_off = unfinished_run(RUNS, config) if args.out is None and not args.new else None
    out = cut_off or run_folder(args.out, config.federation.name)
    begin_run_log(args)
    name = out.name if args.out is None else None
    code = run_and_report(
        args,
        out,
        lambda *to: serve(config, *to, out=out, registry=args.registry, run=name, service=args.service),
    )
    if code == INTERRUPTED and known_rounds(out / "history.jsonl"):
        say(f"this run has ended; another goes on from its model: from={out}", file=sys.stderr)
    return code
