"""`edge-server serve`: the service that follows a fleet."""

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, log_options
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import say

if TYPE_CHECKING:
    from edge_server.fleet.settings.service import ServedFederation
    from edge_server.storage.service_folder import ServiceFolder

HELP = "follow a fleet of devices"
EXAMPLES = """\
examples:
  edge-server serve /var/lib/edge-fleet      the first start writes service.toml: name your federations there
  edge-server devices --service /var/lib/edge-fleet        what the service knows of the devices

The folder has the settings (service.toml), the inventory of devices, the queue of jobs with their runs,
users, alerts, and the audit log. Commands with --service read and change it, whether or not the service
runs. After a kill the same command continues.
"""
TEMPLATE = """\
# Settings of `edge-server serve`; restart the service after a change.

# One table per federation whose devices the service follows.
#[[federations]]
#name = "home"
#broker = "mqtts://broker.example:8883"
#authority = "/var/lib/edge-authority/home"     # of `edge-server enroll`; without certificates leave it out

# Who hears of a silent board: `edge-server alerts --help`.
#[[alerts.rules]]
#when = "silent-for"
#value = "2h"

#[alerts.receivers.ops]
#kind = "webhook"
#url = "https://ops.example/hook"
"""


OPTIONS = (
    Option("folder", Path, "folder of the service, made if missing", metavar="DIR"),
    *log_options("info"),
)


SERVICE = Option(
    "--service",
    Path,
    "folder of `edge-server serve` (default: $EDGE_SERVICE, else ~/.local/share/edge-federation/service)",
    metavar="DIR",
)


def service_folder(args: argparse.Namespace) -> "ServiceFolder":
    """The folder of `--service`, or the usual one; raises `ConfigError` if there is none."""
    from edge_server.storage.service_folder import open_service_folder

    return open_service_folder(args.service)


def execute(args: argparse.Namespace) -> int:
    from edge_client.storage.atomic_files import usable_folder
    from edge_server.coordinator.launch import stopped_by_signals
    from edge_server.fleet.service import FleetService, make_parts
    from edge_server.fleet.settings.service import load_service_settings
    from edge_server.storage.service_folder import ServiceFolder

    folder = ServiceFolder(usable_folder(args.folder, option="DIR"))
    if not folder.settings.exists():
        folder.settings.write_text(TEMPLATE)
        say(f"edge-server: wrote {folder.settings}: name your federations there", file=sys.stderr)
    settings = load_service_settings(folder.settings)
    begin_log(args, level=logging.INFO)
    with folder.lock_folder():
        service = FleetService(folder, settings, make_parts)
        with stopped_by_signals(service.stop):
            service.run()
    return 0


def served_federation(args: argparse.Namespace, name: str) -> "ServedFederation | None":
    """The table of this federation in the folder of `--service`, or in the default one; None without any."""
    from edge_server.fleet.settings.service import load_service_settings
    from edge_server.storage.service_folder import ServiceFolder, default_service_folder

    settings = load_service_settings(ServiceFolder(args.service or default_service_folder()).settings)
    return next((served for served in settings.federations if served.name == name), None)


def with_served(args: argparse.Namespace, name: str) -> argparse.Namespace:
    """The options, with the authority and Mosquitto's pid file of `service.toml` where they name none."""
    completed = argparse.Namespace(**vars(args))
    served = served_federation(args, name)
    if served is None or served.authority is None or args.authority is not None:
        return completed
    completed.authority = served.authority
    pid_file = served.mosquitto_pid_file
    stated = getattr(args, "mosquitto_pid", None) or getattr(args, "mosquitto_pid_file", None)
    if pid_file is not None and not stated:
        completed.mosquitto_pid_file = pid_file
    return completed
