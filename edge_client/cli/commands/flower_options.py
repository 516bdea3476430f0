"""The options of `edge-client run` for training by a Flower app."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.training.trainer import LocalWork


def add_flower_options(parser: argparse.ArgumentParser) -> None:
    """Add `--flower` and the app's options."""
    parser.add_argument(
        "--flower",
        metavar="MODULE:APP",
        help="a Flower ClientApp that trains, or the folder of its pyproject.toml",
    )
    parser.add_argument(
        "--flower-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="run config of the app; overrides its own and the federation's (repeatable)",
    )
    parser.add_argument(
        "--flower-node",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="node config of the app (default: partition-id and num-partitions from --share)",
    )


def flower_work(args: argparse.Namespace) -> LocalWork | None:
    """The trainer of the Flower app, if one is named; `ConfigError` if the app cannot train."""
    if args.flower is None:
        for option, words in (("--flower-config", args.flower_config), ("--flower-node", args.flower_node)):
            if words:
                raise ConfigError(f"{option} is for --flower MODULE:APP, which is not given")
        return None
    if args.checkpoint_s is not None:
        raise ConfigError("--checkpoint-s: a Flower app trains in one go, nothing of it is kept in between")
    from edge_client.training.flower.settings import FlowerSettings, read_words

    # Settings first: what they say wrong is found without importing the app, which takes seconds.
    share = re.fullmatch(r"(\d+)/(\d+)", args.share)
    node = {"partition-id": int(share[1]) - 1, "num-partitions": int(share[2])} if share else {}
    settings = FlowerSettings(
        args.flower,
        read_words(args.flower_config, option="--flower-config"),
        {**node, **read_words(args.flower_node, option="--flower-node")},
    )
    from edge_client.training.flower.work import FlowerWork

    return FlowerWork(settings, args.device_id)
