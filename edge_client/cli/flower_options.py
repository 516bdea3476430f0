"""The options of `edge-client run` that name a Flower app."""

import argparse
import re
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.training.torch_trainer import LocalWork
    from edge_client.training.trainer import Trainer


def flower_trainer(args: argparse.Namespace) -> "Trainer | None":
    """The trainer with the Flower app, if one is named."""
    work = _flower_work(args)
    if work is None:
        return None
    from edge_client.training.torch_trainer import TorchTrainer

    return TorchTrainer(work, threads=args.threads)


def _flower_work(args: argparse.Namespace) -> "LocalWork | None":
    """The trainer of the Flower app, if one is named; `ConfigError` if the app cannot train."""
    if args.flower is None:
        for option, words in (("--flower-config", args.flower_config), ("--flower-node", args.flower_node)):
            if words:
                raise ConfigError(f"{option} is for --flower MODULE:APP, which is not given")
        return None
    if args.trainer == "onnx":
        raise ConfigError("--trainer onnx: a Flower app trains with its own libraries: leave --trainer out")
    if args.checkpoint_s is not None:
        raise ConfigError("--checkpoint-s: a Flower app trains in one step, there is nothing to save in it")
    from edge_client.training.flower.settings import FlowerSettings, read_words

    # Settings first: an error in them is reported without importing the app, which takes seconds.
    share = re.fullmatch(r"(\d+)/(\d+)", args.share)
    node = {"partition-id": int(share[1]) - 1, "num-partitions": int(share[2])} if share else {}
    settings = FlowerSettings(
        args.flower,
        read_words(args.flower_config, option="--flower-config"),
        {**node, **read_words(args.flower_node, option="--flower-node")},
    )
    from edge_client.training.flower.work import FlowerWork

    return FlowerWork(settings, args.device_id)
