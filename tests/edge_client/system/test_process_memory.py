"""Freed memory is returned only once the device is idle."""

import subprocess

import pytest

from edge_client.agent import agent, assembly
from edge_client.agent.session.machine import SessionPhase
from edge_client.system import process_memory
from edge_client.system.process_memory import KEPT_S, GivingBack
from tests.edge_client.agent.session.by_hand import task
from tests.edge_client.agent.test_agent_restart import Life, StillLink, StillWorker, acknowledgement, finish
from tests.forked import forked_python


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A list with one entry for each time memory is returned."""
    times: list[float] = []
    monkeypatch.setattr(process_memory, "give_back", lambda: times.append(0.0))
    return times


def test_nothing_is_returned_between_consecutive_tasks(given):
    giving = GivingBack()
    for now, busy in ((0, True), (1, False), (KEPT_S - 1, True), (KEPT_S + 1, False)):
        giving.turn(now, busy=busy)
    assert not given


def test_memory_is_returned_once_after_each_task(given):
    giving = GivingBack()
    for now, busy in ((0, False), (100, False)):
        giving.turn(now, busy=busy)
    assert not given
    for start in (200, 300):
        giving.turn(start, busy=True)
        for later in (KEPT_S, 2 * KEPT_S, 3 * KEPT_S):
            giving.turn(start + later, busy=False)
    assert len(given) == 2


def test_a_device_is_busy_until_its_task_is_settled(tmp_path, monkeypatch):
    seen: list[bool] = []
    monkeypatch.setattr(assembly, "Link", StillLink)
    monkeypatch.setattr(assembly, "Worker", StillWorker)
    monkeypatch.setattr(agent, "TICK_S", 0.0)
    monkeypatch.setattr(GivingBack, "turn", lambda self, now, *, busy: seen.append(busy))
    device = Life(tmp_path)
    device.hear(task())
    device.receive(0)
    assert seen[-1]
    device.receive(1, 2)
    assert device.phase is SessionPhase.WORKING
    finish(device, tmp_path)
    device.hear(acknowledgement())
    device.agent.inbox.put(None)
    device.agent.loop.turn()
    assert device.phase is SessionPhase.IDLE
    assert not seen[-1]


def test_collections_leave_lasting_objects_alone_while_a_process_is_busy() -> None:
    code = """if True:
        import gc
        from edge_client.system.process_memory import NEW_OBJECTS, lasting_objects
        gc.unfreeze()
        usual = gc.get_threshold()
        with lasting_objects():
            assert gc.get_freeze_count() > 0
            assert gc.get_threshold() == (NEW_OBJECTS, *usual[1:])
        assert gc.get_freeze_count() == 0
        assert gc.get_threshold() == usual
    """
    subprocess.run([*forked_python(), "-c", code], check=True)
