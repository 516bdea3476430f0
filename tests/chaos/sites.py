"""`python -m tests.chaos.sites`: kill the server and the gateway of a site again and again during a run.

Both are processes of their own with real brokers; two devices are at the site, one is at the server's broker.
The models of all rounds must be those of the same federation without a site and without kills.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from edge_client.transport.broker_link import parse_address
from edge_server.config.config import Config
from edge_server.storage.journal_reader import JournalReader
from edge_server.transport.broker.launch import running_broker
from tests.integration.test_sites import NAMES, config, devices

LIMIT_S = 900.0
LIFE_S, PAUSE_S = (0.5, 4.0), (0.0, 2.0)
"""Between two kills, and between a kill and the next start: seconds, at least and at most."""
Processes = dict[str, subprocess.Popen[bytes]]


def started(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """An `edge-server` with these words."""
    with log.open("ab") as file:
        command = [sys.executable, "-m", "edge_server.cli.main", *words]
        return subprocess.Popen(command, stdout=file, stderr=file)


def server_words(settings: Config, broker: str, folder: Path) -> list[str]:
    """The words that serve a federation into `folder`."""
    file = folder.with_suffix(".toml")
    file.write_text(settings.to_toml())
    return ["run", str(file), "--broker", broker, "--out", str(folder)]


def models(folder: Path) -> list[str]:
    """The digests of the models of all rounds."""
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        return [closed.state_sha256 for closed in reader.rounds()]


def disturbed(folder: Path, rounds: int, kills: int, seed: int) -> tuple[list[str], int]:
    """The models of a run whose server and gateway are killed, and the number of kills."""
    settings, draw, done = config("barn", rounds=rounds), random.Random(seed), 0
    with running_broker("auto", folder / "upper") as upper, running_broker("auto", folder / "lower") as lower:
        words = {
            "server": server_words(settings, upper.url, folder / "run"),
            "gateway": [
                *("gateway", "--federation", "test", "--site", "barn", "--out", str(folder / "barn")),
                *("--upstream", upper.url, "--broker", lower.url),
            ],
        }
        at = {name: parse_address((lower if name.startswith("barn.") else upper).url) for name in NAMES}
        with devices(settings, at, folder / "devices"):
            running = {name: started(line, folder / f"{name}.log") for name, line in words.items()}
            try:
                done = _kill(running, words, folder, draw, kills)
                running["server"].wait(timeout=LIMIT_S)
            finally:
                for process in running.values():
                    process.kill()
                    process.wait()
    return models(folder / "run"), done


def _kill(
    running: Processes, words: Mapping[str, list[str]], folder: Path, draw: random.Random, kills: int
) -> int:
    """Kill and start again until the run is over or there were enough kills; returns their number."""
    done = 0
    while done < kills:
        time.sleep(draw.uniform(*LIFE_S))
        if running["server"].poll() is not None:
            return done
        name = draw.choice(sorted(words))
        running[name].kill()
        running[name].wait()
        done += 1
        time.sleep(draw.uniform(*PAUSE_S))
        running[name] = started(words[name], folder / f"{name}.log")
    return done


def undisturbed(folder: Path, rounds: int) -> list[str]:
    """The models of the same run without a site and without kills."""
    settings, state = config(rounds=rounds), folder / "flat-devices"
    with (
        running_broker("auto", folder / "flat-broker") as broker,
        devices(settings, dict.fromkeys(NAMES, parse_address(broker.url)), state),
    ):
        words = server_words(settings, broker.url, folder / "flat")
        started(words, folder / "flat.log").wait(timeout=LIMIT_S)
    return models(folder / "flat")


def main() -> int:
    """Run until there were enough kills; exit code 1 if a model differs."""
    parser = argparse.ArgumentParser(prog="tests.chaos.sites", description=__doc__)
    parser.add_argument("--blows", type=int, default=100, metavar="N", help="kills (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, metavar="N", help="rounds of each run")
    args = parser.parse_args()
    done = run = different = 0
    with tempfile.TemporaryDirectory(prefix="edge-sites-") as made:
        expected = undisturbed(Path(made), args.rounds)
        while done < args.blows:
            folder = Path(made) / f"run-{run}"
            folder.mkdir()
            found, kills = disturbed(folder, args.rounds, args.blows - done, run)
            done, run, different = done + kills, run + 1, different + (found != expected)
            print(f"run {run}: {kills} kills, {'equal' if found == expected else 'DIFFERENT'}", flush=True)
    print(f"{done} kills of servers and gateways in {run} runs: {different} runs ended with other models")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
