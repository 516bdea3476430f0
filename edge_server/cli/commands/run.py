"""`edge-server run`: serve a federation."""

import argparse
import sys

from edge_client.cli.app import INTERRUPTED
from edge_client.cli.options import Option
from edge_client.system.plain_text import say
from edge_server.cli.commands import options
from edge_server.cli.commands.fleet.serve import SERVICE
from edge_server.storage.service_folder import RUNS, run_folder

HELP = "serve a federation"
EXAMPLES = """\
examples:
  edge-server run federation.toml --broker mqtt://192.168.1.10:1883
  edge-server run attending data.source=digits num-clients=3 rounds=5

Devices join with `edge-client run --broker URL --federation NAME`. Ctrl-C ends the run; its folder is then
complete, with the last model, history.jsonl and summary.json, and from=FOLDER begins another run with its
model. After a kill, SIGTERM or a full disk the same command continues the round; --new begins another run.
For a finished run the command prints so and exits with code 0.
"""


OPTIONS = (
    *options.config_words(),
    *options.BROKER_OPTIONS,
    *options.RUN_OPTIONS,
    options.FINAL_REGISTRY,
    Option("--new", bool, "begin a new run instead of continuing an interrupted one"),
    SERVICE,
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.config.load import load_config
    from edge_server.coordinator.launch import print_finished, run_and_report, serve
    from edge_server.coordinator.run_start import finished_run, unfinished_run
    from edge_server.storage.run_files import known_rounds

    config = load_config(args.config, options.overrides_of(args))
    if args.out is not None and (done := finished_run(args.out, config)) is not None:
        return print_finished(args.out, done, args.format)
    cut_off = unfinished_run(RUNS, config) if args.out is None and not args.new else None
    out = cut_off or run_folder(args.out, config.federation.name)
    options.begin_run_log(args)
    name = out.name if args.out is None else None
    code = run_and_report(
        args,
        out,
        lambda *to: serve(config, *to, out=out, registry=args.registry, run=name, service=args.service),
    )
    if code == INTERRUPTED:
        has_model = known_rounds(out / "history.jsonl")
        how = f"continues from its model: from={out}" if has_model else f"begins with {options.again(args)}"
        say(f"this run has ended; another {how}", file=sys.stderr)
    return code
