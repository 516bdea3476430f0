"""A standby takes over from a server that is stopped, and hands over to the next one."""

import json
import shutil
import signal
from contextlib import closing
from pathlib import Path

from edge_server.storage.journal_reader import JournalReader
from tests.forked import ForkedCommand
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, Command, demo_config, read_until
from tests.integration.device_threads import devices

WORDS = (
    *("federation.name=test", "rounds=1000", "num-clients=2", "min-clients=2", "local-epochs=1", "quorum=1"),
    *("deadline-s=60", "rejoin-s=20", "deliver=none", "test-samples=20"),
)


def standby_of(server: Path, folder: Path, command: Command, url: str) -> ForkedCommand:
    """A standby that is up to date; the operator has copied the signing key."""
    folder.mkdir()
    shutil.copy(server / "signing.key", folder / "signing.key")
    words = ("standby", str(folder), "--of", "test", "--broker", url, "--format", "json")
    process = command("edge-server", *words)
    read_until(process, "ready to take over")
    return process


def epochs(folder: Path) -> tuple[int, ...]:
    with closing(JournalReader(folder / "journal.sqlite")) as reader:
        return reader.epochs()


@ONE_BROKER
def test_a_run_moves_from_a_stopped_server_to_its_standby_and_on_by_handover(
    broker, address, command: Command, tmp_path: Path, monkeypatch
) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    active = command(
        *("edge-server", "run", "edge_server/cli/demo.toml", *WORDS),
        *("--broker", broker.url, "--out", str(first), "--format", "json", "--log-level", "info"),
    )
    read_until(active, "connected to mqtt")
    monkeypatch.setenv("EDGE_HEARTBEAT", str(tmp_path / "alive"))
    standby = standby_of(first, second, command, broker.url)
    assert (tmp_path / "alive").exists()
    with devices(demo_config(**{"num-clients": 2}), address, tmp_path / "devices"):
        read_until(active, '"round":1')
        active.send_signal(signal.SIGSTOP)
        read_until(standby, "takes over, in epoch 2")
        active.send_signal(signal.SIGCONT)
        said, _ = active.communicate(timeout=DEADLINE_S)
        assert active.returncode == 1
        assert "another server serves the federation 'test' now: host" in said
        assert "/second, since" in said
        again = command("edge-server", "handover", str(first))
        assert "no server runs there on this machine" in again.communicate(timeout=DEADLINE_S)[0]
        assert again.returncode == 2

        last = standby_of(second, third, command, broker.url)
        handover = command("edge-server", "handover", str(second))
        assert "handed over to the standby on" in handover.communicate(timeout=DEADLINE_S)[0]
        read_until(last, "takes over, in epoch 3")
        read_until(last, '"round":')
        last.send_signal(signal.SIGINT)
        last.communicate(timeout=DEADLINE_S)
    assert last.returncode == 130
    rounds = [json.loads(line)["round"] for line in (third / "history.jsonl").read_text().splitlines()]
    assert rounds == list(range(1, len(rounds) + 1))
    assert (epochs(first), epochs(second), epochs(third)) == ((1,), (1, 2), (1, 2, 3))
    assert standby.wait(timeout=DEADLINE_S) == 143
