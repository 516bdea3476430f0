"""`edge-server demo`: run the whole system on this machine."""

import argparse
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, Subparsers, add_verb, count_option
from edge_server.cli.commands.options import BROKER_OPTIONS, RUN_OPTIONS, begin_run_log
from edge_server.observability.dashboard.bind_address import DEFAULT_ADDRESS
from edge_server.storage.service_folder import run_folder
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.config.config import Config

EXAMPLES = """\
A broker, a server and five device processes of five capability tiers train on handwritten digits, each on
its own uneven share. Every device ends with its own compact ONNX model, served by onnxruntime.

With a federation file its devices are processes on this machine, of tiers 1, 2, 3 and so on, which share its
data source: a rehearsal of the run with real messages, before real boards take part.

examples:
  edge-server demo
  edge-server demo --rounds 3 --broker embedded --out runs/demo
  edge-server demo --torch-free 3      the three smallest devices train with onnxruntime alone
  edge-server demo federation.toml     the devices of this file
"""


OPTIONS = (
    Option(
        "config",
        help="federation file, or a recipe's name (default: the demo's)",
        metavar="FEDERATION.toml|RECIPE",
        nargs="?",
    ),
    Option("overrides", help="override the file, e.g. rounds=3", default=(), metavar="KEY=VALUE", nargs="*"),
    count_option("--rounds", "(default: the file's)"),
    Option(
        "--torch-free",
        int,
        "devices, from the smallest, in which torch and onnx cannot be imported (default: 0)",
        0,
        "N",
    ),
    *BROKER_OPTIONS,
    *RUN_OPTIONS,
)


def register(verbs: Subparsers) -> None:
    add_verb(
        verbs,
        "demo",
        execute,
        OPTIONS,
        help="run the whole system on this machine",
        examples=EXAMPLES,
        dashboard=DEFAULT_ADDRESS,
    )


def execute(args: argparse.Namespace) -> int:
    from edge_server.cli.demo import DEMO, run_demo
    from edge_server.config.load import load_config
    from edge_server.coordinator.launch import run_and_report

    # A first word with a value is an override already: a file is not required.
    given = [word for word in (args.config, *args.overrides) if word is not None]
    named = bool(given) and "=" not in given[0]
    overrides = given[named:]
    overrides += [f"rounds={args.rounds}"] if args.rounds else []
    overrides += [f"federation.seed={args.seed}"] if args.seed is not None else []
    config = without_testers(load_config(given[0] if named else str(DEMO), overrides))
    if not 0 <= args.torch_free <= config.clients.num_clients:
        raise ConfigError(
            f"expected 0 to {config.clients.num_clients} devices", key=f"--torch-free {args.torch_free}"
        )
    out = run_folder(args.out, config.federation.name)
    name = out.name if args.out is None else None
    begin_run_log(args)
    return run_and_report(
        args,
        out,
        lambda address, watcher: run_demo(
            config, address, watcher, out=out, run=name, torch_free=args.torch_free
        ),
    )


def without_testers(config: "Config") -> "Config":
    """The configuration without testing processes, unless it states some: devices use the same cores."""
    if config.federation.testers is not None:
        return config
    federation = config.federation.model_copy(update={"testers": 0})
    return config.model_copy(update={"federation": federation})
