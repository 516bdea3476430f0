"""`edge-server enroll`: issue a device's identity."""

import argparse
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.output import Subparsers, add_verb, positive_float, print_json
from edge_client.system.logging.setup import add_log_options, begin_log
from edge_server.cli.commands.enroll_fleet import enrol_fleet, list_enrolled, read_rows
from edge_server.cli.commands.enroll_issue import check_labels, enter, stated_labels, trusted_key, write_code
from edge_server.cli.commands.serve import add_service_option
from edge_server.cli.commands.served import with_served
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.security.identity.authority import Authority

EXAMPLES = """\
examples:
  edge-server enroll pi-kitchen --out boards --host broker.lan   first use: creates authority and broker files
  edge-server enroll pi-garage --out boards --data folder:/srv/photos       with a data source in client.toml
  edge-server enroll pi-attic --code --out boards        a code: the device generates its own key
  edge-server enroll --serve                             answer codes and renew certificates; keep it running
  edge-server enroll --from fleet.csv --out boards       one archive per row: columns device, label.site, note
  edge-server enroll --list                              who is enrolled until when, and when it was last seen
  edge-server enroll pi-garage --out boards --renew      a new certificate for a lost one
  edge-server enroll barn --gateway --out boards         the certificate of a site's gateway
  edge-server enroll barn.pi-1 --within barn --authority barn-ca --out boards   at the site: a device of it

The authority is one folder per federation with the signing keys: keep it private and keep a copy. Its
`broker/` is all that Mosquitto needs (mosquitto -c AUTHORITY/broker/mosquitto.conf), `server/` is for
`edge-server run --ca --cert --key`. A device needs only its archive.

A fleet file (--from) is CSV with a header, or JSON: `device`, and where wanted `label.KEY` or `labels`
(site=barn;role=camera), `note`, `data`. It is checked as a whole before anything is issued. After an
interruption the same command goes on, and keeps the archives that are there. Labels and notes go into the
inventory of the service folder, labels also into each client.toml.

A site has an authority of its own, for its own broker; the federation's signs the gateway's certificate and
no other of the site. So the federation's broker believes nothing that a site's authority has signed, and the
gateway's certificate opens the topics of its own site only.
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "enroll", help="issue a device's certificate", examples=EXAMPLES)
    parser.add_argument("device", nargs="?", metavar="DEVICE", help="the device's name, the certificate's CN")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the archive or the code")
    parser.add_argument("--federation", default="federation", metavar="NAME", help="(default: %(default)s)")
    add_authority_option(parser)
    _add_fleet_options(parser)
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
    parser.add_argument(
        "--days",
        type=positive_float,
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
    parser.add_argument("--code", action="store_true", help="issue a one-time code instead of an archive")
    parser.add_argument(
        "--hours",
        type=positive_float,
        default=24.0,
        metavar="N",
        help="validity of a code in hours (default: %(default)s)",
    )
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
    parser.add_argument("--serve", action="store_true", help="answer codes and renewals until Ctrl-C")
    parser.add_argument("--broker", metavar="URL", help="with --serve: the broker (default: the devices')")
    add_log_options(parser, level="info, with --serve")
    parser.set_defaults(execute=execute)


def _add_fleet_options(parser: argparse.ArgumentParser) -> None:
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


def add_authority_option(parser: argparse.ArgumentParser) -> None:
    """Add `--authority`."""
    parser.add_argument(
        "--authority",
        type=Path,
        metavar="DIR",
        help="the authority's folder (default: ~/.local/share/edge-federation/authority/FEDERATION)",
    )


def execute(args: argparse.Namespace) -> int:
    """Enrol a device or a fleet, list who is enrolled, or serve requests for certificates."""
    from edge_server.security.identity.device_names import check_name_of_site
    from edge_server.security.identity.settings import default_folder

    args = with_served(args, args.federation)
    folder = args.authority or default_folder(args.federation)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--authority {folder}: this is a file; name the authority's folder")
    if args.serve:
        return _serve(args, folder)
    if args.listed:
        return list_enrolled(args, folder)
    _check_words(args)
    if args.fleet is not None:
        rows = read_rows(args, folder)
        return enrol_fleet(args, _authority(args, folder), rows)
    authority = _authority(args, folder)
    check_name_of_site(authority, args.device, gateway=args.gateway)
    with authority.locked():
        if args.gateway:
            return _give_gateway(args, authority)
        return _give_code(args, authority) if args.code else _give_archive(args, authority)


def _check_words(args: argparse.Namespace) -> None:
    from edge_client.security.trusted_key import read_trusted_key
    from edge_server.security.identity.device_names import check_device_name
    from schemas.names import is_name

    if args.device is None and args.fleet is None:
        raise ConfigError("enroll: which DEVICE? (--from FILE enrols those of a file, --serve needs none)")
    if args.fleet is None:
        check_device_name(args.device)
    who = args.device or "the devices"
    if args.out is None:
        raise ConfigError(f"enroll: where to? --out DIR is where {who}'s files go")
    if args.out.exists() and not args.out.is_dir():
        raise ConfigError(f"--out {args.out}: this is a file; name a folder for {who}'s files")
    if args.wheel is not None and not args.wheel.is_file():
        raise ConfigError(f"--wheel: there is no file {args.wheel}")
    if args.gateway and (args.code or args.data is not None or args.wheel is not None):
        raise ConfigError("--gateway: an archive with certificates is all: leave --code, --data, --wheel out")
    if args.within is not None and not is_name(args.within):
        raise ConfigError(f"--within '{args.within}': 1 to 64 letters, digits, dots, dashes, underscores")
    if args.code and args.data is not None:
        raise ConfigError("--data: a code does not carry it: edge-client enroll --data SOURCE writes it")
    if args.trust is not None and args.signing_key is not None:
        raise ConfigError("--trust and --signing-key say the same: name one of them")
    if args.trust is not None:
        read_trusted_key(args.trust)
    check_labels(args)


def _authority(args: argparse.Namespace, folder: Path) -> "Authority":
    """The existing authority, with the given broker settings, or a new one."""
    from dataclasses import replace

    from pydantic import ValidationError

    from edge_server.security.identity.authority import (
        make_authority,
        open_authority,
        renew_service_certificates,
    )
    from edge_server.security.identity.settings import FILE, AuthoritySettings

    options = {
        "hosts": tuple(args.host) if args.host else None,
        "port": args.port,
        "door_port": args.enrolment_port,
        "device_days": args.days,
        "broker_folder": args.broker_folder,
        "site": args.within,
    }
    stated = {key: value for key, value in options.items() if value is not None}
    try:
        if (folder / FILE).exists():
            authority = open_authority(folder)
            _check_federation(args, authority)
            known = authority.settings.model_dump()
            if args.within not in (None, known["site"]):
                raise ConfigError(
                    f"--within {args.within}: the authority in {folder} is that of "
                    + (f"the site '{known['site']}'" if known["site"] else "a whole federation")
                )
            authority = replace(authority, settings=AuthoritySettings.model_validate({**known, **stated}))
        else:
            own = {"hosts": tuple(dict.fromkeys((socket.gethostname(), "localhost", "127.0.0.1")))}
            settings = AuthoritySettings.model_validate({"federation": args.federation, **own, **stated})
            authority = make_authority(folder, settings)
            _say(args, f"made the authority of '{args.federation}' in {folder}: keep it private, keep a copy")
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(f"--{'-'.join(str(problem['loc'][0]).split('_'))}: {problem['msg']}") from error
    with authority.locked():
        renew_service_certificates(authority)
    return authority


def _check_federation(args: argparse.Namespace, authority: "Authority") -> None:
    mine = authority.settings.federation
    if args.federation not in (mine, "federation"):
        raise ConfigError(
            f"the authority in {authority.folder} is of federation '{mine}', not '{args.federation}'"
        )


def _give_archive(args: argparse.Namespace, authority: "Authority") -> int:
    from edge_server.security.identity.bundle import write_bundle

    _check_is_new(args, authority)
    path = write_bundle(
        authority,
        args.device,
        args.out,
        trust=trusted_key(args),
        wheel=args.wheel,
        data=args.data,
        labels=stated_labels(args),
    )
    enter(args, authority)
    _finish(args, authority, {"archive": str(path)})
    _say(args, f"{path}: bring it to the board over a channel that you trust, then there")
    _say(args, f"  tar xf {path.name} && sudo ./{args.device}/install.sh")
    if args.data is None:
        _say(args, f"with `data` set in {args.device}/client.toml first: what the device learns from")
    _say(args, f"and delete it here: it holds {args.device}'s private key")
    return 0


def _give_gateway(args: argparse.Namespace, authority: "Authority") -> int:
    from edge_server.security.identity.bundle import write_gateway_bundle

    _check_is_new(args, authority)
    path = write_gateway_bundle(authority, args.device, args.out)
    _finish(args, authority, {"archive": str(path)})
    _say(args, f"{path}: bring it to the gateway over a channel that you trust, as /etc/edge-gateway")
    _say(args, f'in the server\'s file: [federation] sites = ["{args.device}"]')
    return 0


def _give_code(args: argparse.Namespace, authority: "Authority") -> int:
    from edge_client.security.identity.certificates import fingerprint
    from edge_server.security.identity.enrolment_codes import withdraw_codes
    from schemas.security.enrolment import encode_code

    _check_is_new(args, authority)
    withdraw_codes(authority)
    code, path = write_code(args, authority, args.device, trusted_key(args))
    text = encode_code(code)
    enter(args, authority)
    print_of = fingerprint(authority.root.certificate)
    _finish(
        args, authority, {"file": str(path), "code": text, "expires": code.expires, "fingerprint": print_of}
    )
    _say(args, f"{path}: good for {args.device}, once, for {args.hours:g} h; anyone who has it can use it")
    _say(args, f"on the board: edge-client enroll --code {path.name}   (or the line in it instead)")
    _say(args, f"authority's fingerprint, to compare with --fingerprint: {print_of}")
    _say(args, "it is answered by: edge-server enroll --serve")
    return 0


def _check_is_new(args: argparse.Namespace, authority: "Authority") -> None:
    if not args.renew and (authority.folder / "devices" / args.device).exists():
        remedy = "--renew gives it another certificate (edge-server revoke ends those that it has)"
        raise ConfigError(f"{args.device} is enrolled already: {remedy}")


def _finish(args: argparse.Namespace, authority: "Authority", about: dict[str, object]) -> None:
    if args.format == "json":
        folder = str(authority.folder)
        print_json({"device": args.device, "authority": folder, "broker": authority.settings.broker, **about})


def _say(args: argparse.Namespace, line: str) -> None:
    if args.format != "json":
        print(line)


def _serve(args: argparse.Namespace, folder: Path) -> int:
    from edge_client.transport.broker_address import TlsFiles, parse_address
    from edge_server.coordinator.launch import stopped_by_signals
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.service import RegistrationService

    if args.device is not None:
        raise ConfigError(f"--serve answers every device: leave out '{args.device}'")
    begin_log(args, level=logging.INFO, federation=args.federation)
    authority = open_authority(folder)
    identity = folder / "service"
    files = TlsFiles(identity / "ca.pem", identity / "service.pem", identity / "service.key")
    service = RegistrationService(authority, parse_address(args.broker or authority.settings.broker, files))
    with stopped_by_signals(service.stop):
        service.run()
    return 0
