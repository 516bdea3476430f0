"""A whole simulation says why it chose and what its rounds showed; going on or not, each thing once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from edge_server.storage.journal_reader import JournalReader, RecordedPlanning
from edge_server.strategy.explanations import Observation, RoundChoices
from tests.edge_server.simulation.small import StopAfter, history, run

CLIENTS = ("num-clients=4", "rounds=3", "fraction=0.5", 'strategy.selection="attention"')


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of four devices a round, drawn by AdaFL's scores; their updates are weighed by likeness."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(out, "attending-igfl", *CLIENTS).outcome == "finished"
    return out


def read(out: Path) -> tuple[list[RecordedPlanning], list[RoundChoices], list[Observation]]:
    with closing(JournalReader(out / "journal.sqlite")) as reader:
        return reader.plannings(), reader.choices(), reader.observations()


def test_every_planning_says_of_all_four_whether_they_were_drawn_and_by_which_score(whole: Path) -> None:
    plannings, choices, _ = read(whole)
    assert [(one.attempt, one.round) for one in choices] == [(one.attempt, one.round) for one in plannings]
    records = history(whole)
    for planned, told in zip(plannings, choices, strict=True):
        drawn = [one for one in told.devices if one.chosen]
        assert tuple(one.device for one in drawn) == planned.selected
        assert told.devices[:2] == tuple(drawn)
        assert (len(told.devices), told.left_out) == (4, 0)
        assert all(one.because.startswith("drawn: attention 0.") for one in drawn)
        assert all(one.because.startswith("not drawn this time: ") for one in told.devices[2:])
        assert sum(one.score or 0 for one in told.devices) == pytest.approx(1)
        if planned.round > 1:
            # They were drawn by the scores after the round before.
            before = records[planned.round - 2]["attention"]
            assert {one.device: one.score for one in told.devices} == before


def test_round_one_shows_what_devices_attended_to_and_later_ones_the_weights(whole: Path) -> None:
    _, _, (first, second, third) = read(whole)
    assert [one.round for one in (first, second, third)] == [1, 2, 3]
    for name, group in first.groups.items():
        assert group.measure == "attention"
        assert list(group.scores) == sorted(group.scores, reverse=True)
        assert {one.groups[name].measure for one in (second, third)} == {"magnitude"}
        # Of 100 or 200 channels five tiers keep 0.3, 0.5, 0.7, 0.9 and all, in every round the same.
        channels = len(group.scores)
        kept = {tier: channels * share // 10 for tier, share in enumerate((3, 5, 7, 9, 10), start=1)}
        assert group.kept == second.groups[name].kept == third.groups[name].kept == kept


def test_the_likeness_of_the_two_updates_is_that_of_their_round(whole: Path) -> None:
    _, _, observations = read(whole)
    for seen, record in zip(observations, history(whole), strict=True):
        assert seen.similarity is not None
        assert list(seen.similarity.clients) == record["completed"]
        ((one, alike), (same, other)) = seen.similarity.values
        assert (one, other, alike) == (pytest.approx(1, abs=1e-3), pytest.approx(1, abs=1e-3), same)


def test_a_run_that_was_cut_off_and_goes_on_says_each_thing_once_and_the_same(
    whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert run(out, "attending-igfl", *CLIENTS, watcher=StopAfter(1)).outcome == "interrupted"
    assert run(out, "attending-igfl", *CLIENTS, resume=True).outcome == "finished"
    assert read(out)[1:] == read(whole)[1:]
