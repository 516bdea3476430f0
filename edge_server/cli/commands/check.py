"""`edge-server check`: validate a federation file."""

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, read_broker_option, tls_options
from edge_client.system.plain_text import print_json, say
from edge_server.cli.commands.options import config_words
from schemas.errors import format_count

if TYPE_CHECKING:
    from edge_server.config.config import Config
    from edge_server.simulation.rehearsal import Rehearsed

CONFIG = "edge_server.config"
HELP = "check a federation file without running it"
EXAMPLES = """\
The command loads [data] source, builds the network, and rehearses two rounds of one training step on this
machine: with the smallest and the largest sub-model, and with everything that the recipe sends. A network of
your own is drawn as ONNX for every tier, and compared with torch.

examples:
  edge-server check federation.toml
  edge-server check attending training.learning-rate=0.05
  edge-server check federation.toml --broker mqtt://192.168.1.10:1883
"""


OPTIONS = (
    *config_words("put over the file, e.g. rounds=3"),
    Option(
        "--registry",
        Path,
        "where the version of [model] from is looked for (default: runs/registry)",
        metavar="DIR",
    ),
    Option("--broker", help="look whether this broker lets anyone in, too", metavar="URL"),
    *tls_options("the server's"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.config.checks.advice import advice, warnings
    from edge_server.config.checks.summability import summability
    from edge_server.config.load import load_config
    from edge_server.simulation.rehearsal import check_run

    config = load_config(args.config, args.overrides)
    with _collect_notes() as notes:
        tried = check_run(config, args.config, registry=args.registry, on_draw=_say_that_it_draws)
    lines = [
        *dict.fromkeys(notes),
        *(_explain_untried() if tried is None else _describe_trial(tried, config)),
        summability(config),
    ]
    lines += [*warnings(config), *advice(config)]
    lines += _of_the_broker(args, config)
    if args.format == "json":
        print_json(config.model_dump(mode="json", by_alias=True, exclude_none=True))
        say(*(f"edge-server: {line}" for line in lines), sep="\n", file=sys.stderr)
    else:
        say(f"# {args.config} is right; this is what it means, defaults included.")
        say(*(f"# {line}" for line in lines), sep="\n", end="\n\n")
        say(config.to_toml(), end="")
    return 0


@contextmanager
def _collect_notes() -> Iterator[list[str]]:
    """What is logged of the data and the file meanwhile, as the log of a run has it."""
    notes = list[str]()
    handler, logs = logging.Handler(), [logging.getLogger(name) for name in ("edge_client.data", CONFIG)]
    handler.emit = lambda record: notes.append(record.getMessage())  # type: ignore[method-assign]
    before = [(log.level, log.propagate) for log in logs]
    for log in logs:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    try:
        yield notes
    finally:
        for log, (level, propagate) in zip(logs, before, strict=True):
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = propagate


def _say_that_it_draws() -> None:
    say("edge-server: drawing the network as ONNX, which may take half a minute", file=sys.stderr)


def _of_the_broker(args: argparse.Namespace, config: "Config") -> Iterator[str]:
    """Whether the named broker lets anyone in."""
    if args.broker is None:
        return
    from edge_client.cli.doctor.broker import strangers

    address = read_broker_option(args)
    found = strangers(address, config.federation.name)
    remedy = f": {found.remedy}" if found.remedy else ""
    yield f"{found.level}: {found.check}: {found.detail}{remedy}"


def _explain_untried() -> Iterator[str]:
    yield (
        "The network was not tried: no [data] source says what it is fed, nor do [model] input-shape "
        "and num-classes."
    )


def _describe_trial(tried: "Rehearsed", config: "Config") -> Iterator[str]:
    from edge_server.config.units import count_text, ratio_text
    from edge_server.simulation.board_costs import describe_boards

    shape = "x".join(map(str, tried.spec.input_shape))
    yield (
        f"'{tried.spec.name}' for {shape} and {format_count(tried.spec.num_classes, 'class')}: two rounds "
        "rehearsed."
    )
    for tier, ratio in enumerate(config.tiers.levels, start=1):
        yield f"tier {tier}, {ratio_text(ratio)} pruned: {count_text(tried.parameters[tier])} parameters"
    yield from tried.notices
    yield from describe_boards(tried.costs)
