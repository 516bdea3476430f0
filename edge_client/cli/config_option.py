"""The options of a device as a verb takes them: with `--config FILE`, whose values become their defaults."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_client.cli.device_options import DEVICE_OPTIONS
from edge_client.cli.options import Option


class ReadConfig(argparse.Action):
    """`--config FILE`: the file's values become the defaults of the verb's options."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        from edge_client.cli.config_file import read_client_file

        parser.set_defaults(**read_client_file(Path(str(values))))
        setattr(namespace, self.dest, Path(str(values)))


CONFIG = Option(
    "--config", help="client.toml: options as keys", metavar="FILE", dest="config_file", action=ReadConfig
)


def device_options(*names: str) -> tuple[Option, ...]:
    """`--config` and the device's options of these names, or all of them."""
    return (CONFIG, *(option for option in DEVICE_OPTIONS if not names or option.name in names))
