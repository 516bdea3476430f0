"""Profile of a round: `python -m tests.benchmarks.profile`, or `make profile`.

The federation of `overhead` with `--images` per device, its server and one device under py-spy, which samples
their stacks a hundred times a second: a flame graph each, and a table of the busiest functions.
Functions include the functions that they call, so the shares of a table add up to more than 100%.
"""

import argparse
import html
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from edge_server.transport.broker.launch import running_broker
from tests.benchmarks.client_data import IMAGES, write_clients
from tests.benchmarks.federation import DEVICES, LARGE, LIMIT_S, Work, device, server
from tests.benchmarks.processes import Started, processes

NETWORKS = {"two-nn": "two-nn", "large": LARGE}
WATCHED = ("server", "device 0")
RATE = 100
ROWS = 16
OURS = ("edge_server/", "edge_client/", "schemas/")
_BOX = re.compile(r"<title>([^<]+?) \(([^()]+):\d+\) \(([\d,]+) samples?, [\d.]+%\)</title>")
_ALL = re.compile(r"<title>all \(([\d,]+) samples?, 100%\)</title>")


class NotProfiled(Exception):
    """There is no profile; the message names what is missing."""


def profile(work: Work, data: Path, folder: Path, out: Path) -> list[Path]:
    """Run the federation with server and first device under py-spy; return the flame graphs' files."""
    if not _py_spy().exists():
        raise NotProfiled("py-spy is not installed: pip install 'edge-federation[dev]'")
    out.mkdir(parents=True, exist_ok=True)
    graphs = {name: out / f"{name.replace(' ', '-')}.svg" for name in WATCHED}
    with running_broker("auto", folder / "broker") as broker, processes() as started:
        commands = {"server": server(work, folder, broker.url)}
        for index in range(DEVICES):
            commands[f"device {index}"] = device(work, data, folder, broker.url, index)
        for name, command in commands.items():
            watched = _spied(command, graphs[name]) if name in graphs else command
            started.start(name, watched, log=folder / f"{name}.log", env={"OMP_NUM_THREADS": "1"})
        _wait(started, folder)
    missing = [str(path) for path in graphs.values() if not path.exists()]
    if missing:
        raise NotProfiled(f"py-spy has not written {', '.join(missing)}: {_output(folder)}")
    return list(graphs.values())


def table(graph: Path) -> str:
    """The functions of this project that were on the stack most often, including their calls."""
    text = graph.read_text()
    everything = _ALL.search(text)
    if everything is None:
        raise NotProfiled(f"{graph} is not a flame graph of py-spy")
    total, samples = _number(everything[1]), Counter[str]()
    for name, path, count in _BOX.findall(text):
        if path.startswith(OURS):
            samples[f"{html.unescape(name)} ({path})"] += _number(count)
    lines = [f"{graph}: {total / RATE:.1f} s, all threads added up"]
    for name, count in samples.most_common(ROWS):
        lines.append(f"  {100 * count / total:5.1f} %  {count / RATE:6.2f} s  {name}")
    return "\n".join(lines)


def _py_spy() -> Path:
    return Path(sys.executable).with_name("py-spy")


def _spied(command: Sequence[str], graph: Path) -> list[str]:
    options = ["record", "--rate", str(RATE), "--threads", "--output", str(graph)]
    return [str(_py_spy()), *options, "--", *command]


def _wait(started: Started, folder: Path) -> None:
    """Wait until all processes have ended, which they do at the end of the run."""
    until = time.monotonic() + LIMIT_S
    while running := [name for name, process in started.all.items() if process.poll() is None]:
        failed = [name for name in WATCHED if started.all[name].poll()]
        if failed or time.monotonic() > until:
            raise NotProfiled(f"the run failed: {_output(folder)}")
        started.wait(running[0], 0.1)


def _output(folder: Path) -> str:
    """The end of the output of py-spy and of the process under it: it reports missing rights."""
    texts = [(folder / f"{name}.log").read_text(errors="replace").strip() for name in WATCHED]
    return " / ".join(text[-400:] for text in texts if text) or "no output"


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def main() -> None:
    """Profile and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path("../shared/data"), help="folder with MNIST")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, default=IMAGES, help="per device; 1 shows rounds without work")
    parser.add_argument("--network", choices=NETWORKS, default="two-nn")
    parser.add_argument("--out", type=Path, default=Path("runs/profile"), help="where the graphs go")
    args = parser.parse_args()
    work = Work(NETWORKS[args.network], args.images, args.rounds)
    try:
        with tempfile.TemporaryDirectory(prefix="edge-profile-") as name:
            write_clients(args.data_root, Path(name) / "data", DEVICES, images=args.images)
            graphs = profile(work, Path(name) / "data", Path(name), args.out)
        print("\n\n".join(table(graph) for graph in graphs))
    except (NotProfiled, OSError) as error:
        sys.exit(f"no profile: {error}")


if __name__ == "__main__":
    main()
