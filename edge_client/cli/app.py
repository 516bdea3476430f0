"""The shared base of both commands: one parser for all verbs, one way to report errors and end."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edge_client.cli.options import DISPLACED, Parser, PrintVersion, Row, Subparsers, add_verb, print_help
from edge_client.system.plain_text import say
from schemas.errors import ConfigError, EdgeError, in_full, nearest

DONE, FAILED, BAD_USAGE, INTERRUPTED, SUSPENDED = 0, 1, 2, 130, 143
WORDS = ("overrides", "words")  # Names of the argument lists that hold KEY=VALUE overrides
BEHIND = "behind"  # Name of the argument list of a verb that takes another command's options behind `--`


class Verb(Protocol):
    """A module in the `commands` package."""

    HELP: str
    EXAMPLES: str

    @property
    def OPTIONS(self) -> Sequence[Row]:
        """Its rows in `--help`, behind `--format`."""
        ...

    def execute(self, args: argparse.Namespace, /) -> int:
        """Run the verb and return its exit code."""
        ...


class OwnVerb(Protocol):
    """A module whose verb has verbs of its own, or values that no option states."""

    def register(self, verbs: Subparsers, /) -> None:
        """Add the verb."""
        ...


def verb_name(verb: Verb | OwnVerb) -> str:
    """The name of a module's verb: `object_store` is `object-store`."""
    return getattr(verb, "__name__", "").rpartition(".")[2].replace("_", "-")


def register(verb: Verb | OwnVerb, verbs: Subparsers) -> None:
    if hasattr(verb, "register"):
        verb.register(verbs)
    else:
        add_verb(verbs, verb_name(verb), verb.execute, verb.OPTIONS, help=verb.HELP, examples=verb.EXAMPLES)


@dataclass(frozen=True)
class CommandLine:
    """A command: its name, its summary, examples for `--help`, and its verbs in the order of `--help`.

    `extra` is the optional part of the package that all verbs need; `extras` maps packages to the part that
    brings them where it is another.
    """

    prog: str
    extra: str
    description: str
    examples: str
    verbs: Sequence[Verb | OwnVerb]
    extras: Mapping[str, str] = field(default_factory=dict)

    def parser(self) -> Parser:
        return self._build_parsers()[0]

    def _build_parsers(self, named: str = "") -> tuple[Parser, Subparsers]:
        """The parser of all verbs, or of the `named` one alone if there is such a verb: that is quicker."""
        parser = Parser(
            prog=self.prog,
            description=self.description,
            epilog=self.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--version", action=PrintVersion, nargs=0, help="print the version and end")
        subparsers = parser.add_subparsers(dest="verb", metavar="VERB")
        known = {verb_name(verb): verb for verb in self.verbs}
        for verb in (known[named],) if named in known else self.verbs:
            register(verb, subparsers)
        parser.set_defaults(execute=print_help(parser))
        return parser, subparsers

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run one verb and return its exit code; errors go to stderr without a traceback."""
        try:
            args = self.parse(argv)
            code = int(args.execute(args))
            # A reader that went away shows when the last output is sent: here, or too late to handle.
            sys.stdout.flush()
            return code
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else BAD_USAGE
        except ConfigError as error:
            return self.report_error(error, BAD_USAGE)
        except BrokenPipeError:
            # The reader of our output (head, a pager) went away: nothing is wrong, nobody is left to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        except ModuleNotFoundError as error:
            extra = self.extras.get((error.name or "").partition(".")[0], self.extra)
            remedy = f"pip install 'edge-federation[{extra}]'"
            return self.report_error(
                ConfigError(f"this needs {error.name}, which is not installed", remedy=remedy), BAD_USAGE
            )
        except (EdgeError, OSError) as error:
            return self.report_error(error, FAILED)
        except KeyboardInterrupt:
            return INTERRUPTED

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """Parse a command line without running it; raises `ConfigError`.

        KEY=VALUE words may follow options, which argparse does not support.
        """
        words = sys.argv[1:] if argv is None else argv
        parser, subparsers = self._build_parsers(words[0] if words else "")
        self._check_verb(words, subparsers)
        args, rest = parser.parse_known_args(words)
        if getattr(args, "config_file", None) is not None:
            # The file's values are defaults now: parsed again, whatever stands on the command line wins.
            args, rest = parser.parse_known_args(words)
        if hasattr(args, BEHIND) and "--" in words:
            words, behind = words[: words.index("--")], words[words.index("--") + 1 :]
            args, rest = parser.parse_known_args(words)
            setattr(args, BEHIND, behind)
        rest = [*getattr(args, DISPLACED, ()), *rest]
        taker = next((name for name in WORDS if hasattr(args, name)), None)
        unknown = [word for word in rest if taker is None or word.startswith("-")]
        if unknown:
            args.parser.refuse(unknown)
        if taker is not None:
            setattr(args, taker, [*getattr(args, taker), *rest])
        return args

    def _check_verb(self, words: Sequence[str], subparsers: Subparsers) -> None:
        first = words[0] if words else "-"
        if not first.startswith("-") and first not in subparsers.choices:
            raise ConfigError(
                f"there is no verb '{first}'{nearest(first, subparsers.choices)}; "
                f"{self.prog} --help says what there is"
            )

    def report_error(self, error: Exception, code: int) -> int:
        for line in in_full(error).splitlines() or [type(error).__name__]:
            say(f"{self.prog}: {line.strip()}", file=sys.stderr)
        return code
