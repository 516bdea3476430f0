"""`edge-server init`: ask five questions and write a federation file."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edge_client.cli.options import Option
from edge_client.system.plain_text import print_result, say
from schemas.errors import ConfigError

HELP = "ask five questions and write a federation file"
EXAMPLES = """\
  edge-server init                              asks five questions and writes federation.toml
  edge-server init home.toml --yes              uses the defaults
  edge-server init --network torchvision:mobilenet_v3_small
                                                starts from a network that was trained before
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
{network}
[training]
{trained}optimizer = "adam"
learning-rate = 0.001
batch-size = 16
local-epochs = 3             # passes of a device over its photos in each round
"""
OWN = """\
name = "cnn-group"
input-shape = [3, 32, 32]    # three colours, height, width: photos of other sizes are resized
"""
PRETRAINED = """\
name = "{name}"
from = "{weights}"    # the server downloads these weights once
input-shape = [3, 96, 96]    # three colours, height, width: photos of other sizes are resized
"""
WHOLE = "fedavg"
"""The recipe for published weights: with frozen layers all tiers have the whole network."""
HEAD = """\
train = "head"               # the rest keeps its weights, and is sent once; "last-2" and "all" train more,
                             # and [tiers] train says it for weak and strong boards apart
"""


@dataclass(frozen=True)
class Question:
    """One question; `read` returns the answer as a TOML value, or raises `ConfigError`."""

    key: str
    text: str
    default: str
    read: Callable[[str], str]


def _name(answer: str) -> str:
    from schemas.base import is_name

    if not is_name(answer):
        raise ConfigError(
            f"'{answer}' is not a name: letters, digits, dots, dashes and underscores, at most 64"
        )
    return answer


def _count(answer: str) -> str:
    if not (answer.isascii() and answer.isdigit() and int(answer)):
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
    from edge_server.config.load import read_recipe

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
    Option(
        "--network",
        help="start from these published weights, torchvision:NAME or timm:NAME, and train the head of their "
        "network (default: cnn-group, from drawn weights)",
        metavar="WEIGHTS",
    ),
    Option("--force", bool, "replace a file that is there"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_client.storage.atomic_files import usable_folder
    from edge_server.config.load import load_config

    if args.file.is_dir():
        raise ConfigError("this is a folder", place=args.file, remedy="name a file")
    usable_folder(args.file.parent, option="the folder")
    if args.file.exists() and not args.force:
        raise ConfigError(f"{args.file} exists", remedy="name another file, or add --force")
    *others, recipe = QUESTIONS
    questions = (*others, replace(recipe, default=WHOLE if args.network else recipe.default))
    answers = {each.key: each.read(each.default) if args.yes else _ask(each) for each in questions}
    network, trained = _describe_network(args.network)
    text = TEXT.format(file=args.file, network=network, trained=trained, **answers)
    args.file.write_text(text, encoding="utf-8")
    load_config(str(args.file))
    return print_result(
        args,
        {"file": str(args.file)},
        f"wrote {args.file}",
        f"  edge-server check {args.file}                       print all settings, and rehearse"
        + (", with what a board needs" if trained else ""),
        f"  edge-server simulate {args.file} data.source=folder:PHOTOS",
        f"  edge-server run {args.file} --broker mqtt://HOST:1883",
        f"  edge-client run --broker mqtt://HOST:1883 --federation {answers['name']} --data folder:PHOTOS",
    )


def _describe_network(weights: str | None) -> tuple[str, str]:
    """The lines of the network and of what is trained of it; `ConfigError` for weights that are not there."""
    if weights is None:
        return OWN, ""
    from edge_client.models.registry import is_library_network
    from edge_server.coordinator.pretrained.sources import inputs_of

    if not is_library_network(weights):
        raise ConfigError(f"--network {weights}", remedy="write torchvision:NAME or timm:NAME")
    inputs_of(weights)
    return PRETRAINED.format(name=weights.partition(".")[0], weights=weights), HEAD


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
