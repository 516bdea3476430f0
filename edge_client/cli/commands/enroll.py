"""`edge-client enroll`: redeem an enrolment code."""

import argparse
import sys
import time
from pathlib import Path

from edge_client.cli.options import Option, seconds_option
from edge_client.system.plain_text import print_result, say
from schemas.errors import ConfigError

HELP = "redeem an enrolment code"
EXAMPLES = """\
`edge-server enroll DEVICE --code` issues a code that one device can use once, for a limited time. This
command generates the device's private key, which stays here, and requests its certificate over the broker.

examples:
  edge-client enroll --code edge1.eNqVVs2...      the code itself
  edge-client enroll --code pi-kitchen.code       a file with the code
  edge-client enroll --code - --out /etc/edge-client      from standard input

Then: edge-client run --config DIR/client.toml
"""


OPTIONS = (
    Option("--code", help="the code, a file with it, or - to read it", metavar="CODE|FILE|-", required=True),
    Option("--out", Path, "folder for the files (default: ./DEVICE)", metavar="DIR"),
    Option("--data", help="data source for client.toml (default: to be set there)", metavar="SOURCE"),
    Option("--broker", help="the enrolment listener (default: the code's)", metavar="URL"),
    Option(
        "--fingerprint", help="refuse the code unless its authority has this fingerprint", metavar="SHA256"
    ),
    seconds_option("--deadline-s", "(default: %(default)s)", 60.0),
)


def execute(args: argparse.Namespace) -> int:
    """Redeem the code and write a folder that `edge-client run` can use."""
    from edge_client.security.identity.enrolment import check_code, redeem
    from edge_client.security.identity.enrolment_bundle import CERTIFICATE, CONFIG
    from edge_client.security.identity.validity import format_utc
    from schemas.security.enrolment import decode_code

    code = decode_code(_text(args.code))
    check_code(code, time.time(), trusted=args.fingerprint)
    out = args.out or Path(code.device)
    if (out / CERTIFICATE).exists():
        raise ConfigError(
            f"{out} holds a certificate already", remedy="name another folder with --out, or remove it"
        )
    validity = redeem(code, out, broker=args.broker, deadline_s=args.deadline_s, report=_say, data=args.data)
    return print_result(
        args,
        {"device": code.device, "folder": str(out), "valid_to": validity.not_after},
        f"{code.device} is enrolled, with a certificate until {format_utc(validity.not_after)}",
        *([f"set `data` in {out / CONFIG}: what this device learns from"] if args.data is None else []),
        f"next: edge-client run --config {out / CONFIG}",
    )


def _say(words: str) -> None:
    """Print to stderr, so that programs can read the result on stdout."""
    say(words, file=sys.stderr, flush=True)


def _text(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    try:
        path = Path(given)
        if path.suffix == ".code" and not path.is_file():
            raise ConfigError("there is no such file", key=f"--code {given}")
        return path.read_text() if path.is_file() else given
    except OSError:
        # A code is longer than a file's name may be.
        return given
