"""Every aggregate of a run computed again, to the bit, whatever it is that the recipe sums up."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_server.replay import Verdict, replay
from edge_server.spool import MODEL
from tests.integration.bench import Bench

SUM_OVER_PARAMETERS = [
    "adafl",
    "attending",
    "fedmp",
    "fedrad-aggregation",
    "igfl-s-global",
    "krum",
    "scaffold",
]


@pytest.mark.parametrize("recipe", SUM_OVER_PARAMETERS)
def test_a_run_is_computed_again_to_the_bit(tmp_path: Path, recipe: str) -> None:
    bench = Bench(tmp_path, recipe)
    for number in (1, 2):
        bench.round(number)
    assert [(one.round, one.verdict) for one in replay(tmp_path / "run")] == [
        (1, Verdict.AGREES),
        (2, Verdict.AGREES),
    ]


def test_an_update_that_was_changed_afterwards_is_damaged(tmp_path: Path) -> None:
    Bench(tmp_path, "fedavg").round(1)
    folder = tmp_path / "run" / "spool" / "round-0000001"
    update = next(path for path in sorted(folder.iterdir()) if path.suffix == "")
    data = bytearray(update.read_bytes())
    data[-1] ^= 1
    update.unlink()
    update.write_bytes(data)
    (one,) = replay(tmp_path / "run")
    assert one.verdict is Verdict.DAMAGED
    assert "is not the one that was accepted" in one.detail


def swapped(spool: Path, one: int, other: int) -> None:
    """Put the model before round `other` in the place of that before round `one`."""
    model = spool / f"round-{one:07d}" / MODEL
    given = (spool / f"round-{other:07d}" / MODEL).read_bytes()
    model.unlink()
    model.write_bytes(given)


@pytest.mark.parametrize(
    ("one", "other", "verdicts"),
    [
        # How a run began the journal does not say.
        (1, 2, [Verdict.DIFFERS, Verdict.AGREES]),
        (2, 1, [Verdict.AGREES, Verdict.DAMAGED]),
    ],
)
def test_another_model_before_the_round_does_not_agree(tmp_path: Path, one, other, verdicts) -> None:
    bench = Bench(tmp_path, "fedavg")
    for number in (1, 2):
        bench.round(number)
    swapped(tmp_path / "run" / "spool", one, other)
    replayed = list(replay(tmp_path / "run"))
    assert [one.verdict for one in replayed] == verdicts
    if verdicts[1] is Verdict.DAMAGED:
        assert replayed[1].detail == "the model before it is not the one that round 1 ended with"


def test_a_round_without_the_model_before_it_is_damaged(tmp_path: Path) -> None:
    Bench(tmp_path, "fedavg").round(1)
    (tmp_path / "run" / "spool" / "round-0000001" / MODEL).unlink()
    (one,) = replay(tmp_path / "run")
    assert one.verdict is Verdict.DAMAGED
    assert "the model that belongs to it cannot be read" in one.detail


def test_rounds_that_are_not_kept_are_said_to_be_so(tmp_path: Path) -> None:
    Bench(tmp_path, "fedavg", "replay-mb=0").round(1)
    assert [one.verdict for one in replay(tmp_path / "run")] == [Verdict.NOT_KEPT]
