"""`edge-server recipes`: the algorithms that ship as data."""

from __future__ import annotations

import argparse

from edge_client.command_output import Subparsers, add_verb, print_json, print_table

EXAMPLES = """\
A recipe is a short TOML file that names pieces. Use one with `recipe = "attending"` in a federation file, or
by its name: edge-server run attending data.source=digits
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "recipes", help="list the shipped recipes", examples=EXAMPLES)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print a line per recipe."""
    from edge_server.recipe_files import read_recipe, recipe_names

    recipes = [read_recipe(name)["recipe"] for name in recipe_names()]
    if args.format == "json":
        print_json(recipes)
    else:
        rows = [(recipe["name"], recipe["summary"], recipe["citation"]) for recipe in recipes]
        print_table(("recipe", "what it does", "source"), rows)
    return 0
