"""`edge-server init`: ask five questions and write a federation file."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.cli.options import Option, add_verb
from edge_client.cli.output import Subparsers
from edge_client.system.plain_text import say
from edge_server.cli.output import print_result
from schemas.errors import ConfigError

EXAMPLES = """\
  edge-server init                              asks five questions and writes federation.toml
  edge-server init home.toml --yes              uses the defaults
The answer about classes may be a folder of photos with one sub-folder for each class.
"""
TEXT = """\
# All other keys have defaults: edge-server check {file} prints them.
recipe = "{recipe}"

[federation]
name = "{name}"
rounds = {rounds}

[clients]
num-clients = {devices}    # the run starts when this many devices are present

[data]
classes = [{classes}]

[model]
name = "cnn-group"
input-shape = [3, 32, 32]    # three colours, height, width: photos of other sizes are resized

[training]
optimizer = "adam"
learning-rate = 0.001
batch-size = 16
local-epochs = 3             # passes of a device over its photos in each round
"""


@dataclass(frozen=True)
class Question:
    """One question; `read` returns the answer as a TOML value, or raises `ConfigError`."""

    key: str
    text: str
    default: str
    read: Callable[[str], str]


def _name(answer: str) -> str:
    from schemas.names import is_name

    if not is_name(answer):
        raise ConfigError(
            f"'{answer}' is not a name: letters, digits, dots, dashes and underscores, at most 64"
        )
    return answer


def _count(answer: str) -> str:
    if not answer.isdigit() or int(answer) < 1:
        raise ConfigError(f"'{answer}' is not a whole number above 0")
    return answer


def _classes(answer: str) -> str:
    """The names of a list, or of the sub-folders of a folder."""
    from edge_client.data.class_folders import parts_of

    names: Sequence[str] = [name.strip() for name in answer.split(",") if name.strip()]
    if Path(answer).is_dir():
        names = parts_of(Path(answer), "train").class_names
    if len({*names}) < max(2, len(names)) or any('"' in name or "\\" in name for name in names):
        raise ConfigError(
            f"'{answer}'",
            remedy="name at least two classes, each once, with commas between them and no quotes, "
            "or a folder with one sub-folder for each",
        )
    return ", ".join(f'"{name}"' for name in names)


def _recipe(answer: str) -> str:
    from edge_server.config.recipe_files import read_recipe

    read_recipe(answer)
    return answer


QUESTIONS = (
    Question("name", "Name of the federation", "federation", _name),
    Question("devices", "How many devices must be there before it starts", "3", _count),
    Question(
        "classes",
        "Classes of the photos, with commas between them, or a folder of them",
        "bee, hornet, wasp",
        _classes,
    ),
    Question("rounds", "How many rounds", "20", _count),
    Question("recipe", "Algorithm (edge-server recipes lists them)", "attending", _recipe),
)


OPTIONS = (
    Option("file", Path, default=Path("federation.toml"), metavar="FILE", nargs="?"),
    Option("--yes", bool, "take every default"),
    Option("--force", bool, "replace a file that is there"),
)


def register(verbs: Subparsers) -> None:
    add_verb(
        verbs,
        "init",
        execute,
        OPTIONS,
        help="ask five questions and write a federation file",
        examples=EXAMPLES,
    )


def execute(args: argparse.Namespace) -> int:
    from edge_server.config.load import load_config

    if args.file.exists() and not args.force:
        raise ConfigError(f"{args.file} exists", remedy="name another file, or add --force")
    answers = {each.key: each.read(each.default) if args.yes else _ask(each) for each in QUESTIONS}
    args.file.write_text(TEXT.format(file=args.file, **answers), encoding="utf-8")
    load_config(str(args.file))
    return print_result(
        args,
        {"file": str(args.file)},
        f"wrote {args.file}",
        f"  edge-server check {args.file}                       print all settings, and rehearse",
        f"  edge-server simulate {args.file} data.source=folder:PHOTOS",
        f"  edge-server run {args.file} --broker mqtt://HOST:1883",
        f"  edge-client run --broker mqtt://HOST:1883 --federation {answers['name']} --data folder:PHOTOS",
    )


def _ask(question: Question) -> str:
    """The first valid answer; an empty one is the default."""
    while True:
        try:
            answer = input(f"{question.text} [{question.default}]: ").strip()
        except EOFError:
            raise ConfigError("the input has ended: answer all five questions, or add --yes") from None
        try:
            return question.read(answer or question.default)
        except ConfigError as error:
            say(error)
