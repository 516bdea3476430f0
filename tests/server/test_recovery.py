"""A round into which others came after its planning, as a restarted server finds it in its journal."""

from __future__ import annotations

from contextlib import closing

from edge_server.federation import RoundRules
from edge_server.journal import Journal
from edge_server.journal_reader import JournalReader
from edge_server.participant import Status
from edge_server.recovery import recover
from edge_server.rounds import Phase
from tests.rounds.by_hand import NAME, RUN, assignment, update

RULES = RoundRules(rounds=3)


def test_whoever_joined_a_round_has_its_part_in_it_and_an_abandoned_planning_has_none(tmp_path):
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.begun(RUN, NAME)
        journal.planned(1, 1, {"z": assignment(1, 1)}, needed=1)
        journal.planned(2, 1, {name: assignment(1, 2) for name in "ab"}, needed=2)
        journal.planned(3, 1, {"c": assignment(1, 3)})
        journal.examined(update("b", attempt=2), reason=None)
    with closing(JournalReader(tmp_path / "journal.sqlite")) as reader:
        recovered = recover(reader, RULES, NAME, now=0.0)
    assert recovered is not None
    federation = recovered.federation
    assert (federation.phase, federation.attempt, federation.needed) == (Phase.TRAINING, 3, 2)
    status = {name: one.status for name, one in federation.participants.items()}
    assert status == {"a": Status.OFFERED, "b": Status.COUNTED, "c": Status.OFFERED}
