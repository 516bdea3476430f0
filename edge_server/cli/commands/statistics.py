"""`edge-server statistics`: counts, means, quantiles and labels of the devices' data."""

import argparse

from edge_client.cli import app
from edge_client.system.plain_text import say
from edge_server.cli.commands.asking import ASKING, ask, load_asking
from edge_server.cli.commands.options import begin_run_log
from edge_server.storage.service_folder import run_folder

HELP = "means, quantiles and labels of the devices' data"
EXAMPLES = """\
examples:
  edge-server statistics federation.toml --broker mqtt://192.168.1.10:1883
  edge-server statistics attending data.source=digits num-clients=20 --simulate --format json

Two rounds that train nothing: devices send counts, sums, least and most of each feature of the data that they
train on, then sums around the mean, and histograms, from which the server reads quantiles. A feature is a
channel of an example, or a column of a table. The answers are journalled, checked and closed by quorum as
any other. The run folder gets statistics.json, and statistics.toml with the section [data.statistics], which
a federation file may state to scale all devices' data alike; [data] scaling = "federated" does that at the
start of a run.

No device shows a single example, but least and most are values of one. A device with fewer than
--min-examples (5) declines. With secure aggregation the sums over all devices are seen alone; masks need a
range, so the file states rough figures in [data.statistics].
"""


OPTIONS = (*ASKING,)


def execute(args: argparse.Namespace) -> int:
    from edge_server.coordinator.scaling import write_results
    from edge_server.observability.data_statistics import last_statistics
    from edge_server.observability.terminal.measured import print_statistics

    config = load_asking(args, "federation.statistics=true", "data.scaling=source").for_statistics()
    out = run_folder(args.out, f"{config.federation.name}-statistics")
    begin_run_log(args)
    code, found = ask(args, config, out), last_statistics(out)
    if code or found is None:
        return code or app.FAILED
    print_statistics(found, args.format)
    written = write_results(out, found)
    if args.format == "table":
        say(f"\nfor a federation file: {written}")
    return code
