"""`edge-server recipes`: list the shipped algorithms."""

import argparse
from collections.abc import Mapping
from typing import Any

from edge_client.system.plain_text import print_json, print_table, say

HELP = "list the shipped recipes"
EXAMPLES = """\
A recipe is a short TOML file that names components. Use one with `recipe = "attending"` in a federation file,
or by its name: edge-server run attending data.source=digits
"""


OPTIONS = ()


def execute(args: argparse.Namespace) -> int:
    from edge_server.config.load import read_recipe, recipe_names

    tables = [read_recipe(name) for name in recipe_names()]
    recipes = [{**table["recipe"], "trusts": _trusts(table)} for table in tables]
    if args.format == "json":
        print_json(recipes)
        return 0
    rows = [(recipe["name"], recipe["summary"], ", ".join(recipe["trusts"]) or "-") for recipe in recipes]
    print_table(("recipe", "what it does", "takes on trust"), rows)
    say("\nWhat the last column means: edge-server check RECIPE firewall.strict=true")
    say("What each is from: edge-server recipes --format json")
    return 0


def _trusts(table: Mapping[str, Any]) -> list[str]:
    """The components that trust devices' reports, in the words of `[firewall] strict`."""
    from edge_server.config.checks.advice import trusted_components
    from schemas.strategy import StrategySpec

    spec = StrategySpec.model_validate(table.get("strategy", {}), by_alias=True, by_name=False)
    return [name for _, name, _ in trusted_components(spec)]
