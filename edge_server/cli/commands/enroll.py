"""`edge-server enroll`: issue a device's identity."""

import argparse
import logging
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.options import log_options
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import print_result, say
from edge_server.cli.commands import enroll_fleet, enroll_issue
from edge_server.cli.commands.enroll_options import ENROLL_OPTIONS, check_options
from edge_server.cli.commands.fleet.serve import with_served
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.security.identity.authority import Authority


HELP = "issue a device's certificate"
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
interruption the same command continues, and keeps the archives that are there. Labels and notes go into the
inventory of the service folder, labels also into each client.toml.

A site has an authority of its own, for its own broker; the federation's signs the gateway's certificate and
no other of the site. So the federation's broker believes nothing that a site's authority has signed, and the
gateway's certificate opens the topics of its own site only.
"""


OPTIONS = (*ENROLL_OPTIONS, *log_options("info, with --serve"))


def execute(args: argparse.Namespace) -> int:
    from edge_server.security.identity.fleet_enrolment import check_name_of_site
    from edge_server.security.identity.settings import default_folder

    args = with_served(args, args.federation)
    folder = args.authority or default_folder(args.federation)
    if folder.exists() and not folder.is_dir():
        raise ConfigError("this is a file", key=f"--authority {folder}", remedy="name the authority's folder")
    if args.serve:
        return _serve(args, folder)
    if args.listed:
        return enroll_fleet.list_enrolled(args, folder)
    check_options(args)
    if args.fleet is not None:
        rows = enroll_fleet.read_rows(args, folder)
        return enroll_fleet.enrol_fleet(args, authority_of(args, folder), rows)
    authority = authority_of(args, folder)
    check_name_of_site(authority, args.device, gateway=args.gateway)
    with authority.lock_folder():
        if args.gateway:
            return _give_gateway(args, authority)
        return _give_code(args, authority) if args.code else _give_archive(args, authority)


def _give_archive(args: argparse.Namespace, authority: "Authority") -> int:
    from edge_server.security.identity.bundle import write_bundle

    _check_is_new(args, authority)
    path = write_bundle(
        authority,
        args.device,
        args.out,
        trust=enroll_issue.trusted_key(args),
        wheel=args.wheel,
        data=args.data,
        labels=enroll_issue.stated_labels(args),
    )
    enroll_issue.enter(args, authority)
    lines = [
        f"{path}: bring it to the board over a channel that you trust, then there",
        f"  tar xf {path.name} && sudo ./{args.device}/install.sh",
    ]
    if args.data is None:
        lines.append(f"with `data` set in {args.device}/client.toml first: what the device learns from")
    lines.append(f"and delete it here: it holds {args.device}'s private key")
    return _print(args, authority, {"archive": str(path)}, *lines)


def _give_gateway(args: argparse.Namespace, authority: "Authority") -> int:
    from edge_server.security.identity.bundle import write_gateway_bundle

    _check_is_new(args, authority)
    path = write_gateway_bundle(authority, args.device, args.out)
    return _print(
        args,
        authority,
        {"archive": str(path)},
        f"{path}: bring it to the gateway over a channel that you trust, as /etc/edge-gateway",
        f'in the server\'s file: [federation] sites = ["{args.device}"]',
    )


def _give_code(args: argparse.Namespace, authority: "Authority") -> int:
    from edge_client.security.identity.certificates import fingerprint
    from edge_server.security.identity.enrolment_codes import withdraw_codes
    from schemas.security.enrolment import encode_code

    _check_is_new(args, authority)
    withdraw_codes(authority)
    code, path = enroll_issue.write_code(args, authority, args.device, enroll_issue.trusted_key(args))
    text = encode_code(code)
    enroll_issue.enter(args, authority)
    print_of = fingerprint(authority.root.certificate)
    return _print(
        args,
        authority,
        {"file": str(path), "code": text, "expires": code.expires, "fingerprint": print_of},
        f"{path}: good for {args.device}, once, for {args.hours:g} h; anyone who has it can use it",
        f"on the board: edge-client enroll --code {path.name}   (or the line in it instead)",
        f"authority's fingerprint, to compare with --fingerprint: {print_of}",
        f"it is answered by: edge-server enroll --serve{authority.option}",
    )


def _check_is_new(args: argparse.Namespace, authority: "Authority") -> None:
    if not args.renew and (authority.folder / "devices" / args.device).exists():
        remedy = "--renew gives it another certificate (edge-server revoke ends those that it has)"
        raise ConfigError(f"{args.device} is enrolled already", remedy=remedy)


def _print(args: argparse.Namespace, authority: "Authority", about: dict[str, object], *lines: str) -> int:
    whose = {"authority": str(authority.folder), "broker": authority.settings.broker}
    return print_result(args, {"device": args.device, **whose, **about}, *lines)


def _serve(args: argparse.Namespace, folder: Path) -> int:
    from edge_client.transport.broker_link import TlsFiles, parse_address
    from edge_server.coordinator.launch import stopped_by_signals
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.service import RegistrationService

    if args.device is not None:
        raise ConfigError("--serve answers every device", remedy=f"leave out '{args.device}'")
    begin_log(args, level=logging.INFO, federation=args.federation)
    authority = open_authority(folder)
    identity = folder / "service"
    files = TlsFiles(identity / "ca.pem", identity / "service.pem", identity / "service.key")
    service = RegistrationService(authority, parse_address(args.broker or authority.settings.broker, files))
    with stopped_by_signals(service.stop):
        service.run()
    return 0


OPTION_OF_KEY = {
    "hosts": "--host",
    "door-port": "--enrolment-port",
    "device-days": "--days",
    "site": "--within",
}  # The option of each key of `authority.toml` that is called otherwise


def authority_of(args: argparse.Namespace, folder: Path) -> "Authority":
    """The existing authority, with the given broker settings, or a new one, which has nothing to renew."""
    from pydantic import ValidationError

    from edge_server.security.identity.authority import renew_service_certificates
    from edge_server.security.identity.settings import FILE
    from schemas.base import kebab

    open_or_make = _open_authority if args.renew or (folder / FILE).exists() else _make_authority
    try:
        authority = open_or_make(args, folder)
    except ValidationError as error:
        problem = error.errors()[0]
        key = kebab(str(problem["loc"][0]))
        raise ConfigError(f"{OPTION_OF_KEY.get(key, f'--{key}')}: {problem['msg']}") from error
    with authority.lock_folder():
        renew_service_certificates(authority)
    return authority


def _parse_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of an authority that the options state."""
    options = {
        "hosts": tuple(args.host) if args.host else None,
        "port": args.port,
        "enrolment_port": args.enrolment_port,
        "device_days": args.days,
        "broker_folder": args.broker_folder,
        "site": args.within,
    }
    return {key: value for key, value in options.items() if value is not None}


def _open_authority(args: argparse.Namespace, folder: Path) -> "Authority":
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.settings import AuthoritySettings

    authority = open_authority(folder)
    settings = authority.settings
    if args.federation not in (settings.federation, "federation"):
        raise ConfigError(
            f"the authority in {folder} is of federation '{settings.federation}', not '{args.federation}'"
        )
    if args.within not in (None, settings.site):
        raise ConfigError(
            f"--within {args.within}: the authority in {folder} is that of "
            + (f"the site '{settings.site}'" if settings.site else "a whole federation")
        )
    return replace(
        authority,
        settings=AuthoritySettings.model_validate({**settings.model_dump(), **_parse_settings(args)}),
    )


def _make_authority(args: argparse.Namespace, folder: Path) -> "Authority":
    from edge_server.security.identity.authority import make_authority
    from edge_server.security.identity.settings import AuthoritySettings

    own = {"hosts": tuple(dict.fromkeys((socket.gethostname(), "localhost", "127.0.0.1")))}
    settings = AuthoritySettings.model_validate(
        {"federation": args.federation, **own, **_parse_settings(args)}
    )
    authority = make_authority(folder, settings)
    if args.format != "json":
        say(f"made the authority of '{args.federation}' in {folder}: keep it private, keep a copy")
    return authority
