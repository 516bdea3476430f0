"""`python -m edge_server.transport.broker`: run the embedded broker until SIGTERM or SIGINT."""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields

from edge_server.transport.broker import server, session
from schemas.errors import ConfigError

_ABOUT = """\
A small MQTT broker for one machine: MQTT 3.1.1 and 5, QoS 0 and 1, retained messages, wills, sessions.

It listens on loopback only, because it has neither TLS nor passwords, and it writes nothing to disk: a
restart forgets sessions, queues and retained messages. For devices on a network use Mosquitto
(deploy/mosquitto). When it is ready it prints one line: listening HOST PORT"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m edge_server.transport.broker",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="loopback address to listen on (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=1883, help="0 takes a free one (default: %(default)s)")
    limits = parser.add_argument_group("limits")
    for limit in fields(session.Limits):
        option, meaning = "--" + limit.name.replace("_", "-"), limit.metadata["help"]
        limits.add_argument(
            option, type=int, default=limit.default, metavar="N", help=f"{meaning} (default: %(default)s)"
        )
    return parser


async def _run(host: str, port: int, limits: session.Limits) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with server.serving(host, port, limits) as (address, bound):
        print(f"listening {address} {bound}", flush=True)
        await ended.wait()


def _raise_open_files() -> None:
    # One descriptor per client, and the usual soft limit is 1024.
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the broker; return 0 after a signal and 2 for a wrong command line."""
    options = vars(_parser().parse_args(arguments))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _raise_open_files()
    try:
        host, port = options.pop("host"), options.pop("port")
        asyncio.run(_run(host, port, session.Limits(**options)))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
