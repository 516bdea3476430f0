"""`edge-server components`: list the components of strategies."""

import argparse

from edge_client.cli.options import Option
from edge_client.system.plain_text import print_rows
from edge_client.system.plugins import Registry
from schemas.errors import ConfigError, nearest

HELP = "list what a strategy may be made of"
EXAMPLES = """\
A recipe names one component, or a list of components, per concept: weighting = "fedrad". Packages add
components by entry points of the group edge_federation.CONCEPT; the column "from" names the package.

  edge-server components weighting
"""


OPTIONS = (Option("concept", help="only these (default: all concepts)", metavar="CONCEPT", nargs="?"),)


def execute(args: argparse.Namespace) -> int:
    from edge_server.config.concepts import CONCEPTS

    if args.concept is not None and args.concept not in CONCEPTS:
        raise ConfigError(f"unknown concept '{args.concept}'{nearest(args.concept, CONCEPTS)}")
    found = [
        {"concept": concept, "name": name, "from": registry.origin(name), "summary": _summary(registry, name)}
        for concept, (_, registry) in CONCEPTS.items()
        if args.concept in (None, concept)
        for name in registry
    ]
    rows = [(row["concept"], row["name"], row["from"] or "-", row["summary"]) for row in found]
    return print_rows(args, found, ("concept", "component", "from", "what it does"), rows)


def _summary(registry: Registry[object], name: str) -> str:
    """The summary of a component, or why a plugin cannot be used."""
    from edge_server.config.concepts import summary_of

    try:
        return summary_of(registry[name])
    except ConfigError as error:
        return str(error)
