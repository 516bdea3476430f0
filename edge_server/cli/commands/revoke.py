"""`edge-server revoke`: exclude a device."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import AT_LEAST_1, Option
from edge_client.system.plain_text import print_result
from edge_server.cli.commands.enroll_options import AUTHORITY
from edge_server.cli.commands.fleet.serve import SERVICE, with_served

if TYPE_CHECKING:
    from edge_server.security.identity.authority import Authority
    from edge_server.security.identity.revocation import Revocation

HELP = "exclude a device"
EXAMPLES = """\
examples:
  edge-server revoke pi-attic --mosquitto-pid-file /run/mosquitto/mosquitto.pid
  edge-server revoke pi-attic          for a Mosquitto elsewhere: prints what to do there
  edge-server revoke pi-attic --federation home --service DIR     with the authority that service.toml names

Mosquitto reads its revocation list again on SIGHUP, and checks it when a client connects. With the pid (of a
Mosquitto that reads AUTHORITY/broker) the command sends the signal, and then closes the device's open
connection by briefly using its client identifier.
"""


MOSQUITTO = (
    Option("--mosquitto-pid", int, "send it SIGHUP", metavar="PID", bounds=AT_LEAST_1),
    Option("--mosquitto-pid-file", Path, "send SIGHUP to the pid in this file", metavar="FILE"),
    Option("--evict", bool, "close its connection, after a manual SIGHUP"),
    Option("--broker", help="the device's broker (default: the devices' broker)", metavar="URL"),
)
"""The options that let a broker know of a revocation."""
OPTIONS = (
    Option("device", metavar="DEVICE"),
    Option("--federation", help="(default: %(default)s)", default="federation", metavar="NAME"),
    AUTHORITY,
    *MOSQUITTO,
    SERVICE,
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.revocation import check_is_known, revoke_certificates
    from edge_server.security.identity.settings import default_folder

    args = with_served(args, args.federation)
    authority = open_authority(args.authority or default_folder(args.federation))
    check_is_known(authority, args.device)
    count = revoke_certificates(authority, args.device)
    _record(args, authority.settings.federation, count)
    done = tell_mosquitto(args, authority, args.device, count)
    about = {"certificates": count, "reloaded": done.reloaded, "evicted": done.evicted}
    return print_result(args, {"device": args.device, **about}, *done.lines())


def tell_mosquitto(
    args: argparse.Namespace, authority: "Authority", device: str, certificates: int
) -> "Revocation":
    """Let the broker of the options read the revocation list, and end the device's connection."""
    from edge_server.security.identity.revocation import notify_broker, read_pid

    pid = read_pid(args.mosquitto_pid_file) if args.mosquitto_pid_file else args.mosquitto_pid
    return notify_broker(authority, device, certificates, pid=pid, end=args.evict, broker=args.broker)


def _record(args: argparse.Namespace, federation: str, certificates: int) -> None:
    """Enter the revocation in the inventory and the audit log of the service folder, if there is one."""
    from edge_server.storage.audit_log import local_user
    from edge_server.storage.inventory.enrolments import enrolment_entries

    with enrolment_entries(args.service, federation) as entries:
        if entries is not None:
            entries.record_revocation(
                args.device, certificates=certificates, at=time.time(), who=local_user()
            )
