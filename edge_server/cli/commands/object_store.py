"""`edge-server object-store`: serve large blobs of a federation over HTTP."""

import argparse
import logging
import signal
import threading
from pathlib import Path

from edge_client.cli.output import Subparsers, add_verb, time_in
from edge_client.system.logging.setup import add_log_options, begin_log
from edge_client.system.plain_text import say
from schemas.errors import ConfigError

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


def register(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "object-store", help="serve large blobs over HTTP", examples=EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the blobs")
    parser.add_argument(
        "--secret", type=Path, required=True, metavar="FILE", help="file with the key that signs addresses"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8900, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--cert", type=Path, help="the store's certificate (https)")
    parser.add_argument("--key", type=Path, help="the store's private key (https)")
    parser.add_argument(
        "--keep-hours",
        type=time_in(3600),
        default=48.0,
        metavar="H",
        help="delete leftover blobs after H hours (default: 48)",
    )
    add_log_options(parser, level="warning")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from edge_server.transport.object_store.http_service import serve_objects
    from edge_server.transport.object_store.signed_urls import read_secret

    begin_log(args, level=logging.WARNING)
    if (args.cert is None) != (args.key is None):
        raise ConfigError("--cert and --key belong together: name both, or neither")
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
