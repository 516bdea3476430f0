"""What `service.toml` says of a federation, for commands on its authority."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_server.fleet.settings.service import ServedFederation


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
    completed.authority = served.authority.expanduser()
    pid_file = served.mosquitto_pid_file
    stated = getattr(args, "mosquitto_pid", None) or getattr(args, "mosquitto_pid_file", None)
    if pid_file is not None and not stated:
        completed.mosquitto_pid_file = pid_file.expanduser()
    return completed
