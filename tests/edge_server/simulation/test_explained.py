"""A simulation records each of its choices and observations once, even if it is resumed."""

from contextlib import closing
from pathlib import Path

import pytest

from edge_server.storage.journal_reader import JournalReader, RecordedPlanning
from edge_server.strategy.explanations import Observation, RoundChoices
from tests.edge_server.simulation.small import StopAfter, history, run

CLIENTS = ("num-clients=4", "rounds=3", "fraction=0.5", 'strategy.selection="attention"')


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that draws two of four devices a round by AdaFL's scores and weights updates by similarity."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(out, "attending-igfl", *CLIENTS).outcome == "finished"
    return out


def read(out: Path) -> tuple[list[RecordedPlanning], list[RoundChoices], list[Observation]]:
    with closing(JournalReader(out / "journal.sqlite")) as reader:
        return reader.plannings(), reader.choices(), reader.observations()


def test_every_planning_records_the_choice_and_score_of_all_four_devices(whole: Path) -> None:
    plannings, choices, _ = read(whole)
    assert [(made.attempt, made.round) for made in choices] == [
        (made.attempt, made.round) for made in plannings
    ]
    records = history(whole)
    for planned, recorded in zip(plannings, choices, strict=True):
        drawn = [device for device in recorded.devices if device.chosen]
        assert tuple(choice.device for choice in drawn) == planned.selected
        assert recorded.devices[:2] == tuple(drawn)
        assert (len(recorded.devices), recorded.left_out) == (4, 0)
        assert all(choice.because.startswith("drawn: attention 0.") for choice in drawn)
        assert all(choice.because.startswith("not drawn this time: ") for choice in recorded.devices[2:])
        assert sum(choice.score or 0 for choice in recorded.devices) == pytest.approx(1)
        if planned.round > 1:
            # The choice was made with the scores after the previous round.
            before = records[planned.round - 2]["attention"]
            assert {choice.device: choice.score for choice in recorded.devices} == before


def test_round_one_records_attention_scores_and_later_rounds_magnitudes(whole: Path) -> None:
    _, _, (first, second, third) = read(whole)
    assert [seen.round for seen in (first, second, third)] == [1, 2, 3]
    for name, group in first.groups.items():
        assert group.measure == "attention"
        assert {seen.groups[name].measure for seen in (second, third)} == {"magnitude"}
        # The five tiers keep 0.3, 0.5, 0.7, 0.9 and all of 100 or 200 channels, the same in every round, and
        # those with the highest scores.
        channels = len(group.scores)
        best = sorted(range(channels), key=lambda channel: (-group.scores[channel], channel))
        for tier, share in enumerate((3, 5, 7, 9), start=1):
            assert set(group.kept[tier]) == set(best[: channels * share // 10])
        assert group.kept[5] == channels
        assert group.kept == second.groups[name].kept == third.groups[name].kept


def test_the_recorded_similarity_is_that_of_the_rounds_updates(whole: Path) -> None:
    _, _, observations = read(whole)
    for seen, record in zip(observations, history(whole), strict=True):
        assert seen.similarity is not None
        assert list(seen.similarity.clients) == record["completed"]
        ((first, forth), (back, second)) = seen.similarity.values
        assert (first, second, forth) == (pytest.approx(1, abs=1e-3), pytest.approx(1, abs=1e-3), back)


def test_a_resumed_run_records_the_same_choices_and_observations_once(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(out, "attending-igfl", *CLIENTS, watcher=StopAfter(1)).outcome == "interrupted"
    assert run(out, "attending-igfl", *CLIENTS, resume=True).outcome == "finished"
    assert read(out)[1:] == read(whole)[1:]
