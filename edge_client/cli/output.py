"""Output of verbs: plain text tables for people, one JSON document for programs."""

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from edge_client.system.plain_text import plain, say
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.security.trusted_key import TrustedKey
    from edge_client.transport.broker_address import BrokerAddress

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line with a remedy, as `ConfigError`."""

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


def read_trust_option(args: argparse.Namespace) -> "TrustedKey | None":
    """The key that `--trust` names, if any."""
    from edge_client.security.trusted_key import read_trusted_key

    return None if args.trust is None else read_trusted_key(args.trust)


def read_broker_option(args: argparse.Namespace) -> "BrokerAddress":
    """The broker that `--broker` names, with the files of `--ca`, `--cert` and `--key`."""
    from edge_client.transport.broker_address import TlsFiles, parse_address

    return parse_address(args.broker, TlsFiles(args.ca, args.cert, args.key))


def print_json(document: Any) -> None:
    say(json.dumps(document, indent=2))


NARROWEST = 12  # Characters to which a column is wrapped at most


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns with headers; in a terminal the widest are wrapped, so that lines fit."""
    lines = [columns, *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    if sys.stdout.isatty():
        widths = _fitting(widths, shutil.get_terminal_size().columns)
    for line in lines:
        cells = [
            textwrap.wrap(cell, width) if len(cell) > width else [cell]
            for cell, width in zip(line, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            say("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())


def _fitting(widths: Sequence[int], most: int) -> list[int]:
    """The widths of columns of which the widest are cut, so that they and two spaces each fit."""
    room, fitting = most - 2 * (len(widths) - 1), list(widths)
    while sum(fitting) > room and (widest := max(fitting)) > NARROWEST:
        others = sum(width for width in fitting if width < widest)
        next_wide = max((width for width in fitting if width < widest), default=NARROWEST)
        share = (room - others) // fitting.count(widest)
        cut = max(share, next_wide, NARROWEST)
        fitting = [cut if width == widest else width for width in fitting]
    return fitting
