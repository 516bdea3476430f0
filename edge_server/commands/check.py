"""`edge-server check`: is a federation file right?"""

from __future__ import annotations

import argparse

from edge_client.command_output import Subparsers, add_verb, print_json

EXAMPLES = """\
examples:
  edge-server check federation.toml
  edge-server check attending training.learning-rate=0.05
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(
        subparsers, "check", help="check a federation file without running it", examples=EXAMPLES
    )
    parser.add_argument(
        "config", metavar="FEDERATION.toml|RECIPE", help="federation file, or a recipe's name"
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="put over the file, e.g. rounds=3")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the resolved file; raises `ConfigError` for a wrong one."""
    from edge_server.config import load_config
    from edge_server.feasibility import check_partition

    config = load_config(args.config, args.overrides)
    check_partition(config, args.config)
    if args.format == "json":
        print_json(config.model_dump(mode="json", by_alias=True, exclude_none=True))
    else:
        print(f"# {args.config} is right; this is what it means, defaults included.\n")
        print(config.to_toml(), end="")
    return 0
