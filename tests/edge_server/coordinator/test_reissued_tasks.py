"""Open tasks of a restored run get new numbers and signatures; what was accepted stays."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from edge_client.security.task_verifier import check_task
from edge_client.security.trusted_key import read_trusted_key
from edge_server.coordinator.jobs import reissue_tasks
from edge_server.rounds.participant import Status
from edge_server.rounds.state import Phase, RoundRules
from edge_server.security.manifest_signer import ManifestSigner, open_manifest_signer
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.recovery import Recovered, recover
from tests.edge_server.rounds.by_hand import NAME, RUN, assignment, update

RULES = RoundRules(rounds=3)
FLOOR = 1_800_000_000


def recovered(path: Path) -> Recovered:
    with closing(JournalReader(path)) as reader:
        found = recover(reader, RULES, NAME, now=0.0)
    assert found is not None
    return found


def test_open_tasks_are_signed_again_under_a_later_number_and_accepted_updates_stay(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    signer = open_manifest_signer(NAME, RUN, tmp_path, None)
    tasks = {
        name: replace(given, task=signer.task(given.task, name, parent_sha256="a" * 64))
        for name, given in ((name, assignment(1, 1)) for name in "ab")
    }
    with closing(Journal(path)) as journal:
        journal.begun(RUN, NAME)
        journal.write_planning(1, 1, tasks, needed=2)
        journal.write_examined(update("b"), reason=None)
        journal.write_restoration(FLOOR, epochs=1000, at=float(FLOOR))
        found = recovered(path)
        assert (found.restored, found.federation.attempt) == (FLOOR, FLOOR)
        federation = reissue_tasks(found.federation, found.restored, signer, journal, now=0.0)
        status = {name: participant.status for name, participant in federation.participants.items()}
        assert status == {"a": Status.OFFERED, "b": Status.COUNTED}
        task = federation.participants["a"].assignment.task
        assert (task.attempt, federation.attempt) == (FLOOR + 1, FLOOR + 1)
        assert federation.participants["b"].assignment.task.attempt == 1
        check_task(task, read_trusted_key(tmp_path / "signing.pub"), federation=NAME, device="a")
        # A second start of the server finds these tasks again, and changes nothing.
        again = recovered(path).federation
        assert again.phase is Phase.TRAINING
        assert again.participants["a"].assignment.task == task
        assert again.participants["b"].status is Status.COUNTED
        same = reissue_tasks(again, FLOOR, signer, journal, now=0.0)
        assert (same.attempt, dict(same.participants)) == (again.attempt, dict(again.participants))


def test_open_deliveries_get_a_later_number_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        journal.begun(RUN, NAME)
        journal.write_planning(4, 3, {name: assignment(3, 4, deliver=True) for name in "ab"}, deliver=True)
        journal.write_restoration(FLOOR, epochs=1000, at=float(FLOOR))
        found = recovered(path)
        federation = reissue_tasks(
            found.federation, found.restored, ManifestSigner(NAME, RUN), journal, now=0.0
        )
    assert {p.assignment.task.attempt for p in federation.participants.values()} == {FLOOR + 1}
    again = recovered(path).federation
    assert again.phase is Phase.DELIVERING
    assert {p.assignment.task.attempt for p in again.participants.values()} == {FLOOR + 1}
