"""`edge-client run`: take part in a federation."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.command_output import (
    Subparsers,
    add_verb,
    positive_float,
    positive_int,
    print_json,
    read_trust_option,
)
from edge_client.commands.options import add_device_options
from schemas.errors import ConfigError, nearest

if TYPE_CHECKING:
    from edge_client.address import BrokerAddress
    from edge_client.workplace import LocalData

EXAMPLES = """\
data sources:
  digits                    8x8 handwritten digits, shipped with this package
  MNIST, FashionMNIST, EMNIST, CIFAR10      with --data-root, never downloaded
  folder:PATH               a folder of images per class
  npz:PATH                  arrays `images` and `labels`
  python:module:function    a function that returns images and labels

examples:
  edge-client run --broker mqtt://server:1883 --device-id pi-kitchen --data folder:photos
  edge-client run --broker mqtt://server:1883 --device-id pi-3 --data digits \\
      --partition 'dirichlet(0.3)' --share 3/5 --tier 1
  edge-client run --broker mqtts://server:8883 --ca ca.pem --cert pi-3.pem --key pi-3.key \\
      --device-id pi-3 --data digits --trust signing.pub
  edge-client run --config client.toml     options as keys, and a certificate (see `edge-server enroll`);
                                           [eligibility] there says when the device may train

It connects again for as long as the broker is away; Ctrl-C or SIGTERM ends it cleanly.
Started again with the same --state-dir, after a kill or a power cut too, it goes on with its task: after the
last finished epoch that was kept, and with the chunks that are still missing.
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "run", help="take part in a federation", examples=EXAMPLES)
    add_device_options(parser)
    parser.add_argument("--data", default="digits", metavar="SOURCE", help="see below (default: %(default)s)")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="where named data sets lie")
    parser.add_argument("--partition", default="iid", metavar="P", help="iid, dirichlet(ALPHA) or shards(K)")
    parser.add_argument("--share", default="1/1", metavar="I/N", help="use share I of N (default: all data)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the partition (default: 0)")
    parser.add_argument(
        "--hold-out",
        type=float,
        default=0.2,
        metavar="F",
        help="share of the data that is never trained on, for accuracies (default: %(default)s)",
    )
    parser.add_argument("--tier", type=positive_int, metavar="N", help="capability tier, 1 is the weakest")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="threads for training")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="blobs and models (default: under ~)")
    parser.add_argument(
        "--checkpoint-s",
        type=positive_float,
        metavar="S",
        help="a kill costs so many seconds of training, and an epoch, at most (default: 5)",
    )
    parser.add_argument(
        "--telemetry-every-s",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="how often the server is told where the device is and how its board is, also while it has "
        "nothing to do; 0 for never (default: 30)",
    )
    parser.add_argument(
        "--model-code",
        action="append",
        default=[],
        metavar="MODULE:FACTORY",
        help="network of your own that the server may name; may be given several times",
    )
    parser.add_argument(
        "--trust",
        type=Path,
        metavar="KEY.pub",
        help="take only tasks and serve only models that this key of the server has signed (its signing.pub)",
    )
    parser.add_argument(
        "--only-masked", action="store_true", help="decline to train where updates are not masked"
    )
    parser.add_argument(
        "--variants",
        type=_variants,
        default=["fp32", "fp16", "int8"],
        metavar="LIST",
        help="forms of the finished model that are tried; the fastest good one is served "
        "(default: fp32,fp16,int8)",
    )
    parser.add_argument(
        "--max-accuracy-loss",
        type=float,
        default=1.0,
        metavar="POINTS",
        help="the form that is served must lose less than this on held-out data (default: %(default)s)",
    )
    parser.add_argument("--once", action="store_true", help="end with the first run that is over")
    parser.add_argument("--quiet", action="store_true", help="log warnings only")
    parser.set_defaults(execute=execute, eligibility=None)


def execute(args: argparse.Namespace) -> int:
    """Run until the federation (with --once) or the user ends it."""
    from edge_client.address import TlsFiles, parse_address
    from edge_client.agent import Agent, AgentSettings
    from edge_client.allocator import keep_freed_memory
    from edge_client.eligibility.rules import Rules
    from edge_client.epochs import INTERVAL_S
    from edge_client.profile import profile
    from edge_client.variants.choosing import Wish
    from schemas.names import is_name

    for option, name in (("--federation", args.federation), ("--device-id", args.device_id)):
        if not is_name(name):
            raise ConfigError(f"{option} '{name}': 1 to 64 letters, digits, dots, dashes, underscores")
    address = parse_address(args.broker, TlsFiles(args.ca, args.cert, args.key))
    keep_freed_memory()
    logging.basicConfig(
        level=logging.WARNING if args.quiet else logging.INFO,
        format=f"%(asctime)s {args.device_id} %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
    _check_certificate(address, args.device_id)
    state = args.state_dir or default_state(args.federation, args.device_id)
    settings = AgentSettings(
        federation=args.federation,
        device=args.device_id,
        address=address,
        state=state,
        source=args.data,
        profile=profile(state, tier=args.tier),
        once=args.once,
        threads=args.threads,
        model_code=frozenset(args.model_code),
        trust=read_trust_option(args),
        checkpoint_s=args.checkpoint_s or INTERVAL_S,
        only_masked=args.only_masked,
        wish=Wish(tuple(args.variants), args.max_accuracy_loss),
        telemetry_every_s=args.telemetry_every_s,
        eligibility=args.eligibility or Rules(),
    )
    settings.state.mkdir(parents=True, exist_ok=True)
    agent = Agent(settings, _local_data(args))
    signal.signal(signal.SIGTERM, lambda *_: agent.stop())
    signal.signal(signal.SIGINT, lambda *_: agent.stop())
    outcome = agent.run()
    if args.format == "json":
        print_json({"device": args.device_id, "outcome": outcome})
    return 0 if outcome in (None, "finished") else 1


def _seconds(text: str) -> float:
    """A number of seconds, or 0."""
    return 0.0 if float(text) == 0 else positive_float(text)


def _variants(text: str) -> list[str]:
    """The names of a list `fp32,int8`; the export itself, fp32, is always one of them."""
    known = ("fp32", "fp16", "int8")
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"'{name}'{nearest(name, known)}")
    return names


def _check_certificate(address: BrokerAddress, device: str) -> None:
    """A certificate that cannot work ends here, with the remedy: a broker would only say no."""
    if address.tls is None or address.tls.certificate is None:
        return
    from edge_client.identity.check import check_files
    from edge_client.identity.pair import Pair

    if address.tls.key is not None:
        Pair(address.tls.certificate, address.tls.key).complete()
    check_files(address.tls, device, time.time())


def default_state(federation: str, device: str) -> Path:
    """Where a device keeps its state unless `--state-dir` says otherwise."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "edge-federation" / federation / device


def _local_data(args: argparse.Namespace) -> LocalData:
    from edge_client.data.partition import holdout, parse_partition, share
    from edge_client.data.sources import load_source
    from edge_client.workplace import LocalData

    match = re.fullmatch(r"(\d+)/(\d+)", args.share)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise ConfigError(f"--share '{args.share}': expected I/N with I from 1 to N, for instance 3/5")
    data = load_source(args.data, data_root=args.data_root)
    mine = share(data, parse_partition(args.partition), index=index - 1, count=count, seed=args.seed)
    train, held_out = holdout(mine, fraction=args.hold_out, seed=args.seed)
    return LocalData(train, held_out)
