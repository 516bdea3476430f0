"""`make fuzz`: atheris on every decoder, one process and a bounded time each.

    python -m tests.fuzz --seconds 60 [TARGET...]

An input that breaks a decoder is stored in `.fuzz/TARGET/`, next to the corpus from which the next run
starts.
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

FOLDER = Path(".fuzz")
LARGEST = 8192


def main() -> int:
    """Fuzz the targets one after the other; returns 1 if a decoder failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60, help="time per target (default: 60)")
    args = parser.parse_args()
    if unknown := set(args.targets) - TARGETS.keys():
        parser.error(f"unknown target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if importlib.util.find_spec("atheris") is None:
        print("fuzzing is skipped: atheris is not installed (it has wheels for Linux on x86-64 and arm64)")
        return 0
    broken = [name for name in args.targets or TARGETS if not fuzz(name, args.seconds)]
    print(f"broken: {', '.join(broken)}; the inputs are in {FOLDER}/" if broken else "no decoder broke")
    return bool(broken)


def fuzz(name: str, seconds: int) -> bool:
    """Whether the decoder passed; its corpus starts with its examples."""
    corpus, found = FOLDER / name / "corpus", FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-max_len={LARGEST}", "-timeout=10", "-rss_limit_mb=2048"]
    command = [sys.executable, "-m", "tests.fuzz.harness", name, str(corpus), *options]
    done = subprocess.run([*command, f"-artifact_prefix={found}/"], capture_output=True, text=True)
    last = [line for line in done.stderr.splitlines() if line.startswith(("#", "Done"))][-1:]
    print(f"{name:16} {'held' if done.returncode == 0 else 'BROKE'}  {' '.join(last)}", flush=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-3000:])
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
