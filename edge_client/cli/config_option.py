"""`--config FILE` of a verb, without the libraries that reading the file takes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ReadConfig(argparse.Action):
    """`--config FILE`: what the file states is the default of the verb's options, once it is parsed again."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Take the file's values."""
        from edge_client.cli.config_file import read_client_file

        parser.set_defaults(**read_client_file(Path(str(values))))
        setattr(namespace, self.dest, Path(str(values)))
