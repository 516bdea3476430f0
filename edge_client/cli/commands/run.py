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

from edge_client.cli.commands.flower_options import add_flower_options, flower_work
from edge_client.cli.commands.options import add_device_options
from edge_client.cli.output import (
    Subparsers,
    add_verb,
    number,
    positive_float,
    positive_int,
    print_json,
    read_trust_option,
)
from edge_client.system.logging.setup import add_log_options, begin_log
from schemas.errors import ConfigError, nearest

if TYPE_CHECKING:
    from edge_client.agent.local_source import LocalSource
    from edge_client.transport.broker_address import BrokerAddress

SOURCES_REMEDY = (
    "say what this device learns from with --data, for instance --data folder:/srv/photos, npz:FILE.npz or "
    "python:module:function; --data digits are handwritten digits, for a first try"
)
EXAMPLES = """\
data sources:
  digits                    8x8 handwritten digits, shipped with this package
  MNIST, FashionMNIST, EMNIST, CIFAR10      with --data-root, never downloaded
  folder:PATH               a folder of images per class
  npz:PATH                  arrays `images` and `labels`
  python:module:function    a function that returns images and labels; a parameter `split` gets "train"
  npz:PATH#train            four fifths of every class; the server tests on the rest (npz:PATH#test)

examples:
  edge-client run --broker mqtt://server:1883 --device-id pi-kitchen --data folder:photos
  edge-client run --broker mqtt://server:1883 --device-id pi-3 --data digits \\
      --partition 'dirichlet(0.3)' --share 3/5 --tier 1
  edge-client run --broker mqtts://server:8883 --ca ca.pem --cert pi-3.pem --key pi-3.key \\
      --device-id pi-3 --data digits --trust signing.pub
  edge-client run --broker mqtt://server:1883 --device-id pi-3 --data npz:digits.npz \\
      --flower myapp.client_app:app --share 3/5        an unmodified Flower ClientApp trains
  edge-client run --config client.toml     options as keys, and a certificate (see `edge-server enroll`);
                                           [eligibility] there says when the device may train

The device reconnects while the broker is unreachable. It ends with exit code 2 if a retry cannot help (a
wrong authority, a certificate or name that the broker refuses), unless --keep-trying is given. Ctrl-C or
SIGTERM ends it cleanly. Started again with the same --state-dir, also after a kill or a power cut, it
continues its task after the last saved epoch, and sends only the missing chunks.
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "run", help="take part in a federation", examples=EXAMPLES)
    add_device_options(parser)
    _add_data_options(parser)
    _add_training_options(parser)
    add_flower_options(parser)
    _add_model_options(parser)
    parser.add_argument(
        "--keep-trying",
        action="store_true",
        help="retry the broker without end, even if that cannot help (wrong authority, refused)",
    )
    parser.add_argument("--once", action="store_true", help="end with the first run")
    parser.add_argument("--quiet", action="store_true", help="log warnings only")
    add_log_options(parser, level="info")
    parser.set_defaults(execute=execute, eligibility=None)


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="SOURCE", help="data source, see below")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="folder of named data sets")
    parser.add_argument("--partition", default="iid", metavar="P", help="iid, dirichlet(ALPHA) or shards(K)")
    parser.add_argument("--share", default="1/1", metavar="I/N", help="use share I of N (default: all data)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the partition (default: 0)")
    parser.add_argument(
        "--hold-out",
        type=_share_below_one,
        default=0.2,
        metavar="F",
        help="share of the data that is held out to measure accuracy (default: %(default)s)",
    )


def _add_training_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tier", type=positive_int, metavar="N", help="capability tier, 1 is the weakest")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="threads for training")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="blobs and models (default: under ~)")
    parser.add_argument(
        "--checkpoint-s",
        type=positive_float,
        metavar="S",
        help="seconds of training between checkpoints, taken after epochs (default: 5)",
    )
    parser.add_argument(
        "--telemetry-every-s",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="seconds between reports of the device's progress and its board, also while idle; "
        "0 for none (default: 30)",
    )
    parser.add_argument(
        "--model-code",
        action="append",
        type=_own_network,
        default=[],
        metavar="MODULE:FACTORY",
        help="your own network that the server may name (repeatable)",
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        type=Path,
        metavar="KEY.pub",
        help="accept only tasks and models that this key has signed (the server's signing.pub)",
    )
    parser.add_argument("--only-masked", action="store_true", help="decline tasks without secure aggregation")
    parser.add_argument(
        "--variants",
        type=_variants,
        default=["fp32", "fp16", "int8"],
        metavar="LIST",
        help="variants of the final model to try; the fastest good one is served (default: fp32,fp16,int8)",
    )
    parser.add_argument(
        "--max-accuracy-loss",
        type=_points,
        default=1.0,
        metavar="POINTS",
        help="largest loss of accuracy of the served variant on held-out data (default: %(default)s)",
    )


def execute(args: argparse.Namespace) -> int:
    """Run until the federation ends (with --once) or the user stops the device."""
    from edge_client.agent.agent import Agent, AgentSettings
    from edge_client.agent.eligibility.rules import Rules
    from edge_client.inference.quantization.selection import VariantSettings
    from edge_client.storage.atomic_files import usable_folder
    from edge_client.system.hardware.profile import profile
    from edge_client.system.malloc import keep_freed_memory
    from edge_client.training.checkpoints import INTERVAL_S
    from edge_client.transport.broker_address import TlsFiles, parse_address
    from schemas.names import is_name

    for option, name in (("--federation", args.federation), ("--device-id", args.device_id)):
        if not is_name(name):
            raise ConfigError(f"{option} '{name}': 1 to 64 letters, digits, dots, dashes, underscores")
    address = parse_address(args.broker, TlsFiles(args.ca, args.cert, args.key))
    keep_freed_memory()
    level = logging.WARNING if args.quiet else logging.INFO
    begin_log(args, level=level, federation=args.federation, device=args.device_id)
    _check_certificate(address, args.device_id)
    state = args.state_dir or default_state(args.federation, args.device_id)
    usable_folder(state, option="--state-dir")
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
        variants=VariantSettings(tuple(args.variants), args.max_accuracy_loss),
        telemetry_every_s=args.telemetry_every_s,
        eligibility=args.eligibility or Rules(),
        work=flower_work(args),
        keep_trying=args.keep_trying,
    )
    source = _local_source(args)
    agent = Agent(settings, source.read(), reload_if_changed=source.reload_if_changed)
    signal.signal(signal.SIGTERM, lambda *_: agent.stop())
    signal.signal(signal.SIGINT, lambda *_: agent.stop())
    outcome = agent.run()
    if args.format == "json":
        print_json({"device": args.device_id, "outcome": outcome})
    return 0 if outcome in (None, "finished") else 1


def _where(args: argparse.Namespace) -> str:
    """The hint at the configuration file, if one is used."""
    return f" (`data` in {args.config_file})" if args.config_file else ""


def _seconds(text: str) -> float:
    """Parse a number of seconds of 0 or more."""
    return 0.0 if number(text) == 0 else positive_float(text)


def _share_below_one(text: str) -> float:
    value = number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0 and below 1")
    return value


def _points(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 100")
    return value


def _own_network(text: str) -> str:
    module, _, factory = text.partition(":")
    if not (module and factory):
        raise argparse.ArgumentTypeError(f"'{text}' is not MODULE:FACTORY, for instance mynet:build")
    return text


def _variants(text: str) -> list[str]:
    """Parse a list such as `fp32,int8`; fp32, the export itself, is always included."""
    known = ("fp32", "fp16", "int8")
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"'{name}'{nearest(name, known)}")
    return names


def _check_certificate(address: BrokerAddress, device: str) -> None:
    """Raise `ConfigError` for a certificate that cannot work, since the broker's refusal names no reason."""
    if address.tls is None or address.tls.certificate is None:
        return
    from edge_client.security.identity.certificate_check import check_files
    from edge_client.security.identity.key_pair import CertificateFiles

    if address.tls.key is not None:
        CertificateFiles(address.tls.certificate, address.tls.key).complete()
    check_files(address.tls, device, time.time())


def default_state(federation: str, device: str) -> Path:
    """The state folder of a device without `--state-dir`."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "edge-federation" / federation / device


def _local_source(args: argparse.Namespace) -> LocalSource:
    from edge_client.agent.local_source import DataChoice, LocalSource
    from edge_client.data.partition import parse_partition

    match = re.fullmatch(r"(\d+)/(\d+)", args.share)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise ConfigError(f"--share '{args.share}': expected I/N with I from 1 to N, for instance 3/5")
    partition = parse_partition(args.partition)
    if args.data is None:
        raise ConfigError(f"run: no data{_where(args)}: {SOURCES_REMEDY}")
    return LocalSource(
        DataChoice(args.data, args.data_root, partition, index - 1, count, args.hold_out, args.seed)
    )
