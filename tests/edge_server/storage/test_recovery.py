"""Recovery from the journal, including a round that devices joined after its planning."""

from contextlib import closing

import pytest

from edge_server.coordinator.coordinator import assemble
from edge_server.rounds.events import EndRun
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from edge_server.rounds.state import RoundRules
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.recovery import recover
from schemas.errors import ConfigError
from tests.edge_server.rounds.by_hand import NAME, RUN, assignment, update
from tests.integration.bench import Bench

RULES = RoundRules(rounds=3)


def test_devices_that_joined_a_round_are_recovered_and_those_of_an_abandoned_planning_are_not(tmp_path):
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.begun(RUN, NAME)
        journal.write_planning(1, 1, {"z": assignment(1, 1)}, needed=1)
        journal.write_planning(2, 1, {name: assignment(1, 2) for name in "ab"}, needed=2)
        journal.write_planning(3, 1, {"c": assignment(1, 3)})
        journal.write_examined(update("b", attempt=2), reason=None)
    with closing(JournalReader(tmp_path / "journal.sqlite")) as reader:
        recovered = recover(reader, RULES, NAME, now=0.0)
    assert recovered is not None
    federation = recovered.federation
    assert (federation.phase, federation.attempt, federation.needed) == (Phase.TRAINING, 3, 2)
    status = {name: participant.status for name, participant in federation.participants.items()}
    assert status == {"a": Status.OFFERED, "b": Status.COUNTED, "c": Status.OFFERED}


def test_a_round_whose_test_has_not_ended_is_closed_and_has_no_line_of_history(tmp_path):
    bench = Bench(tmp_path, "fedavg", "rounds=3")
    records = [bench.round(number)[0] for number in (1, 2)]
    journal = bench.coordinator.storage.journal
    partial = records[1].model_copy(update={"test_accuracy": None, "diverged": True})
    journal.write_closed_round(
        2, "0" * 64, updates=(), over=(), record=partial.model_dump_json(), traffic={}, tested=False
    )
    with closing(JournalReader(bench.folder.journal)) as reader:
        recovered = recover(reader, RULES, "federation", now=0.0)
    bench.coordinator.storage.close()
    assert recovered is not None
    assert list(recovered.history) == records[:1]
    assert (recovered.resumption.round, recovered.resumption.untested) == (2, partial)
    assert recovered.federation.diverged


def test_a_run_resumes_only_with_the_model_of_its_last_round(tmp_path):
    bench = Bench(tmp_path, "fedavg", "rounds=3")
    for number in (1, 2):
        bench.round(number)
    with closing(JournalReader(bench.folder.journal)) as reader:
        recovered = recover(reader, RULES, "federation", now=0.0)
    assert recovered is not None
    before = bench.coordinator
    before.storage.close()
    assert recovered.resumption.state_sha256 == before.model.sha256
    again = assemble(before.context.config, "run-1", bench.folder, resume=recovered.resumption)
    assert again.model.sha256 == before.model.sha256
    again.storage.close()
    bench.folder.model(2).write_bytes(bench.folder.model(1).read_bytes())
    with pytest.raises(ConfigError, match="is not the model that round 2 ended with"):
        assemble(before.context.config, "run-1", bench.folder, resume=recovered.resumption)


def test_the_end_of_a_run_is_recovered(tmp_path):
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.begun(RUN, NAME)
        journal.write_planning(1, 1, {"a": assignment(1, 1)})
        journal.write_end("interrupted", "stopped by the user")
    with closing(JournalReader(tmp_path / "journal.sqlite")) as reader:
        recovered = recover(reader, RULES, NAME, now=0.0)
    assert recovered is not None
    assert recovered.federation.announced_end == EndRun("interrupted", "stopped by the user")
