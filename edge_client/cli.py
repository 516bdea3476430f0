"""The command `edge-client`: one verb, one file under `commands`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from edge_client.commands import bench, infer, run
from schemas.errors import ConfigError, EdgeError

COMMANDS = (run, infer, bench)
"""Each has `register(subparsers)`, which also names its `execute(args) -> exit code`."""

DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130

EXAMPLES = """\
examples:
  edge-client run --broker mqtt://server:1883 --device-id pi-kitchen --data folder:photos
  edge-client infer tier-1.onnx photo.png          what is in the picture
  edge-client bench tier-1.onnx --threads 4        how fast this machine is

exit codes: 0 done, 1 failed, 2 bad usage or configuration
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="edge-client",
        description="What runs on a device of the federation.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for command in COMMANDS:
        command.register(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; errors are one line on stderr."""
    try:
        args = build_parser().parse_args(argv)
        code = int(args.execute(args))
        # A reader that went away shows when the last output is sent: here, or too late for the handler below.
        sys.stdout.flush()
        return code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else BAD_USAGE
    except ConfigError as error:
        return _fail(error, BAD_USAGE)
    except BrokenPipeError:
        # The reader of our output (head, a pager) went away: nothing is wrong, and nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (EdgeError, OSError) as error:
        return _fail(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _fail(error: Exception, code: int) -> int:
    print(f"edge-client: {' '.join(str(error).split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
