"""`edge-server object-store`: serve large blobs of a federation over HTTP."""

import argparse
import logging
import signal
import threading
from pathlib import Path

from edge_client.cli.options import HOURS, Option, log_options
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import say
from schemas.errors import ConfigError

HELP = "serve large blobs over HTTP"
EXAMPLES = """\
examples:
  edge-server object-store /srv/blobs --secret blobs.secret
  edge-server object-store /srv/blobs --secret blobs.secret --host 0.0.0.0 --cert server.pem --key server.key

In the federation file, with the same secret file (created if missing):
  [object-store]
  store = "https://broker.lan:8900/"
  secret = "blobs.secret"

Without a certificate it listens on this machine only. A client can use an address that the server has signed
until it expires; all other requests are refused. Ctrl-C or SIGTERM ends it.
"""


OPTIONS = (
    Option("folder", Path, "folder of the blobs", metavar="FOLDER"),
    Option("--secret", Path, "file with the key that signs addresses", metavar="FILE", required=True),
    Option("--host", help="address to listen on (default: %(default)s)", default="127.0.0.1"),
    Option("--port", int, "0 takes a free one (default: %(default)s)", 8900),
    Option("--cert", Path, "the store's certificate (https)"),
    Option("--key", Path, "the store's private key (https)"),
    Option("--keep-hours", float, "delete leftover blobs after H hours (default: 48)", 48.0, "H", HOURS),
    *log_options("warning"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.transport.object_store.http_service import serve_objects
    from edge_server.transport.object_store.signed_urls import read_secret

    begin_log(args, level=logging.WARNING)
    if (args.cert is None) != (args.key is None):
        raise ConfigError("--cert and --key belong together", remedy="name both, or neither")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with serve_objects(
        args.folder,
        read_secret(args.secret),
        host=args.host,
        port=args.port,
        pair=(args.cert, args.key) if args.cert else None,
        keep_hours=args.keep_hours,
    ) as address:
        say(f"listening {address}", flush=True)
        ended.wait()
    return 0
