"""`edge-client bench`: measure the speed of an exported model on this machine."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli import device_options, options
from edge_client.system.plain_text import print_rows

if TYPE_CHECKING:
    from edge_client.inference.benchmark import BenchResult

HELP = "measure how fast an exported model is here"
EXAMPLES = """\
latency: one image; throughput: batches of 32; memory: the whole process

examples:
  edge-client bench tier-1.onnx
  edge-client bench tier-1.onnx --threads 4 --seconds 5 --format json
  edge-client bench tier-1.onnx --trust signing.pub
"""


OPTIONS = (
    options.Option("model", Path, "a model of `run` or of the server", metavar="MODEL.onnx"),
    options.count_option(
        "--threads",
        "measure with 1, 2, 4... up to N threads (default: %(default)s)",
        min(4, os.cpu_count() or 1),
    ),
    options.seconds_option("--seconds", "time per thread count (default: 1)", 1.0),
    options.seconds_option(
        "--deadline", "end after this many seconds in all, with what is measured (default: 300)", 300.0
    ),
    device_options.PROVIDERS,
    options.TRUST,
)


def execute(args: argparse.Namespace) -> int:
    """Measure and print a line per thread count, also of those before a deadline or Ctrl-C."""
    from edge_client.inference.benchmark import bench, collect
    from edge_client.inference.providers.table import ProviderSettings

    trust, results = options.read_trust_option(args), list["BenchResult"]()
    providers = ProviderSettings(tuple(args.providers))
    measured = bench(
        args.model, max_threads=args.threads, seconds=args.seconds, trust=trust, providers=providers
    )
    try:
        collect(measured, results, args.deadline)
    finally:
        if results:
            _print(args, results)
    return 0


def _print(args: argparse.Namespace, results: "Sequence[BenchResult]") -> None:
    on_cpu = all(result.provider == "cpu" for result in results)
    print_rows(
        args,
        {"model": str(args.model), "results": [asdict(result) for result in results]},
        ("threads", "median ms", "p95 ms", "images/s", "memory MB", "runs", *([] if on_cpu else ["on"])),
        [
            (
                str(result.threads),
                f"{result.median_ms:.3f}",
                f"{result.p95_ms:.3f}",
                f"{result.images_per_second:.0f}",
                f"{result.rss_bytes / 1e6:.0f}",
                str(result.runs),
                *([] if on_cpu else [result.provider]),
            )
            for result in results
        ],
    )
