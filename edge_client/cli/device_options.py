"""The options of a device: `--some-name` of `edge-client run`, and `some-name` in `client.toml`.

The libraries that read the file are imported only when it is used.
"""

import argparse
import socket
from pathlib import Path
from typing import Literal

from edge_client.cli.options import (
    SECONDS_OR_0,
    Option,
    count_option,
    seconds_option,
    tls_options,
)


def _own_network(text: str) -> str:
    module, _, factory = text.partition(":")
    if not (module and factory):
        raise argparse.ArgumentTypeError(f"'{text}' is not MODULE:FACTORY, for instance mynet:build")
    return text


ProviderName = Literal["auto", "tensorrt", "cuda", "openvino", "qnn", "coreml", "xnnpack", "acl", "cpu"]


PROVIDERS = Option(
    "--providers",
    ProviderName,
    "what runs models and onnxruntime's training steps: auto tries its providers against the CPU and"
    " takes the fastest that gives the same answers; of a list the first that does; the CPU always follows"
    " (default: auto)",
    ["auto"],
    "auto|NAME,...",
    many=True,
)
BROKER = (
    Option(
        "--broker",
        str,
        "broker, mqtt://HOST:1883 or mqtts://HOST:8883, ws:// or wss:// (default: %(default)s)",
        "mqtt://127.0.0.1:1883",
        "URL",
    ),
    *tls_options("this device's"),
    Option("--federation", str, "name of the federation (default: %(default)s)", "federation", "NAME"),
    Option(
        "--label",
        str,
        "a label of this device, by which an operator chooses devices (repeatable)",
        (),
        "KEY=VALUE",
        many=True,
    ),
    Option("--device-id", str, "the device's name (default: host name)", socket.gethostname(), "NAME"),
)
DATA = (
    Option(
        "--data",
        str,
        "data source: digits, MNIST, folder:PATH, npz:PATH, python:module:function",
        None,
        "SOURCE",
    ),
    Option("--data-root", Path, "folder of named data sets", None, "DIR"),
    Option(
        "--partition",
        str,
        "iid, dirichlet(ALPHA), shards(K), paired or blocks (default: %(default)s)",
        "iid",
        "P",
    ),
    Option("--share", str, "use share I of N of the partition (default: all data)", "1/1", "I/N"),
    count_option(
        "--seed", "seed of the partition and the hold-out (default: %(default)s)", 0, {"ge": 0, "lt": 2**63}
    ),
    Option(
        "--hold-out",
        float,
        "share of the data that is held out to measure accuracy (default: %(default)s)",
        0.2,
        "F",
        {"ge": 0, "lt": 1},
    ),
    seconds_option(
        "--watch-data-s",
        "seconds between looks at data that may grow; 0 looks before each task alone (default: 30)",
        30.0,
        SECONDS_OR_0,
    ),
    Option(
        "--drift-alarms",
        float,
        "share of tests of new data that may raise a false alarm of drift; 0 does not test"
        " (default: %(default)s)",
        0.01,
        "F",
        {"ge": 0, "lt": 1},
    ),
)
TRAINING = (
    count_option("--tier", "capability tier, 1 is the weakest (default: by the server)"),
    Option(
        "--trainer",
        Literal["auto", "torch", "onnx"],
        "what trains: torch, or onnxruntime with the server's step graphs; auto takes torch where it is"
        " installed and fits into memory (default: %(default)s)",
        "auto",
        "auto|torch|onnx",
    ),
    Option(
        "--device",
        Literal["auto", "cpu", "cuda", "mps"],
        "what torch trains on: auto tries the board's accelerator and takes it where it gives the processor's"
        " gradients faster (default: %(default)s)",
        "auto",
        "auto|cpu|cuda|mps",
    ),
    count_option("--threads", "threads for training"),
    Option("--state-dir", Path, "folder of blobs and models (default: under ~)", None, "DIR"),
    seconds_option(
        "--checkpoint-s", "seconds of training between checkpoints, taken after epochs (default: 5)"
    ),
    seconds_option(
        "--telemetry-every-s",
        "seconds between reports of progress and board, also while idle; 0 for none (default: 30)",
        30.0,
        SECONDS_OR_0,
    ),
    Option(
        "--model-code",
        str,
        "your own network that the server may name (repeatable)",
        (),
        "MODULE:FACTORY",
        many=True,
        parse=_own_network,
    ),
)
FLOWER = (
    Option(
        "--flower",
        str,
        "a Flower ClientApp that trains, or the folder of its pyproject.toml",
        None,
        "MODULE:APP",
    ),
    Option(
        "--flower-config",
        str,
        "run config of the app; overrides its own and the federation's (repeatable)",
        (),
        "KEY=VALUE",
        many=True,
    ),
    Option(
        "--flower-node",
        str,
        "node config of the app (default: partition-id and num-partitions from --share)",
        (),
        "KEY=VALUE",
        many=True,
    ),
)
MODEL = (
    Option(
        "--trust",
        Path,
        "accept only tasks and models that this key has signed (the server's signing.pub)",
        None,
        "KEY.pub",
    ),
    Option("--only-masked", bool, "decline tasks without secure aggregation"),
    count_option(
        "--min-examples", "decline to send statistics of fewer examples than this (default: %(default)s)", 5
    ),
    Option(
        "--variants",
        Literal["fp32", "fp16", "int8"],
        "variants of the final model to try; the fastest good one is served (default: fp32,fp16,int8)",
        ["fp32", "fp16", "int8"],
        "LIST",
        many=True,
    ),
    Option(
        "--max-accuracy-loss",
        float,
        "largest loss of accuracy of the served variant on held-out data, in points (default: %(default)s)",
        1.0,
        "POINTS",
        {"ge": 0, "le": 100},
    ),
    PROVIDERS,
)
RUN = (
    Option("--keep-trying", bool, "retry the broker even if that cannot help (wrong authority, refused)"),
    Option(
        "--remote-diagnostics",
        bool,
        "let an operator read this device's checks, log, profile and last crash, masked of data and keys"
        " (default: yes)",
        True,
    ),
    Option("--once", bool, "end with the first run"),
    Option("--quiet", bool, "log warnings only"),
)
DEVICE_OPTIONS = (*BROKER, *DATA, *TRAINING, *FLOWER, *MODEL, *RUN)
