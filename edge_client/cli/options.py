"""Options of verbs as rows of a table, the checks of their values, and the parser that takes them."""

import argparse
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, get_args

from edge_client.system.logging.setup import FORMAT_VARIABLE, FORMATS, LEVELS
from edge_client.system.plain_text import say
from schemas.errors import MAX_SECONDS, ConfigError, near, nearest

if TYPE_CHECKING:
    from edge_client.security.trusted_key import TrustedKey
    from edge_client.transport.broker_link import BrokerAddress

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"

Bounds = Mapping[str, float]
BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "lt": (operator.lt, "below"),
    "le": (operator.le, "at most"),
}
"""What the names of bounds mean; they are those of pydantic."""
AT_LEAST_1: Bounds = {"ge": 1}
ABOVE_0: Bounds = {"gt": 0}
SHARE: Bounds = {"ge": 0, "le": 1}
SECONDS: Bounds = {"gt": 0, "le": MAX_SECONDS}
SECONDS_OR_0: Bounds = {"ge": 0, "le": MAX_SECONDS}
HOURS: Bounds = {"gt": 0, "le": MAX_SECONDS / 3600}
DAYS: Bounds = {"gt": 0, "le": MAX_SECONDS / 86_400}
PORT: Bounds = {"ge": 0, "le": 65_535}


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line with a remedy, as `ConfigError`, and takes whole options."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(allow_abbrev=False, **rest)
        self.set_defaults(parser=self)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Raise `ConfigError` for words that it does not take, with the nearest option."""
        match = near(unknown[0].partition("=")[0], self._option_string_actions)
        self.error(f"there is no {' '.join(unknown)}{f' (did you mean {match}?)' if match else ''}")

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError` for wrong arguments of this command or verb."""
        verb = self.prog.partition(" ")[2]
        where = f"{verb}: " if verb else ""
        raise ConfigError(f"{where}{message}; {self.prog} --help says what there is")


DISPLACED = "displaced"  # Attribute for words that followed an option and belong to the verb


class OptionalAddress(argparse.Action):
    """An option with an optional address; a KEY=VALUE word behind it is an override instead."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, *, read: Callable[[str], Any] = str, **rest: Any
    ) -> None:
        super().__init__(option_strings, dest, nargs="?", **rest)
        self._read = read

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the address, or leave the word to the verb."""
        if isinstance(values, str) and "=" in values:
            setattr(namespace, DISPLACED, [*getattr(namespace, DISPLACED, ()), values])
            values = self.const
        elif isinstance(values, str):
            try:
                values = self._read(values)
            except argparse.ArgumentTypeError as error:
                raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, values)


class PrintVersion(argparse.Action):
    """`--version`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the command's name and the package's version, and end."""
        from edge_client.system.libraries import release

        say(f"{parser.prog} {release('edge-federation') or 'of unknown version'}")
        parser.exit()


def print_help(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Print the help of a command without a verb."""

    def execute(_: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    return execute


class Row:
    """What a table of options has."""

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add it to a verb or a group."""
        raise NotImplementedError


@dataclass(frozen=True)
class Option(Row):
    """An option `--name`, or an argument of a verb: a row of its table.

    `type`: what a value becomes, str, int, float or Path, or a function that parses it; bool is a switch, and
    `Literal` one of some words. `bounds` of a number by the names in `BOUNDS`. `many` values by repeating the
    option, of words by a list with commas. `parse` stands for the type on the command line, where that of a
    file differs. The others are those of argparse.
    """

    name: str
    type: Any = str
    help: str | None = None
    default: Any = None
    metavar: str | None = None
    bounds: Bounds | None = None
    many: bool = False
    parse: Callable[[str], Any] | None = None
    nargs: str | None = None
    choices: Sequence[str] | None = None
    required: bool = False
    dest: str | None = None
    action: Any = None

    @property
    def key(self) -> str:
        """The option's name in Python, also in a table of settings."""
        return self.name.removeprefix("--").replace("-", "_")

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        names = ("help", "metavar", "nargs", "choices", "dest")
        stated = {name: getattr(self, name) for name in names} | self._kind()
        stated["required"] = self.required or None
        kept: Any = {name: value for name, value in stated.items() if value is not None}
        parser.add_argument(self.name, **kept)

    def _kind(self) -> dict[str, Any]:
        if self.type is bool:
            switch = argparse.BooleanOptionalAction if self.default else "store_true"
            return {"action": switch, "default": self.default}
        several = (self.many or self.nargs) and isinstance(self.default, tuple | list)
        appends = self.many and not isinstance(self.default, list)
        return {
            "action": "append" if appends else self.action,
            "default": list(self.default) if several else self.default,
            "type": self.parse or self._converter(),
        }

    def _converter(self) -> Callable[[str], Any] | None:
        if self.type is str:
            return None
        if words := get_args(self.type):
            return partial(_list_of if self.many else _one_of, words)
        convert: Callable[[str], Any] = {int: whole_number, float: number}.get(self.type, self.type)
        return partial(_within, convert, self.bounds) if self.bounds else convert


@dataclass(frozen=True)
class Group(Row):
    """Options below a title in `--help`; of `exclusive` ones a user may state one."""

    rows: Sequence[Row]
    title: str | None = None
    exclusive: bool = False

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        group = (
            parser.add_mutually_exclusive_group() if self.exclusive else parser.add_argument_group(self.title)
        )
        for row in self.rows:
            row.add_to(group)


def add_verb(
    subparsers: Subparsers,
    name: str,
    execute: Callable[[argparse.Namespace], int],
    rows: Sequence[Row] = (),
    *,
    help: str,
    examples: str = "",
    formats: Sequence[str] = ("table", "json"),
    **defaults: Any,
) -> Parser:
    """Add a verb with `--format` and its options; `examples` are shown below them in `--help`."""
    parser = _add_parser(subparsers, name, help, "", examples)
    for row in (replace(FORMAT, choices=formats), *rows):
        row.add_to(parser)
    parser.set_defaults(execute=execute, **defaults)
    return parser


@dataclass(frozen=True)
class VerbGroup:
    """The verbs below `words`, such as `edge-server jobs`; each has the `shared` rows before its own."""

    verbs: Subparsers
    words: str
    shared: Sequence[Row]

    def add(
        self,
        name: str,
        execute: Callable[[argparse.Namespace], int],
        *rows: Row,
        help: str,
        example: str | None = None,
    ) -> None:
        """Add a verb; `example` is what follows `words`."""
        examples = "" if example is None else f"examples:\n  {self.words} {example}\n"
        add_verb(self.verbs, name, execute, (*self.shared, *rows), help=help, examples=examples)


def add_verbs(
    subparsers: Subparsers,
    name: str,
    *shared: Row,
    help: str,
    examples: str,
    description: str = "",
) -> VerbGroup:
    """Add a verb that has verbs of its own, and return those."""
    parser = _add_parser(subparsers, name, help, description, examples)
    parser.set_defaults(execute=print_help(parser))
    verbs = parser.add_subparsers(dest=f"{name.replace('-', '_')}_verb", metavar="VERB")
    return VerbGroup(verbs, parser.prog, shared)


def _add_parser(subparsers: Subparsers, name: str, help: str, description: str, examples: str) -> Parser:
    return subparsers.add_parser(
        name,
        help=help,
        description=description or f"{help[0].upper()}{help[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


# --- what values are ---
def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"'{text}' is not a finite number")
    return value


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None


def share(text: str) -> float:
    """Parse a share such as 0.1 or 10%."""
    return number(text[:-1]) / 100 if text.endswith("%") else number(text)


def device_name(text: str) -> str:
    # Imported here: it takes pydantic, for which a light start has no time.
    from schemas.base import is_name

    if not is_name(text):
        raise argparse.ArgumentTypeError(f"'{text}': 1 to 64 letters, digits, dots, dashes, underscores")
    return text


def _one_of(words: Sequence[str], text: str) -> str:
    if text not in words:
        raise argparse.ArgumentTypeError(f"'{text}'{nearest(text, words)}")
    return text


def _list_of(words: Sequence[str], text: str) -> list[str]:
    return [_one_of(words, word.strip()) for word in text.split(",")]


def _within(convert: Callable[[str], Any], bounds: Bounds, text: str) -> Any:
    value = convert(text)
    if not all(BOUNDS[name][0](value, limit) for name, limit in bounds.items()):
        raise argparse.ArgumentTypeError(f"must be {bounds_text(bounds)}, not {text}")
    return value


def bounds_text(bounds: Bounds) -> str:
    """The bounds in words: `between 0 and 1`, `above 0`, `at least 0 and below 1`."""
    limits = {name: f"{limit:.0f}" if limit == int(limit) else f"{limit:g}" for name, limit in bounds.items()}
    if bounds.keys() == {"ge", "le"}:
        return f"between {limits['ge']} and {limits['le']}"
    return " and ".join(f"{BOUNDS[name][1]} {limit}" for name, limit in limits.items())


# --- options of one kind of value ---
def seconds_option(
    name: str, help: str, default: float | None = None, bounds: Bounds = SECONDS, *, dest: str | None = None
) -> Option:
    return Option(name, float, help, default, "S", bounds, dest=dest)


def count_option(name: str, help: str, default: int | None = None, bounds: Bounds = AT_LEAST_1) -> Option:
    return Option(name, int, help, default, "N", bounds)


def share_option(name: str, help: str, default: float | None = None) -> Option:
    return Option(name, share, help, default, "F", SHARE)


# --- what several verbs share ---
FORMAT = Option("--format", help="for people or for programs (default: table)", default="table")
# The names of the table `edge_client.inference.runtimes`.
RUNTIMES = "onnxruntime, openvino, opencv, mnn, ncnn, tvm, litert"

TRUST = Option(
    "--trust",
    Path,
    "refuse a model that this key of the server has not signed (its signing.pub)",
    metavar="KEY.pub",
)


def log_options(level: str) -> tuple[Option, ...]:
    """The options of the log; `level` is the verb's default."""
    text = f"the log on standard error: text, or an object per line (default: {FORMAT_VARIABLE}, or human)"
    return (
        Option("--log-format", help=text, choices=tuple(FORMATS)),
        Option("--log-level", help=f"log this and what is worse (default: {level})", choices=LEVELS),
    )


def tls_options(whose: str) -> tuple[Option, ...]:
    return (
        Option("--ca", Path, "certificate of the broker's authority (mqtts://)"),
        Option("--cert", Path, f"{whose} certificate (mqtts://)"),
        Option("--key", Path, f"{whose} private key (mqtts://)"),
    )


def read_trust_option(args: argparse.Namespace) -> "TrustedKey | None":
    """The key that `--trust` names, if any."""
    from edge_client.security.trusted_key import read_trusted_key

    return None if args.trust is None else read_trusted_key(args.trust)


def read_broker_option(args: argparse.Namespace) -> "BrokerAddress":
    """The broker that `--broker` names, with the files of `--ca`, `--cert` and `--key`."""
    from edge_client.transport.broker_link import TlsFiles, parse_address

    return parse_address(args.broker, TlsFiles(args.ca, args.cert, args.key))
