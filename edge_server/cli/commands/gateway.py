"""`edge-server gateway`: the gateway of a site."""

import argparse
import logging
import sys
from pathlib import Path

from edge_client.cli.options import Option, log_options
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import say
from edge_server.cli.commands.options import BROKER_OPTIONS

HELP = "let a site's devices share one link"
EXAMPLES = """\
examples:
  edge-server gateway --site barn --upstream mqtts://broker.example --broker mqtt://127.0.0.1:1883
  edge-server gateway --site barn --upstream mqtts://broker.example --upstream-ca ca.pem \\
      --upstream-cert barn.pem --upstream-key barn.key --broker mosquitto --out /var/lib/edge-gateway

A gateway lets the devices of a site share one slow link. To them it is the server, on the site's own broker;
they run `edge-client run --broker URL-OF-THE-SITE --device-id barn.NAME`, as their names begin with the
site's. The server names the site in its file: [federation] sites = ["barn"]. Each model crosses the link
once, and the site's updates cross it as one sum, which makes the model that the updates would make.

Ctrl-C leaves everything whole: the same command continues, as it does after a kill. The gateway examines
updates in the server's place and sees each of them: run it on a machine that you trust with that.
"""


OPTIONS = (
    Option("--site", help="the site, as the server's file names it", metavar="NAME", required=True),
    Option("--upstream", help="the server's broker, mqtt(s)://...", metavar="URL", required=True),
    Option("--upstream-ca", Path, "authority of the server's broker", metavar="FILE"),
    Option("--upstream-cert", Path, "the site's certificate there", metavar="FILE"),
    Option("--upstream-key", Path, "its key", metavar="FILE"),
    Option("--federation", help="(default: %(default)s)", default="federation", metavar="NAME"),
    *BROKER_OPTIONS,
    Option(
        "--out", Path, "folder for models, updates and the journal (default: gateways/SITE)", metavar="DIR"
    ),
    Option("--once", bool, "end with the run instead of waiting for the next"),
    *log_options("warning"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_client.transport.broker_link import TlsFiles, parse_address
    from edge_server.coordinator.gateway.gateway import GatewayStopped, SiteGateway, check_brokers
    from edge_server.coordinator.launch import broker_address, stopped_by_signals
    from edge_server.coordinator.run_start import lock_folder
    from schemas.base import check_names

    check_names(federation=args.federation, site=args.site)
    begin_log(args, level=logging.WARNING, federation=args.federation)
    out = args.out or Path("gateways") / args.site
    files = TlsFiles(args.upstream_ca, args.upstream_cert, args.upstream_key)
    above = parse_address(args.upstream, files, named="--upstream-ca, --upstream-cert, --upstream-key")

    def show(line: str) -> None:
        say(f"edge-server: gateway {args.site}: {line}", file=sys.stderr, flush=True)

    with lock_folder(out), broker_address(args.broker, TlsFiles(args.ca, args.cert, args.key)) as below:
        check_brokers(above, below)
        show(f"the site's devices connect to {below}")
        names = {"federation": args.federation, "site": args.site}
        gateway = SiteGateway(above, below, **names, folder=out, once=args.once, show=show)
        with stopped_by_signals(gateway.stop):
            try:
                gateway.run()
            except GatewayStopped as error:
                say(f"edge-server: {error}", file=sys.stderr)
                return 1
    return 0
