"""Replay computes every aggregate of a run again, bit for bit, for every kind of recipe."""

from pathlib import Path

import numpy as np
import pytest

from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.validation.harm_review import UpdateHistory
from edge_server.storage.journal_reader import read_examined
from edge_server.storage.update_archive import BEFORE, MODEL
from schemas.messages import Update
from tests.groups import encode_groups, read_groups
from tests.integration.bench import Bench

REPLAYED = ["adafl", "attending", "fedmp", "fedrad-aggregation", "igfl-s-global", "krum", "scaffold"]


@pytest.mark.parametrize("recipe", REPLAYED)
def test_a_run_is_computed_again_to_the_bit(tmp_path: Path, recipe: str) -> None:
    bench = Bench(tmp_path, recipe)
    for number in (1, 2):
        bench.round(number)
    assert [(result.round, result.verdict) for result in replay(tmp_path / "run")] == [
        (1, ReplayVerdict.AGREES),
        (2, ReplayVerdict.AGREES),
    ]


class DishonestBench(Bench):
    """One of five devices sends control variates of 9e5 and claims 3e9 examples."""

    def sent(self, name: str, update: Update) -> Update:
        if name != "liar":
            return update
        place, examples = self.places[name], 3 * 10**9
        groups = read_groups(place.store.blob_path(update.blob.digest))
        for parameter, array in groups.get("control", {}).items():
            groups["control"][parameter] = np.full(array.shape, 9e5, np.float32)
        figures = {"examples": examples, "steps": update.metrics.epochs * (examples // 8)}
        metrics = update.metrics.model_copy(update=figures)
        blob = place.store.put_blob(encode_groups(groups))
        return update.model_copy(update={"metrics": metrics, "blob": blob})


@pytest.mark.parametrize(
    ("recipe", "refused", "cut"), [("scaffold", {"liar"}, set()), ("fednova", set(), {"liar"})]
)
def test_replay_repeats_refusals_and_cuts(tmp_path, recipe, refused, cut):
    bench = DishonestBench(tmp_path, recipe, names=("a", "b", "c", "d", "liar"))
    for number in (1, 2):
        record, _ = bench.round(number)
        assert {rejection.device for rejection in record.rejected} == refused
        assert set(record.exaggerated) == cut
        assert set(record.completed) == {"a", "b", "c", "d", "liar"} - refused
        assert all(len(rejection.detail) > 0 for rejection in record.rejected)
    assert [result.verdict for result in replay(tmp_path / "run")] == [
        ReplayVerdict.AGREES,
        ReplayVerdict.AGREES,
    ]
    # A resumed server restores the same history.
    guard, rows = bench.coordinator.checker.history, read_examined(bench.folder.journal)
    again = UpdateHistory(FirewallSettings(), bench.coordinator.context.channel_map)
    again.restore(rows)
    assert (again.norms, again.replays) == (guard.norms, guard.replays)
    assert {row.device for row in rows if row.reason} == refused


def test_a_changed_update_is_reported_as_damaged(tmp_path: Path) -> None:
    Bench(tmp_path, "fedavg").round(1)
    folder = tmp_path / "run" / "spool" / "round-0000001"
    update = next(path for path in sorted(folder.iterdir()) if path.suffix == "")
    data = bytearray(update.read_bytes())
    data[-1] ^= 1
    update.unlink()
    update.write_bytes(data)
    (result,) = replay(tmp_path / "run")
    assert result.verdict is ReplayVerdict.DAMAGED
    assert "is not the one that was accepted" in result.detail


def two_rounds(folder: Path, *words: str) -> Path:
    """A run of two rounds; returns its spool."""
    bench = Bench(folder, "fedavg", *words)
    for number in (1, 2):
        bench.round(number)
    return folder / "run" / "spool"


def swap(spool: Path, name: str, *, into: int, of: int) -> None:
    """Replace a starting file of round `into` by that of round `of`."""
    place, given = (spool / f"round-{number:07d}" / name for number in (into, of))
    place.unlink()
    place.write_bytes(given.read_bytes())


def test_another_state_before_the_round_leads_to_another_model(tmp_path: Path) -> None:
    spool = two_rounds(tmp_path, "strategy.server-optimizer=momentum")
    swap(spool, BEFORE, into=2, of=1)
    # The model is the right one; the optimizer's momentum differs.
    assert [result.verdict for result in replay(tmp_path / "run")] == [
        ReplayVerdict.AGREES,
        ReplayVerdict.DIFFERS,
    ]


def test_another_initial_model_leads_to_another_model(tmp_path: Path) -> None:
    """The journal does not contain the initial model's digest."""
    swap(two_rounds(tmp_path), MODEL, into=1, of=2)
    assert [result.verdict for result in replay(tmp_path / "run")] == [
        ReplayVerdict.DIFFERS,
        ReplayVerdict.AGREES,
    ]


def test_a_model_that_is_not_the_one_before_the_round_is_damaged(tmp_path: Path) -> None:
    swap(two_rounds(tmp_path), MODEL, into=2, of=1)
    first, then = replay(tmp_path / "run")
    assert (first.verdict, then.verdict) == (ReplayVerdict.AGREES, ReplayVerdict.DAMAGED)
    assert "is not the model that round 1 ended with" in then.detail


def test_a_round_without_the_model_before_it_is_damaged(tmp_path: Path) -> None:
    Bench(tmp_path, "fedavg").round(1)
    (tmp_path / "run" / "spool" / "round-0000001" / MODEL).unlink()
    (result,) = replay(tmp_path / "run")
    assert result.verdict is ReplayVerdict.DAMAGED
    assert "its model cannot be read" in result.detail


def test_rounds_that_are_not_kept_are_reported(tmp_path: Path) -> None:
    Bench(tmp_path, "fedavg", "replay-mb=0").round(1)
    assert [result.verdict for result in replay(tmp_path / "run")] == [ReplayVerdict.NOT_KEPT]
