"""Aggregator processes examine and add updates as the server's own process does, killed or not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_client.agent.task_runner import do_training
from edge_server.coordinator.aggregators.pool import AggregatorPool, Call, usual_count
from edge_server.coordinator.aggregators.worker import ToExamine
from edge_server.rounds.events import CheckUpdate, UpdateChecked
from edge_server.storage.records import RoundRecord
from schemas.errors import EdgeError, Reason
from schemas.messages import TrainTask, Update
from tests.forked.workers import forked
from tests.integration.bench import Bench
from tests.slow import slow

__all__ = ["forked"]

NAMES = tuple(f"device-{number}" for number in range(5))


class Run(Bench):
    """Checks all updates of a round together, as a server does when many arrive."""

    def sent_together(self, number: int, *, damaged: str = "") -> dict[str, tuple[CheckUpdate, TrainTask]]:
        """Plan and train; all updates lie in the store, not yet checked."""
        checks = {}
        for name, task in self.tasks(number, number).items():
            assert isinstance(task, TrainTask)
            place = self.places[name]
            update = do_training(task, place, on_epoch=lambda report: None, should_stop=lambda: False)
            data = place.store.blob_path(update.blob.digest).read_bytes()
            if name == damaged:
                data = data[:-1] + b"?"
            whole = update.blob.model_copy(update={"chunk_bytes": 2**20})
            self.coordinator.storage.store.write_chunk(whole, 0, data)
            checks[name] = (CheckUpdate(name, update), task)
        return checks

    def check(self, checks: dict[str, tuple[CheckUpdate, TrainTask]]) -> list[UpdateChecked]:
        return self.coordinator.checker.check_all([*checks.values()], self.coordinator.model.state)


@contextmanager
def run(folder: Path, recipe: str, *, processes: int) -> Iterator[Run]:
    made = Run(folder, recipe, f"federation.aggregators={processes}", "model.name=mlp", names=NAMES)
    try:
        yield made
    finally:
        made.coordinator.aggregators.close()


def whole_round(bench: Run, number: int, *, damaged: str = "") -> tuple[RoundRecord, list[UpdateChecked]]:
    checks = bench.sent_together(number, damaged=damaged)
    found = bench.check(checks)
    accepted: dict[str, Update] = {
        verdict.device: checks[verdict.device][0].update for verdict in found if verdict.reason is None
    }
    return bench.close(number, accepted), found


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("recipe", ["attending", slow("fedbuff"), slow("median")])
def test_processes_find_and_make_what_the_server_does(tmp_path: Path, recipe: str) -> None:
    with (
        run(tmp_path / "alone", recipe, processes=0) as alone,
        run(tmp_path / "more", recipe, processes=2) as more,
    ):
        for number in (1, 2):
            damaged = NAMES[3] if number == 2 else ""
            expected, found = (whole_round(bench, number, damaged=damaged) for bench in (alone, more))
            assert found[1] == expected[1]
            assert [verdict.reason for verdict in found[1]].count(Reason.DIGEST_MISMATCH) == (number == 2)
            assert found[0].model_dump(exclude={"duration_s"}) == expected[0].model_dump(
                exclude={"duration_s"}
            )
            assert more.coordinator.model.sha256 == alone.coordinator.model.sha256
        assert not alone.coordinator.aggregators.pids
        assert 0 < len(more.coordinator.aggregators.pids) <= 2


@pytest.mark.usefixtures("forked")
def test_killed_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    with (
        run(tmp_path / "alone", "fedavg", processes=0) as alone,
        run(tmp_path / "more", "fedavg", processes=2) as more,
    ):
        whole_round(alone, 1)
        checks = more.sent_together(1)
        more.coordinator.aggregators.run_calls([Call(os.getpid, ())] * 2)
        _kill(more.coordinator.aggregators)
        assert all(verdict.reason is None for verdict in more.check(checks))
        _kill(more.coordinator.aggregators)
        more.close(1, {name: command.update for name, (command, _) in checks.items()})
        assert more.coordinator.model.sha256 == alone.coordinator.model.sha256


def test_an_error_leaves_no_answer_behind(tmp_path: Path) -> None:
    with run(tmp_path, "fedavg", processes=2) as bench:
        pool = bench.coordinator.aggregators
        with pytest.raises(FileNotFoundError):
            pool.run_calls([Call(os.stat, ("/no/such/file",)), Call(abs, (-1,))])
        assert pool.run_calls([Call(abs, (-2,)), Call(abs, (-3,))]) == [2, 3]


@pytest.mark.usefixtures("forked")
def test_examinations_that_nobody_reads_leave_no_answer_behind(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("edge_server.coordinator.aggregators.pool.EXAMINED_AT_ONCE", 1)
    with run(tmp_path, "fedavg", processes=2) as bench:
        checks = [ToExamine(command.update, task) for command, task in bench.sent_together(1).values()]
        pool = bench.coordinator.aggregators
        assert next(pool.examine(checks)).sizes
        assert all(found.reason is None and found.sizes for found in pool.examine(checks))
        assert pool.run_calls([Call(abs, (-2,)), Call(abs, (-3,))]) == [2, 3]


@pytest.mark.usefixtures("forked")
def test_processes_killed_while_they_work_ahead_lose_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("edge_server.coordinator.aggregators.pool.EXAMINED_AT_ONCE", 1)
    with run(tmp_path, "fedavg", processes=2) as bench:
        checks = [ToExamine(command.update, task) for command, task in bench.sent_together(1).values()]
        pool = bench.coordinator.aggregators
        found = []
        for examined in pool.examine(checks):
            found.append(examined)
            if len(found) == 1:
                _kill(pool)
        assert len(found) == len(checks)
        assert all(examined.reason is None and examined.sizes for examined in found)


@pytest.mark.usefixtures("forked")
def test_processes_that_always_die_are_reported(tmp_path: Path) -> None:
    with (
        run(tmp_path, "fedavg", processes=1) as bench,
        pytest.raises(EdgeError, match=r"died 4 times in a row.*\[federation\] aggregators"),
    ):
        bench.coordinator.aggregators.run_calls([Call(os._exit, (1,))])


def test_small_updates_start_no_process(tmp_path: Path) -> None:
    bench = Run(tmp_path, "fedavg", "model.name=mlp", names=NAMES)
    whole_round(bench, 1)
    assert not bench.coordinator.aggregators.pids


def test_a_core_is_left_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert usual_count() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usual_count() == 0


def _kill(pool: AggregatorPool) -> None:
    assert pool.pids
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)


def test_a_process_needs_no_torch() -> None:
    code = "import sys, edge_server.coordinator.aggregators.worker; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
