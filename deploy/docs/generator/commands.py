"""The commands: one section per verb, with its arguments as argparse knows them."""

import argparse
from collections.abc import Iterator, Mapping

from deploy.docs.generator.markdown import code, page, table
from edge_client.cli.app import CommandLine
from edge_client.cli.commands.run import SOURCES_HELP


def command_page(command: CommandLine) -> str:
    """All verbs of one command."""
    parser = command.parser()
    verbs = _verbs(parser)
    sections = [_section(verb) for verb in verbs.values()]
    listed = [(f"[{name}](#{command.prog}-{name})", _help(parser, name)) for name in verbs]
    examples = f"```text\n{command.examples.strip()}\n```"
    return page(
        command.prog, command.description, table(("verb", "what it does"), listed), examples, *sections
    )


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction]:  # type: ignore[type-arg]
    yield from (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def _verbs(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    return {name: verb for action in _actions(parser) for name, verb in action.choices.items()}


def _help(parser: argparse.ArgumentParser, verb: str) -> str:
    chosen = (choice for action in _actions(parser) for choice in action._choices_actions)
    return next((choice.help or "" for choice in chosen if choice.dest == verb), "")


def _section(parser: argparse.ArgumentParser) -> str:
    parts = [f"## {parser.prog}", parser.description or ""]
    inner = _verbs(parser)
    rows = [_row(action) for action in parser._actions if _shown(action)]
    if rows:
        parts.append(table(("argument", "what it does"), rows))
    if parser.epilog:
        if SOURCES_HELP in parser.epilog:
            parts.append("The help lists the [data sources](components.md#data-source), too.")
        epilog = parser.epilog.replace(SOURCES_HELP, "parts of a data source:")
        parts.append(f"```text\n{epilog.strip()}\n```")
    parts += [_section(verb).replace("## ", "### ", 1) for verb in inner.values()]
    return "\n\n".join(part for part in parts if part)


def _shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    return not hidden and action.help != argparse.SUPPRESS


def _row(action: argparse.Action) -> tuple[str, str]:
    names = ", ".join(code(" ".join(filter(None, (name, _value(action))))) for name in action.option_strings)
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return names or code(_value(action) or action.dest), text


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    metavar = action.metavar if isinstance(action.metavar, str) else None
    choices = "|".join(map(str, action.choices)) if action.choices else None
    name = metavar or choices or (action.dest.upper() if action.option_strings else action.dest)
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name)
