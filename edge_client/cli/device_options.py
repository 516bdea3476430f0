"""The options of a device: `--some-name` of `edge-client run`, and `some-name` in `client.toml`."""

import argparse
import operator
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from edge_client.cli.output import number, positive_int
from schemas.bounds import MAX_SECONDS
from schemas.errors import nearest

BOUNDS: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "lt": (operator.lt, "below"),
    "le": (operator.le, "at most"),
}


class DeviceOption(NamedTuple):
    """One option; `bounds` of a number by the names in `BOUNDS`, `many` values by repeating the option.

    `parse` overrides the conversion of an argument. `help` may end with its default in brackets.
    """

    name: str
    kind: Any
    help: str
    default: Any = None
    metavar: str | None = None
    bounds: Mapping[str, Any] = {}
    many: bool = False
    parse: Callable[[str], Any] | None = None

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add the option to a verb."""
        flag = f"--{self.name.replace('_', '-')}"
        if self.kind is bool and self.default:
            switch = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=switch, default=True, help=self.help)
            return
        if self.kind is bool:
            parser.add_argument(flag, action="store_true", help=self.help)
            return
        parser.add_argument(
            flag,
            action="append" if self.many and isinstance(self.default, tuple) else "store",
            type=self.parse or self._converter(),
            default=list(self.default) if self.many else self.default,
            metavar=self.metavar,
            help=self.help,
        )

    def _converter(self) -> Callable[[str], Any]:
        if self.kind is int and self.bounds == {"ge": 1}:
            return positive_int
        if self.kind is not float and not self.bounds:
            convert: Callable[[str], Any] = self.kind
            return convert

        def bounded(text: str) -> float:
            value = number(text) if self.kind is float else int(text)
            if not all(BOUNDS[name][0](value, limit) for name, limit in self.bounds.items()):
                words = (f"{BOUNDS[name][1]} {limit:g}" for name, limit in self.bounds.items())
                raise argparse.ArgumentTypeError(f"{text} is not {' and '.join(words)}")
            return value

        return bounded


def _own_network(text: str) -> str:
    module, _, factory = text.partition(":")
    if not (module and factory):
        raise argparse.ArgumentTypeError(f"'{text}' is not MODULE:FACTORY, for instance mynet:build")
    return text


def _trainer(text: str) -> str:
    known = ("auto", "torch", "onnx")
    if text not in known:
        raise argparse.ArgumentTypeError(f"'{text}'{nearest(text, known)}")
    return text


def _variants(text: str) -> list[str]:
    """Parse a list such as `fp32,int8`; fp32, the export itself, is always included."""
    known = ("fp32", "fp16", "int8")
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"'{name}'{nearest(name, known)}")
    return names


_Option = DeviceOption
BROKER = (
    _Option(
        "broker",
        str,
        "broker, mqtt://HOST:1883 or mqtts://HOST:8883, ws:// or wss:// (default: %(default)s)",
        "mqtt://127.0.0.1:1883",
        "URL",
    ),
    _Option("ca", Path, "certificate of the broker's authority (mqtts://)"),
    _Option("cert", Path, "this device's certificate (mqtts://)"),
    _Option("key", Path, "this device's private key (mqtts://)"),
    _Option("federation", str, "name of the federation (default: %(default)s)", "federation", "NAME"),
    _Option(
        "label",
        str,
        "a label of this device, by which an operator chooses devices (repeatable)",
        (),
        "KEY=VALUE",
        many=True,
    ),
    _Option("device_id", str, "the device's name (default: host name)", socket.gethostname(), "NAME"),
)
DATA = (
    _Option(
        "data",
        str,
        "data source: digits, MNIST, folder:PATH, npz:PATH, python:module:function",
        None,
        "SOURCE",
    ),
    _Option("data_root", Path, "folder of named data sets", None, "DIR"),
    _Option(
        "partition",
        str,
        "iid, dirichlet(ALPHA), shards(K), paired or blocks (default: %(default)s)",
        "iid",
        "P",
    ),
    _Option("share", str, "use share I of N of the partition (default: all data)", "1/1", "I/N"),
    _Option(
        "seed",
        int,
        "seed of the partition and the hold-out (default: %(default)s)",
        0,
        "N",
        {"ge": 0, "lt": 2**63},
    ),
    _Option(
        "hold_out",
        float,
        "share of the data that is held out to measure accuracy (default: %(default)s)",
        0.2,
        "F",
        {"ge": 0, "lt": 1},
    ),
    _Option(
        "watch_data_s",
        float,
        "seconds between looks at data that may grow; 0 looks before each task alone (default: 30)",
        30.0,
        "S",
        {"ge": 0, "le": MAX_SECONDS},
    ),
    _Option(
        "drift_alarms",
        float,
        "share of tests of new data that may raise a false alarm of drift; 0 does not test"
        " (default: %(default)s)",
        0.01,
        "F",
        {"ge": 0, "lt": 1},
    ),
)
TRAINING = (
    _Option("tier", int, "capability tier, 1 is the weakest (default: by the server)", None, "N", {"ge": 1}),
    _Option(
        "trainer",
        Literal["auto", "torch", "onnx"],
        "what trains: torch, or onnxruntime with the server's step graphs; auto takes torch where it is"
        " installed and fits into memory (default: %(default)s)",
        "auto",
        "auto|torch|onnx",
        parse=_trainer,
    ),
    _Option("threads", int, "threads for training", None, "N", {"ge": 1}),
    _Option("state_dir", Path, "folder of blobs and models (default: under ~)", None, "DIR"),
    _Option(
        "checkpoint_s",
        float,
        "seconds of training between checkpoints, taken after epochs (default: 5)",
        None,
        "S",
        {"gt": 0, "le": MAX_SECONDS},
    ),
    _Option(
        "telemetry_every_s",
        float,
        "seconds between reports of progress and board, also while idle; 0 for none (default: 30)",
        30.0,
        "S",
        {"ge": 0, "le": MAX_SECONDS},
    ),
    _Option(
        "model_code",
        str,
        "your own network that the server may name (repeatable)",
        (),
        "MODULE:FACTORY",
        many=True,
        parse=_own_network,
    ),
)
FLOWER = (
    _Option(
        "flower",
        str,
        "a Flower ClientApp that trains, or the folder of its pyproject.toml",
        None,
        "MODULE:APP",
    ),
    _Option(
        "flower_config",
        str,
        "run config of the app; overrides its own and the federation's (repeatable)",
        (),
        "KEY=VALUE",
        many=True,
    ),
    _Option(
        "flower_node",
        str,
        "node config of the app (default: partition-id and num-partitions from --share)",
        (),
        "KEY=VALUE",
        many=True,
    ),
)
MODEL = (
    _Option(
        "trust",
        Path,
        "accept only tasks and models that this key has signed (the server's signing.pub)",
        None,
        "KEY.pub",
    ),
    _Option("only_masked", bool, "decline tasks without secure aggregation"),
    _Option(
        "min_examples",
        int,
        "decline to send statistics of fewer examples than this (default: %(default)s)",
        5,
        "N",
        {"ge": 1},
    ),
    _Option(
        "variants",
        Literal["fp32", "fp16", "int8"],
        "variants of the final model to try; the fastest good one is served (default: fp32,fp16,int8)",
        ["fp32", "fp16", "int8"],
        "LIST",
        many=True,
        parse=_variants,
    ),
    _Option(
        "max_accuracy_loss",
        float,
        "largest loss of accuracy of the served variant on held-out data, in points (default: %(default)s)",
        1.0,
        "POINTS",
        {"ge": 0, "le": 100},
    ),
)
RUN = (
    _Option(
        "keep_trying",
        bool,
        "retry the broker even if that cannot help (wrong authority, refused)",
    ),
    _Option(
        "remote_diagnostics",
        bool,
        "let an operator read this device's checks, log, profile and last crash, masked of data and keys"
        " (default: yes)",
        True,
    ),
    _Option("once", bool, "end with the first run"),
    _Option("quiet", bool, "log warnings only"),
)
DEVICE_OPTIONS = (*BROKER, *DATA, *TRAINING, *FLOWER, *MODEL, *RUN)
