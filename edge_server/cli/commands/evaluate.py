"""`edge-server evaluate`: devices measure a model on their own data."""

import argparse
from pathlib import Path

from edge_client.cli.output import Subparsers, add_verb
from edge_server.cli.commands.options import add_broker_options, add_run_options, begin_run_log
from edge_server.storage.run_names import run_folder

EXAMPLES = """\
examples:
  edge-server evaluate demo-1 federation.toml --broker mqtt://192.168.1.10:1883
  edge-server evaluate runs/demo/models/round-0005 federation.toml
  edge-server evaluate runs/sim attending data.source=digits num-clients=20 --simulate

MODEL is a version of the registry, a run folder, a folder models/round-NNNN or a state.safetensors. Every
device gets its tier's part of it and measures it on the examples that it holds out; nothing is trained, and
no parameters are sent back. The round is journalled, checked and closed by quorum as any other. --format json
has every figure.
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(
        subparsers, "evaluate", help="let devices measure a model on their own data", examples=EXAMPLES
    )
    parser.add_argument("model", metavar="MODEL", help="the model to measure")
    parser.add_argument(
        "config", metavar="FEDERATION.toml|RECIPE", help="federation file, or a recipe's name"
    )
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="KEY=VALUE", help="override the file, e.g. quorum=0.8"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="ask virtual devices on this machine instead of real ones"
    )
    add_broker_options(parser)
    add_run_options(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Ask all devices once, and print what they measured."""
    from edge_server.config.load import load_config
    from edge_server.coordinator.launch import run_and_report, serve
    from edge_server.observability.terminal.measured import print_measured
    from edge_server.observability.watchers import watchers
    from edge_server.simulation.simulator import simulate

    overrides = [*args.overrides, *([f"federation.seed={args.seed}"] if args.seed is not None else [])]
    measuring = ["federation.trains=false", "federation.rounds=1", "federation.deliver=none"]
    config = load_config(args.config, [*overrides, *measuring, f"model.from={args.model}"])
    out = run_folder(args.out, f"{config.federation.name}-evaluation")
    begin_run_log(args)
    if args.simulate:
        from edge_server.coordinator.launch import exit_code

        with watchers(args, out) as watcher:
            code = exit_code(simulate(config, out=out, watcher=watcher, export=False))
    else:
        code = run_and_report(args, out, lambda *to: serve(config, *to, out=out))
    return code or print_measured(Path(out), args.format)
