"""Options shared by several verbs."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from edge_client.cli.config_option import ReadConfig


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the device's name and its broker."""
    parser.add_argument(
        "--config", action=ReadConfig, dest="config_file", metavar="FILE", help="client.toml: options as keys"
    )
    parser.add_argument(
        "--broker", default="mqtt://127.0.0.1:1883", metavar="URL", help="(default: %(default)s)"
    )
    add_tls_options(parser, whose="this device's")
    parser.add_argument("--federation", default="federation", metavar="NAME", help="(default: %(default)s)")
    parser.add_argument(
        "--device-id", default=socket.gethostname(), metavar="NAME", help="(default: host name)"
    )


def add_tls_options(parser: argparse.ArgumentParser, *, whose: str) -> None:
    """Add the options for the files of mutual TLS."""
    parser.add_argument("--ca", type=Path, help="certificate of the broker's authority (mqtts://)")
    parser.add_argument("--cert", type=Path, help=f"{whose} certificate (mqtts://)")
    parser.add_argument("--key", type=Path, help=f"{whose} private key (mqtts://)")
