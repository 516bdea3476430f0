"""`edge-server dashboard`: show a run folder as a page."""

import argparse
import signal
import threading
from pathlib import Path

from edge_client.cli.options import Option
from edge_server.observability.dashboard.bind_address import DEFAULT_ADDRESS, parse_bind_address
from edge_server.observability.dashboard.cli_option import DASHBOARD_TOKEN, print_address, token_of
from schemas.errors import ConfigError

HELP = "show a run as a page in the browser"
EXAMPLES = """\
examples:
  edge-server dashboard runs/demo-20260101-120000
  edge-server dashboard runs/home 127.0.0.1:9000
  EDGE_DASHBOARD_TOKEN=$(openssl rand -hex 16) edge-server dashboard runs/home --listen 0.0.0.0:8265

Serves the page of `edge-server run --dashboard` from the folder of a run that is finished, interrupted, or
running in another process. It only reads. With a token, open http://HOST:PORT/?token=TOKEN once. Ctrl-C ends
it.
"""

ENDS = (signal.SIGINT, signal.SIGTERM)
LISTEN_S = 0.5


OPTIONS = (
    Option("run", Path, "run folder", metavar="RUN"),
    Option("address", parse_bind_address, "the same as --listen", metavar="HOST:PORT", nargs="?"),
    Option(
        "--listen",
        parse_bind_address,
        "port 0 takes a free one (default: 127.0.0.1:8265, or a free port if that is in use)",
        DEFAULT_ADDRESS,
        "HOST:PORT",
    ),
    Option(
        "--registry",
        Path,
        "registry with the rollouts of this run's models (default: that of the run's service, else "
        "`registry` next to it)",
        metavar="DIR",
    ),
    DASHBOARD_TOKEN,
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.observability.dashboard.run_reader import read_facts
    from edge_server.observability.dashboard.server_thread import serve_dashboard

    if not (args.run / "history.jsonl").is_file() or not (args.run / "federation.toml").is_file():
        raise ConfigError(
            f"{args.run} is not a run folder: history.jsonl and federation.toml are not in it",
            remedy="name the one that `edge-server run` or `simulate` printed at its end",
        )
    read_facts(args.run)
    address = args.address or args.listen
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in ENDS}
    try:
        token = token_of(args)
        with serve_dashboard(args.run, address, token=token, live=False, registry=args.registry) as host:
            print_address(host.url, args.format)
            while not ended.wait(LISTEN_S):
                pass  # a signal that another thread gets is heard here
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0
