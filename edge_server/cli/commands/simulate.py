"""`edge-server simulate`: run a federation of virtual devices."""

import argparse
import sys
from pathlib import Path

from edge_client.cli.options import Option
from edge_client.system.plain_text import say
from edge_server.cli.commands.options import RUN_OPTIONS, begin_run_log, config_words, overrides_of
from edge_server.storage.service_folder import run_folder
from schemas.errors import ConfigError

HELP = "run virtual devices on this machine"
EXAMPLES = """\
Runs the rounds, sessions, training and aggregation of a real federation in memory and in virtual time.

examples:
  edge-server simulate fedavg rounds=3
  edge-server simulate attending num-clients=100 rounds=20 batch-size=8 local-epochs=2 learning-rate=0.1
  edge-server simulate adafl data.source=MNIST data.data-root=data partition=shards shards=2 num-clients=100
  edge-server simulate federation.toml rounds=50 --out runs/long --resume

`edge-server recipes` lists the recipes. Without data.source the devices share the shipped digits; named data
sets also need data.data-root=FOLDER.

After Ctrl-C the run folder is complete. The same command with --resume and its --out continues after the last
closed round, with the same results as an uninterrupted run (not in buffered mode).

Round times are virtual: what the simulated boards would take. With simulation.clock=[] nothing takes time;
simulation.dropouts=true lets devices leave and return.
"""


OPTIONS = (
    *config_words(),
    Option("--device", help="where devices train (default: the file's)", choices=("cpu", "cuda")),
    Option("--resume", bool, "continue the interrupted run in --out"),
    *RUN_OPTIONS,
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.config.load import load_config
    from edge_server.coordinator.launch import exit_code, print_finished, print_run_folder
    from edge_server.coordinator.run_start import finished_run
    from edge_server.observability.watchers import watchers
    from edge_server.simulation.inputs import as_simulated
    from edge_server.simulation.simulator import simulate

    if args.resume and args.out is None:
        raise ConfigError("--resume needs --out, the folder of the run to continue")
    overrides = overrides_of(args)
    overrides += [f"simulation.device={args.device}"] if args.device is not None else []
    config = load_config(args.config, overrides)
    named = "name" in config.federation.model_fields_set
    out = run_folder(args.out, config.federation.name if named else Path(args.config).stem)
    if not args.resume and (done := finished_run(out, as_simulated(config))) is not None:
        return print_finished(out, done, args.format)
    begin_run_log(args)
    with watchers(args, out) as watcher:
        summary = simulate(config, out=out, watcher=watcher, resume=args.resume)
    print_run_folder(out, args.format)
    if summary.outcome == "failed":
        say("it fails again with the same settings: change what the reason names", file=sys.stderr)
    elif summary.outcome == "interrupted" and config.clients.mode == "rounds":
        say(f"to continue: the same words with --resume --out {out}", file=sys.stderr)
    return exit_code(summary)
