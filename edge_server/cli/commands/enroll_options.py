"""The options of `edge-server enroll`, and which of them fit together."""

import argparse
from pathlib import Path

from edge_client.cli.options import DAYS, HOURS, Option, device_name
from edge_server.cli.commands.enroll_issue import check_labels
from edge_server.cli.commands.fleet.serve import SERVICE
from schemas.errors import ConfigError

AUTHORITY = Option(
    "--authority",
    Path,
    "the authority's folder (default: ~/.local/share/edge-federation/authority/FEDERATION)",
    metavar="DIR",
)
DEVICE = (
    Option("device", help="the device's name, the certificate's CN", metavar="DEVICE", nargs="?"),
    Option("--out", Path, "folder for the archive or the code", metavar="DIR"),
    Option("--federation", help="(default: %(default)s)", default="federation", metavar="NAME"),
    AUTHORITY,
)
FLEET = (
    Option("--from", Path, "enrol the devices of a fleet file, CSV or JSON", metavar="FILE", dest="fleet"),
    Option("--list", bool, "list who is enrolled until when, and end", dest="listed"),
    Option(
        "--label",
        help="a label for its client.toml and for the inventory (repeatable)",
        default=(),
        metavar="KEY=VALUE",
        many=True,
    ),
    Option("--note", help="a note for the inventory", metavar="TEXT"),
    SERVICE,
)
BROKER = (
    Option(
        "--host",
        help="name or address of the broker (repeatable); devices use the first (default: this machine's)",
        metavar="HOST",
        many=True,
    ),
    Option("--port", int, "the broker's port (default: 8883)", metavar="N"),
    Option("--enrolment-port", int, "port of the enrolment listener (default: 8884)", metavar="N"),
    Option(
        "--broker-folder",
        help="folder of Mosquitto's files on its machine (default: AUTHORITY/broker)",
        metavar="DIR",
    ),
)
"""What the authority keeps of the broker."""
KIND = (
    Option(
        "--days", float, "validity of a device's certificate in days (default: 365)", metavar="N", bounds=DAYS
    ),
    Option("--renew", bool, "issue a new certificate for an enrolled device"),
    Option("--gateway", bool, "DEVICE is a site: issue the certificate of its gateway"),
    Option(
        "--within",
        device_name,
        "this authority is a site's: it enrols devices named SITE.* only",
        metavar="SITE",
    ),
)
CODE = (
    Option("--code", bool, "issue a one-time code instead of an archive"),
    Option("--hours", float, "validity of a code in hours (default: %(default)s)", 24.0, "N", HOURS),
)
ARCHIVE = (
    Option("--trust", Path, "the device accepts only what this key has signed", metavar="KEY.pub"),
    Option(
        "--signing-key",
        Path,
        "the same, with the server's key: `signing-key` in federation.toml, created if missing",
        metavar="FILE",
    ),
    Option(
        "--data",
        help="data source for its client.toml, e.g. folder:PATH (default: to be set there)",
        metavar="SOURCE",
    ),
    Option("--wheel", Path, "put this package into the archive", metavar="FILE"),
)
ANSWERING = (
    Option("--serve", bool, "answer codes and renewals until Ctrl-C"),
    Option("--broker", help="with --serve: the broker (default: the devices')", metavar="URL"),
)
ENROLL_OPTIONS = (*DEVICE, *FLEET, *BROKER, *KIND, *CODE, *ARCHIVE, *ANSWERING)


def check_options(args: argparse.Namespace) -> None:
    """Raise `ConfigError` for options that do not fit together, or that name nothing usable."""
    from edge_client.security.trusted_key import read_trusted_key

    _check_device(args)
    _check_paths(args)
    _check_combinations(args)
    if args.trust is not None:
        read_trusted_key(args.trust)
    check_labels(args)


def _check_device(args: argparse.Namespace) -> None:
    from edge_server.security.identity.fleet_enrolment import check_device_name

    if args.device is None and args.fleet is None:
        raise ConfigError("enroll: which DEVICE? (--from FILE enrols those of a file, --serve needs none)")
    if args.fleet is None:
        check_device_name(args.device)


def _check_paths(args: argparse.Namespace) -> None:
    who = args.device or "the devices"
    if args.out is None:
        raise ConfigError(f"enroll: where to? --out DIR is where the files of {who} go")
    if args.out.exists() and not args.out.is_dir():
        raise ConfigError(
            "this is a file", key=f"--out {args.out}", remedy=f"name a folder for the files of {who}"
        )
    if args.wheel is not None and not args.wheel.is_file():
        raise ConfigError(f"there is no file {args.wheel}", key="--wheel")


def _check_combinations(args: argparse.Namespace) -> None:
    if args.gateway and (args.code or args.data is not None or args.wheel is not None):
        raise ConfigError(
            "an archive with certificates is all", key="--gateway", remedy="leave --code, --data, --wheel out"
        )
    if args.code and args.data is not None:
        raise ConfigError(
            "a code does not carry it", key="--data", remedy="edge-client enroll --data SOURCE writes it"
        )
    if args.trust is not None and args.signing_key is not None:
        raise ConfigError("--trust and --signing-key say the same", remedy="name one of them")
