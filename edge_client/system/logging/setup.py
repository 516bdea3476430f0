"""The log of long-running verbs, as their `--log-format` and `--log-level` say."""

import argparse
import logging
import os
from typing import Any

from edge_client.system.logging.context import about
from edge_client.system.logging.formatters import HumanFormat, JsonFormat
from edge_client.system.logging.rate_limit import LimitedHandler
from schemas.errors import ConfigError, nearest

FORMATS: dict[str, type[logging.Formatter]] = {"human": HumanFormat, "json": JsonFormat}
LEVELS = ("debug", "info", "warning", "error")
FORMAT_VARIABLE = "EDGE_LOG_FORMAT"  # the default format; child processes inherit it


def begin_log(args: argparse.Namespace, *, level: int, **facts: Any) -> None:
    """Log to standard error as `args` say, by default from `level` on; all lines have the `facts`.

    With `--quiet` the default is warnings.
    """
    if getattr(args, "quiet", False):
        level = logging.WARNING
    if args.log_format:
        os.environ[FORMAT_VARIABLE] = args.log_format
    wanted = logging.getLevelNamesMapping()[args.log_level.upper()] if args.log_level else level
    begin_inherited_log(wanted, **facts)


def begin_inherited_log(level: int, **facts: Any) -> None:
    """Log in the format of the parent process, if it set one."""
    name = os.environ.get(FORMAT_VARIABLE, "human")
    if name not in FORMATS:
        raise ConfigError(f"{FORMAT_VARIABLE}={name}: human or json{nearest(name, FORMATS)}")
    about(**facts)
    handler = LimitedHandler()
    handler.setFormatter(FORMATS[name]())
    # What libraries warn of becomes lines like all others.
    logging.captureWarnings(name == "json")
    logging.basicConfig(level=level, handlers=[handler])
