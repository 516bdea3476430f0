"""Runs documentation pages: writes their files, runs their commands and compares the output.

A block that starts with `# NAME` is the file NAME. A line `$ COMMAND` of a `console` block is run by bash;
the lines after it are the command's output. `...` stands for any text, a line `...` for any lines, and
accuracies are alike within `POINTS`.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.forked import forked_python
from tests.forked.connection import ADDRESS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "deploy" / "docs"
DEADLINE_S = 300
POINTS = 5.0
"""Percentage points by which a printed accuracy may differ from that of the page: processors round unlike."""
ACCURACY = r"accuracy (\d[\d.]*)%"
SETUP = """set -euo pipefail
run() { PYTHONPATH="$ROOT:$PWD" $PYTHON -m "$@"; }
edge-server() { run edge_server.cli.main "$@"; }
edge-client() { run edge_client.cli.main "$@"; }
python() { $PYTHON "$@"; }
mosquitto() { "$MOSQUITTO" "$@"; }
"""


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    yield from found


def files_of(page: Path) -> dict[str, str]:
    """The text of each file block, by the name in its first line."""
    named = [(re.match(r"# ([\w.-]+\.(?:py|toml))\n", text), text) for _, text in blocks(page)]
    return {found.group(1): text for found, text in named if found}


def write_files(page: Path, folder: Path) -> None:
    """Write the page's files into `folder`, and weights of the networks of torchvision that it names.

    These are drawn, and lie where torch looks before it would download: tests are without a network.
    """
    for name, text in files_of(page).items():
        (folder / name).write_text(text)
    tried = "\n".join([*files_of(page).values(), *(command for command, _ in commands(page))])
    for network in sorted({*re.findall(r"torchvision:(\w+)", tried)}):
        _write_drawn_weights(network, folder / ".cache" / "torch" / "hub" / "checkpoints")


def _write_drawn_weights(network: str, folder: Path) -> None:
    import torch
    from torchvision import models

    torch.manual_seed(0)
    module = models.get_model(network, weights=None)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1.0
    # Frozen layers keep their statistics: without any that fit, training on drawn weights diverges.
    module(torch.rand(16, 3, 96, 96))
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(module.state_dict(), folder / models.get_model_weights(network).DEFAULT.url.rpartition("/")[2])


def commands(page: Path) -> list[tuple[str, str]]:
    """Each command with the output on the page."""
    consoles = "".join(text for language, text in blocks(page) if language == "console")
    parts = re.split(r"^\$ ", consoles, flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def run_commands(page: Path, folder: Path, mosquitto: str) -> list[str]:
    """Run the page's commands in one shell; returns the output of each."""
    marked = "\n".join(f"{command}\necho '<<<>>>'" for command, _ in commands(page))
    # All processes of the page belong to one process group, which is killed at the end.
    shell = subprocess.Popen(
        ["bash", "-c", SETUP + marked],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={
            "ROOT": str(ROOT),
            # Each command is a process of its own, which needs no seconds for its imports.
            "PYTHON": shlex.join(forked_python()),
            "MOSQUITTO": mosquitto,
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "COLUMNS": "200",
            "OMP_NUM_THREADS": "1",
            "EDGE_GRAPHS": os.environ["EDGE_GRAPHS"],
            ADDRESS: os.environ[ADDRESS],
        },
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=DEADLINE_S)
    finally:
        end_group(shell.pid)
    assert shell.returncode == 0, f"{page.name}: {printed[-4000:]}"
    return printed.split("<<<>>>\n")[:-1]


def end_group(group: int) -> None:
    """Kill every remaining process of a group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def matches(shown: str, printed: str) -> bool:
    """Whether a command's output is the same as on its page."""
    return _lines_match(shown.strip("\n").split("\n"), printed.strip("\n").split("\n"))


def _lines_match(shown: list[str], printed: list[str]) -> bool:
    if not shown:
        return not printed
    first, *rest = shown
    if first.strip() == "...":
        return any(_lines_match(rest, printed[count:]) for count in range(len(printed) + 1))
    return bool(printed) and _line_matches(first, printed[0]) and _lines_match(rest, printed[1:])


def _line_matches(shown: str, printed: str) -> bool:
    pattern = re.escape(re.sub(ACCURACY, "accuracy ...%", shown)).replace(r"\.\.\.", ".*")
    accuracies = zip(re.findall(ACCURACY, shown), re.findall(ACCURACY, printed), strict=False)
    return bool(re.fullmatch(pattern, printed)) and all(
        abs(float(ours) - float(theirs)) <= POINTS for ours, theirs in accuracies
    )
