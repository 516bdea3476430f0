"""Private state takes effect only after the server has counted the round."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.storage.private_state import PrivateState
from schemas.tensors.arrays import Groups


@pytest.fixture
def private(tmp_path: Path) -> PrivateState:
    return PrivateState(tmp_path / "private", durable=False)


def groups(number: float) -> Groups:
    return {"own-control": {"w": np.array([number], np.float32)}}


def number(private: PrivateState, round_number: int, run: str = "run-1") -> float | None:
    """The value that a round starts from."""
    kept = private.load_groups(run, round_number)
    return float(kept["own-control"]["w"][0]) if kept else None


def count(private: PrivateState, round_number: int, attempt: int, value: float, run: str = "run-1") -> None:
    private.propose(run, round_number, attempt, groups(value))
    private.commit(run, round_number, attempt)


def test_a_new_device_has_no_private_state(private: PrivateState) -> None:
    assert private.load_groups("run-1", 1) == {}


def test_a_proposal_takes_effect_once_it_is_committed(private: PrivateState) -> None:
    private.propose("run-1", 1, 1, groups(1.0))
    assert number(private, 2) is None
    private.commit("run-1", 1, 1)
    assert number(private, 2) == 1.0
    assert number(private, 9) == 1.0


def test_a_discarded_proposal_has_no_effect(private: PrivateState) -> None:
    count(private, 1, 1, 1.0)
    private.propose("run-1", 2, 2, groups(2.0))
    private.discard("run-1", 2, 2)
    private.commit("run-1", 2, 2)
    assert number(private, 3) == 1.0
    private.discard("run-1", 2, 2)


def test_a_replanned_round_starts_from_the_previous_round(private: PrivateState) -> None:
    count(private, 1, 1, 1.0)
    count(private, 2, 2, 2.0)
    assert number(private, 2) == 1.0
    count(private, 2, 3, 20.0)
    assert number(private, 2) == 1.0
    assert number(private, 3) == 20.0


def test_only_the_attempt_that_counted_is_kept(private: PrivateState) -> None:
    private.propose("run-1", 1, 1, groups(1.0))
    private.propose("run-1", 1, 2, groups(2.0))
    private.commit("run-1", 1, 2)
    assert number(private, 2) == 2.0
    private.commit("run-1", 1, 1)
    assert number(private, 2) == 2.0


def test_another_run_starts_empty_and_replaces_the_first(private: PrivateState, tmp_path: Path) -> None:
    count(private, 1, 1, 1.0)
    private.propose("run-1", 2, 2, groups(2.0))
    assert number(private, 2, run="run-2") is None
    assert number(private, 2) == 1.0
    count(private, 1, 1, 5.0, run="run-2")
    assert number(private, 2, run="run-2") == 5.0
    assert [folder.name for folder in (tmp_path / "private").iterdir()] == ["run-2"]


def test_empty_groups_are_not_stored(private: PrivateState, tmp_path: Path) -> None:
    private.propose("run-1", 1, 1, {})
    private.commit("run-1", 1, 1)
    assert number(private, 2) is None
    assert not (tmp_path / "private").exists()


def test_old_files_are_removed(private: PrivateState, tmp_path: Path) -> None:
    for round_number in range(1, 6):
        private.propose("run-1", round_number, 2 * round_number, groups(0.0))
        count(private, round_number, 2 * round_number + 1, float(round_number))
    private.propose("run-1", 6, 12, groups(6.0))
    names = sorted(path.name for path in (tmp_path / "private" / "run-1").iterdir())
    assert names == ["4.safetensors", "5.safetensors", "6-12.proposed"]


def test_private_state_survives_a_restart(private: PrivateState, tmp_path: Path) -> None:
    private.propose("run-1", 1, 1, groups(1.0))
    PrivateState(tmp_path / "private").commit("run-1", 1, 1)
    assert number(PrivateState(tmp_path / "private"), 2) == 1.0
