"""`edge-server compare`: compare algorithms, and repeat the papers' experiments."""

import argparse
import logging
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.app import DONE, FAILED, INTERRUPTED
from edge_client.cli.options import Group, Option, count_option, log_options
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import print_rows, say
from edge_server.cli.commands.fleet.backup import ended_by_sigterm
from schemas.errors import format_count

if TYPE_CHECKING:
    from edge_server.simulation.experiments.findings import Findings

HELP = "compare algorithms over several seeds"
EXAMPLES = """\
examples:
  edge-server compare --list                                  the shipped experiments
  edge-server compare adafl-table-1-2 --scale small
  edge-server compare league --scale small --parallel 2      two runs at once
  edge-server compare league --quick --parallel 2            whether all rows run, in minutes
  edge-server compare attending-figure-4 device=cuda --seeds 1,2 --only "ATTENDING w/ ATT"
  edge-server compare league --only attending --columns "letters 0.1" --seeds 3    one run
  edge-server compare league --seeds 1,2 --take other-machine/ended-runs.jsonl.xz
  edge-server compare fedavg attending data.source=digits num-clients=10 rounds=20 --seeds 1,2,3
  edge-server compare fedavg learning-rate=0.01,0.1 batch-size=8,32 rounds=20           a sweep: four rows

Each recipe is a row, run once per seed as `edge-server simulate` runs it; figures are the mean and the
standard deviation over the seeds. A key with several values is a sweep: a row for each combination. A value
with commas of its own stands in quotes: 'data.source="csv:t.csv?columns=a,b"'.
The folder holds compare.html and compare.md, table.md, table.csv, results.json, curves.png and curves.csv,
and a run folder for every row, column and seed; ended-runs.jsonl.xz has the results of all ended runs, and
another call takes them with --take, so that several machines can share the runs. After Ctrl-C the same
command continues with the missing runs, and with stopped ones at their last closed round. To compare
finished runs:
edge-server report RUN RUN...
"""


def parse_seeds(text: str) -> tuple[int, ...]:
    words = text.split(",")
    seeds = tuple(int(word) for word in words if word.isdecimal())
    if len(set(seeds)) < len(words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of different seeds such as 1,2,3")
    return seeds


OPTIONS = (
    Option(
        "words",
        help="a shipped experiment or a file; or recipes; overrides for all of them, e.g. rounds=3; several "
        "values are a sweep, e.g. learning-rate=0.01,0.1",
        default=(),
        metavar="EXPERIMENT|RECIPE|KEY=VALUE",
        nargs="*",
    ),
    Option("--list", bool, "list the shipped experiments and end"),
    Group(
        (
            Option(
                "--scale",
                help="full, or small for a first look (default: full)",
                default="full",
                metavar="NAME",
            ),
            Option(
                "--quick",
                help="the same as --scale quick: only that all rows run (league)",
                dest="scale",
                action=partial(argparse._StoreConstAction, const="quick"),
            ),
        ),
        exclusive=True,
    ),
    Option("--out", Path, "folder of the results (default: runs/compare-NAME-SCALE)", metavar="DIR"),
    Option(
        "--codecs",
        help="replace the codecs of every row by uncompressed float32 (default: what simulate sends)",
        choices=("float32",),
    ),
    Option("--seeds", parse_seeds, "seeds (default: the experiment's)", metavar="1,2"),
    Option("--only", help="only these rows, by label", default=(), metavar="ROW", nargs="+"),
    Option("--columns", help="only these columns, by label", default=(), metavar="COLUMN", nargs="+"),
    count_option("--workers", "worker processes per run"),
    count_option(
        "--parallel",
        "runs at once, each in a process of its own with one worker, or --workers (default: 1)",
        1,
    ),
    Option(
        "--take",
        Path,
        "take the runs that ended elsewhere from the ended-runs.jsonl.xz of other folders",
        (),
        "FILE",
        nargs="+",
    ),
    *log_options("error"),
)


def execute(args: argparse.Namespace) -> int:
    if args.list:
        return _list(args)
    try:
        with ended_by_sigterm():
            return _compare(args)
    except (KeyboardInterrupt, SystemExit):
        say(f"interrupted; to continue: {_command(sys.argv)}", file=sys.stderr)
        raise


def _compare(args: argparse.Namespace) -> int:
    from edge_client.storage.atomic_files import usable_folder
    from edge_server.coordinator.launch import print_new_notices
    from edge_server.simulation.experiments.cells import RunSelection, slug
    from edge_server.simulation.experiments.compare import checked_plan, named_experiment, run_comparison
    from edge_server.simulation.experiments.ended_runs import take_runs
    from edge_server.simulation.experiments.progress import Lines
    from edge_server.simulation.experiments.publish import publish
    from edge_server.simulation.simulator import ended_by_signals, simulate
    from edge_server.storage.provenance import provenance
    from schemas.errors import ConfigError

    names = [word for word in args.words if "=" not in word]
    if not names:
        raise ConfigError(
            "name an experiment or recipes", remedy="edge-server compare --list shows the experiments"
        )
    if number := next(filter(str.isdecimal, names), ""):
        raise ConfigError(f"'{number}' is not a recipe", remedy="list seeds with commas: --seeds 1,2")
    overrides = [word for word in args.words if "=" in word]
    workers = args.workers or (1 if args.parallel > 1 else None)
    overrides += [f"simulation.workers={workers}"] if workers else []
    if args.codecs:
        overrides += ["strategy.uplink=[]", "strategy.downlink=[]"]
        say("codecs: none, float32 on both ways in all rows", file=sys.stderr)
    choice = RunSelection(args.scale, args.seeds, tuple(args.only), tuple(overrides), tuple(args.columns))
    plan = checked_plan(named_experiment(names), choice)
    name = slug("-".join(Path(word).stem for word in names))[:60]
    out = usable_folder(args.out or Path("runs", f"compare-{name}-{args.scale}"), option="--out")
    begin_log(args, level=logging.ERROR)
    made = provenance(_command(sys.argv))
    for source in args.take:
        say(f"{source}: {format_count(take_runs(source, plan, out), 'run')} taken", file=sys.stderr)
    run = partial(simulate, export=False, notify=print_new_notices)
    if args.parallel == 1:
        run = partial(run, stopped=ended_by_signals)
    findings = run_comparison(plan, out, simulate=run, progress=Lines(sys.stderr), parallel=args.parallel)
    publish(plan, findings, out, made)
    _show(findings, out, args.format)
    return INTERRUPTED if findings.interrupted else FAILED if findings.failures else DONE


def _show(findings: "Findings", out: Path, output_format: str) -> None:
    from edge_client.system.plain_text import print_table

    if output_format == "json":
        say((out / "results.json").read_text(), end="")
    else:
        for table in findings.tables:
            say(f"\n{table.caption}\n")
            print_table(table.columns, table.rows)
        say(f"\nresults in {out}: compare.html, compare.md, table.md, results.json")
    if findings.interrupted:
        say(f"interrupted; to continue: {_command(sys.argv)}", file=sys.stderr)


def _list(args: argparse.Namespace) -> int:
    from edge_server.simulation.experiments.experiment import experiment_names, load_experiment

    found = {name: load_experiment(name) for name in experiment_names()}
    document = [
        {"name": name, "title": shipped.title, "scales": ["full", *shipped.scale]}
        for name, shipped in found.items()
    ]
    rows = [(name, shipped.title, shipped.reproduces) for name, shipped in found.items()]
    return print_rows(args, document, ("experiment", "what it shows", "source"), rows)


def _command(argv: list[str]) -> str:
    return shlex.join(["edge-server", *argv[1:]])
