"""Backups of a living run at any moment can be resumed; one of them goes on while the old folder may not.

A part of `make chaos`.
"""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import parse_address
from edge_server.coordinator.round_rules import make_rules
from edge_server.coordinator.run_start import open_run
from edge_server.fleet.backup.archive import Chain
from edge_server.fleet.backup.making import make_backup
from edge_server.fleet.backup.restoring import restore_backup
from edge_server.fleet.backup.sealing import Sealer
from edge_server.fleet.backup.sources import sources_of
from edge_server.transport.broker.launch import running_broker
from tests.integration.conftest import DEADLINE_S, Command, command, demo_config, read_until
from tests.integration.device_threads import devices
from tests.integration.test_backup import last_state
from tests.integration.test_resume import ServerRun

__all__ = ["command"]
pytestmark = pytest.mark.skipif("CHAOS_EVERY_WRITE" not in os.environ, reason="a part of make chaos")
SEALER = Sealer.new("correct horse", cost=2**10)
BACKUPS = 20
WORDS = (
    *("federation.name=test", "rounds=12", "num-clients=2", "min-clients=2", "local-epochs=2"),
    *("deadline-s=120", "rejoin-s=60", "deliver=none"),
)


@pytest.mark.parametrize("downlink", ['["zstd"]', '["delta", "int8", "zstd"]'])
def test_every_backup_of_a_living_run_can_be_resumed(tmp_path: Path, downlink: str) -> None:
    settings = {"clients.num-clients": 2, "deliver": "none", "rounds": 4000, "strategy.downlink": downlink}
    config, folder, earlier = demo_config(**settings), tmp_path / "runs" / "home", None
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "devices"):
            run = ServerRun(config, address, folder)
            run.watched.until(lambda snapshot: snapshot.round > 1)
            for number in range(BACKUPS):
                file = tmp_path / f"{number}.backup"
                make_backup(file, sources_of(None, (), (folder,)), sealer=SEALER, since=earlier)
                with closing(Chain.open(file)) as chain:
                    (restored,) = restore_backup(chain, tmp_path / f"restored-{number}", sealer=SEALER)
                assert unsound(restored, config) == []
                earlier = file
            run.server.stop()
            run.end()


def unsound(run: Path, config) -> list[str]:
    """The accepted updates and blobs of open tasks that a restored run lacks; its state is read."""
    folder, recovered = open_run(run, config, make_rules(config), now=0.0)
    assert recovered is not None
    # No coordinator: two of one process must not trace networks at the same time.
    folder.load_state(recovered.resumption.round, recovered.resumption.state_sha256)
    store = BlobStore(folder.blobs)
    updates = [update.sent_blob for update in recovered.federation.updates.values()]
    at_work = [participant.assignment.task for participant in recovered.federation.at_work]
    blobs = [*updates, *(ref for task in at_work for ref in task.blobs.values())]
    return [ref.digest for ref in blobs if ref and not store.is_sound(ref.digest)]


def test_a_restored_run_goes_on_and_the_old_folder_may_not(command: Command, tmp_path: Path) -> None:
    config = demo_config(**{"num-clients": 2, "local-epochs": 2})
    (tmp_path / "pass").write_text("correct horse")
    passphrase = ("--passphrase-file", str(tmp_path / "pass"))
    old, new = tmp_path / "runs" / "home", tmp_path / "new" / "runs" / "home"

    def serve(broker: str, out: Path):
        words = ("run", "edge_server/cli/demo.toml", *WORDS, "--broker", broker, "--out", str(out))
        return command("edge-server", *words, "--format", "json")

    def edge_server(*words: object) -> None:
        ended = command("edge-server", *map(str, words))
        said, _ = ended.communicate(timeout=DEADLINE_S)
        assert ended.returncode == 0, said

    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "devices-1"):
            assert serve(broker.url, tmp_path / "whole").wait(timeout=DEADLINE_S) == 0
        with devices(config, address, tmp_path / "devices-2"):
            first = serve(broker.url, old)
            read_until(first, '"round":2')
            edge_server("backup", tmp_path / "a.backup", "--run", old, *passphrase)
            first.send_signal(signal.SIGSTOP)
            edge_server("restore", tmp_path / "a.backup", "--to", tmp_path / "new", *passphrase)
            first.kill()
            first.wait(timeout=DEADLINE_S)
            restored = serve(broker.url, new)
            said, _ = restored.communicate(timeout=2 * DEADLINE_S)
            assert restored.returncode == 0, said
        assert last_state(new) == last_state(tmp_path / "whole")
        again = serve(broker.url, old)
        said, _ = again.communicate(timeout=DEADLINE_S)
        assert again.returncode == 2
        assert "was continued by another server" in said
