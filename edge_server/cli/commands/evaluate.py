"""`edge-server evaluate`: devices measure a model on their own data."""

import argparse

from edge_client.cli.options import Option
from edge_server.cli.commands.asking import ASKING, ask, load_asking
from edge_server.cli.commands.options import begin_run_log
from edge_server.storage.service_folder import run_folder

HELP = "let devices measure a model on their own data"
EXAMPLES = """\
examples:
  edge-server evaluate demo-1 federation.toml --broker mqtt://192.168.1.10:1883
  edge-server evaluate runs/demo/models/round-0005 federation.toml
  edge-server evaluate runs/sim attending data.source=digits num-clients=20 --simulate

MODEL is a version of the registry, a run folder, a folder models/round-NNNN or a state.safetensors. Every
device gets its tier's part of it and measures it on the examples that it holds out; nothing is trained, and
no parameters are sent back. The round is journalled, checked and closed by quorum as any other. --format json
has every figure. With secure aggregation the figures of all devices together are seen alone.
"""


OPTIONS = (Option("model", help="the model to measure", metavar="MODEL"), *ASKING)


def execute(args: argparse.Namespace) -> int:
    from edge_client.data.tasks.registry import learning_task
    from edge_server.observability.terminal.measured import print_measured

    measuring = ("federation.trains=false", "federation.rounds=1", "federation.deliver=none")
    config = load_asking(args, *measuring, f"model.from={args.model}")
    out = run_folder(args.out, f"{config.federation.name}-evaluation")
    begin_run_log(args)
    things = learning_task(config.model.task).counted_things
    return ask(args, config, out) or print_measured(out, args.format, things)
