"""The recipes, and every component that a recipe may name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.docs.generator.markdown import code, page, table
from edge_server.config.concepts import CONCEPTS, summary_of
from edge_server.config.load import read_recipe, recipe_names

ATTACKS = (
    "tests/hostile/stealth/RESULTS.md"  # its first table has a column for each recipe, a row for each attack
)
SHOWN_ATTACKS = ("label flip", "sign flip", "inner product")


def components_page() -> str:
    """Every concept with its components."""
    intro = (
        "A strategy has one component, or a list of components, per concept. "
        "In `[strategy]` a component is its name, "
        'or a table with its name and its options: `selection = "attention"`, '
        '`weighting = { name = "fedrad", lambda = 0.5 }`.'
    )
    sections = [f"## {concept}\n\n{text}\n\n{_table(known)}" for concept, (text, known) in CONCEPTS.items()]
    return page("Components", intro, *sections)


def _table(known: Mapping[str, Any]) -> str:
    """A row for each component, with what it takes on trust where one of them does."""
    trusts = {name: getattr(getattr(thing, "traits", None), "trusts", "") for name, thing in known.items()}
    names = {name: code(getattr(thing, "written", name)) for name, thing in known.items()}
    rows = [(names[name], _described(thing), trusts[name]) for name, thing in known.items()]
    if not any(trusts.values()):
        return table(("component", "what it does"), [row[:2] for row in rows])
    return table(("component", "what it does", "what it takes on trust from devices"), rows)


def _described(thing: Any) -> str:
    """The summary of a component, and what else it says of itself for the reference."""
    details = getattr(thing, "details", "")
    return f"{summary_of(thing)} ({details})" if details else summary_of(thing)


def recipes_page() -> str:
    """Every shipped recipe with its components and its source."""
    tables = [read_recipe(name) for name in recipe_names()]
    rows = [
        (
            f"[{code(found['recipe']['name'])}](#{found['recipe']['name']})",
            found["recipe"]["summary"],
            found["recipe"]["citation"],
        )
        for found in tables
    ]
    intro = (
        "A recipe is a TOML file that names the components of an algorithm. "
        'Use it with `recipe = "NAME"` in a federation file, '
        "or in place of the file: `edge-server simulate NAME`."
    )
    return page("Recipes", intro, table(("recipe", "what it does", "source"), rows), *map(_recipe, tables))


def _recipe(found: Mapping[str, Any]) -> str:
    about = found["recipe"]
    keys = [
        (code(f"{section}.{key}"), code(_written(value)))
        for section, values in found.items()
        if section != "recipe"
        for key, value in values.items()
    ]
    parts = [
        f"## {about['name']}",
        f"{about['summary']} ({about['citation']})",
        table(("key", "value"), keys),
    ]
    if found["strategy"].get("combiner", "mean") != "mean" and about["name"] in (measured := _attacked()):
        parts.append(_liar(measured[about["name"]]))
    return "\n\n".join(parts)


def _attacked() -> dict[str, dict[str, str]]:
    """The accuracy in percent of each recipe by attack, from the committed table."""
    text = (Path(__file__).parents[3] / ATTACKS).read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in text.split("\n\n# ")[0].splitlines()
        if line.startswith("|")
    ]
    return {
        name.strip("`"): {row[0]: row[column].partition(" ")[0] for row in rows[2:]}
        for column, name in enumerate(rows[0])
    }


def _liar(accuracy: Mapping[str, str]) -> str:
    attacks = ", ".join(f"{accuracy[attack]} % ({attack})" for attack in SHOWN_ATTACKS)
    return (
        f"Accuracy on digits with one liar among five devices and `leave-one-out = 0`: {attacks}; "
        f"{accuracy['silent']} % if that device is silent, {accuracy['no liar']} % if it is honest "
        f"([all attacks](../../../{ATTACKS}))."
    )


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_written(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
