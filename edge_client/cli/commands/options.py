"""Options shared by several verbs."""

import argparse
from pathlib import Path


def add_tls_options(parser: argparse.ArgumentParser, *, whose: str) -> None:
    """Add the options for the files of mutual TLS."""
    parser.add_argument("--ca", type=Path, help="certificate of the broker's authority (mqtts://)")
    parser.add_argument("--cert", type=Path, help=f"{whose} certificate (mqtts://)")
    parser.add_argument("--key", type=Path, help=f"{whose} private key (mqtts://)")
