"""The options of `edge-server enroll`, and which of them fit together."""

import argparse
from pathlib import Path

from edge_client.cli.output import time_in
from edge_server.cli.commands.enroll_issue import check_labels
from edge_server.cli.commands.fleet.serve import add_service_option
from schemas.errors import ConfigError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every option but those of the log."""
    _add_device_options(parser)
    _add_fleet_options(parser)
    _add_broker_options(parser)
    _add_kind_options(parser)
    _add_code_options(parser)
    _add_archive_options(parser)
    _add_serve_options(parser)


def _add_device_options(parser: argparse.ArgumentParser) -> None:
    """The device, where its files go, and who signs."""
    parser.add_argument("device", nargs="?", metavar="DEVICE", help="the device's name, the certificate's CN")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the archive or the code")
    parser.add_argument("--federation", default="federation", metavar="NAME", help="(default: %(default)s)")
    add_authority_option(parser)


def _add_fleet_options(parser: argparse.ArgumentParser) -> None:
    """Many devices at once, and what the inventory says of them."""
    parser.add_argument(
        "--from",
        dest="fleet",
        type=Path,
        metavar="FILE",
        help="enrol the devices of a fleet file, CSV or JSON",
    )
    parser.add_argument(
        "--list", action="store_true", dest="listed", help="list who is enrolled until when, and end"
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a label for its client.toml and for the inventory (repeatable)",
    )
    parser.add_argument("--note", metavar="TEXT", help="a note for the inventory")
    add_service_option(parser)


def _add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Settings of the broker, which the authority keeps."""
    parser.add_argument(
        "--host",
        action="append",
        metavar="HOST",
        help="name or address of the broker (repeatable); devices use the first (default: this machine's)",
    )
    parser.add_argument("--port", type=int, metavar="N", help="the broker's port (default: 8883)")
    parser.add_argument(
        "--enrolment-port", type=int, metavar="N", help="port of the enrolment listener (default: 8884)"
    )
    parser.add_argument(
        "--broker-folder",
        metavar="DIR",
        help="folder of Mosquitto's files on its machine (default: AUTHORITY/broker)",
    )


def _add_kind_options(parser: argparse.ArgumentParser) -> None:
    """What kind of certificate is issued."""
    parser.add_argument(
        "--days",
        type=time_in(86_400),
        metavar="N",
        help="validity of a device's certificate in days (default: 365)",
    )
    parser.add_argument("--renew", action="store_true", help="issue a new certificate for an enrolled device")
    parser.add_argument(
        "--gateway", action="store_true", help="DEVICE is a site: issue the certificate of its gateway"
    )
    parser.add_argument(
        "--within", metavar="SITE", help="this authority is a site's: it enrols devices named SITE.* only"
    )


def _add_code_options(parser: argparse.ArgumentParser) -> None:
    """One-time codes."""
    parser.add_argument("--code", action="store_true", help="issue a one-time code instead of an archive")
    parser.add_argument(
        "--hours",
        type=time_in(3600),
        default=24.0,
        metavar="N",
        help="validity of a code in hours (default: %(default)s)",
    )


def _add_archive_options(parser: argparse.ArgumentParser) -> None:
    """What the archive of a device holds."""
    parser.add_argument(
        "--trust", type=Path, metavar="KEY.pub", help="the device accepts only what this key has signed"
    )
    parser.add_argument(
        "--signing-key",
        type=Path,
        metavar="FILE",
        help="the same, with the server's key: `signing-key` in federation.toml, created if missing",
    )
    parser.add_argument(
        "--data",
        metavar="SOURCE",
        help="data source for its client.toml, e.g. folder:PATH (default: to be set there)",
    )
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="put this package into the archive")


def _add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Answering requests of devices."""
    parser.add_argument("--serve", action="store_true", help="answer codes and renewals until Ctrl-C")
    parser.add_argument("--broker", metavar="URL", help="with --serve: the broker (default: the devices')")


def add_authority_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--authority",
        type=Path,
        metavar="DIR",
        help="the authority's folder (default: ~/.local/share/edge-federation/authority/FEDERATION)",
    )


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
    from edge_server.security.identity.device_names import check_device_name
    from schemas.names import is_name

    if args.device is None and args.fleet is None:
        raise ConfigError("enroll: which DEVICE? (--from FILE enrols those of a file, --serve needs none)")
    if args.fleet is None:
        check_device_name(args.device)
    if args.within is not None and not is_name(args.within):
        raise ConfigError(f"--within '{args.within}': 1 to 64 letters, digits, dots, dashes, underscores")


def _check_paths(args: argparse.Namespace) -> None:
    who = args.device or "the devices"
    if args.out is None:
        raise ConfigError(f"enroll: where to? --out DIR is where {who}'s files go")
    if args.out.exists() and not args.out.is_dir():
        raise ConfigError(f"--out {args.out}: this is a file; name a folder for {who}'s files")
    if args.wheel is not None and not args.wheel.is_file():
        raise ConfigError(f"--wheel: there is no file {args.wheel}")


def _check_combinations(args: argparse.Namespace) -> None:
    if args.gateway and (args.code or args.data is not None or args.wheel is not None):
        raise ConfigError("--gateway: an archive with certificates is all: leave --code, --data, --wheel out")
    if args.code and args.data is not None:
        raise ConfigError("--data: a code does not carry it: edge-client enroll --data SOURCE writes it")
    if args.trust is not None and args.signing_key is not None:
        raise ConfigError("--trust and --signing-key say the same: name one of them")
