"""The option `--config FILE`; the libraries that read the file are imported only when it is used."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ReadConfig(argparse.Action):
    """`--config FILE`: the file's values become the defaults of the verb's options."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Read the file and set the defaults."""
        from edge_client.cli.config_file import read_client_file

        parser.set_defaults(**read_client_file(Path(str(values))))
        setattr(namespace, self.dest, Path(str(values)))
