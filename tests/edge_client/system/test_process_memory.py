"""Freed memory stays for all threads of a busy process, and is returned once the device is idle."""

import os
import subprocess
import sys

import pytest

from edge_client.agent import agent, assembly
from edge_client.agent.session.machine import SessionPhase
from edge_client.system import process_memory
from edge_client.system.process_memory import (
    ALSO_SET_BY,
    KEPT_S,
    GivingBack,
    keep_freed_memory,
    return_large_blocks,
    share_one_heap,
)
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


PROGRAM = """
import resource, sys, threading
from edge_client.system.process_memory import keep_freed_memory
print(int(keep_freed_memory()))
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [b"x" * (16 * 1024 * 1024) for _ in range(int(sys.argv[1]))]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
for _ in range(2):
    thread = threading.Thread(target=faults)
    thread.start()
    thread.join()
"""


GLIBC = pytest.mark.skipif(not os.confstr("CS_GNU_LIBC_VERSION"), reason="another C library")


def reported(program: str, *words: str) -> list[int]:
    """The numbers printed by a separate process without the user's malloc settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ALSO_SET_BY)}
    command = [sys.executable, "-c", program, *words]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return [int(word) for word in printed.split()]


@GLIBC
@pytest.mark.parametrize("blocks", [1, 6])
def test_a_thread_reuses_the_pages_that_an_earlier_one_freed(blocks: int) -> None:
    done, first, then = reported(PROGRAM, str(blocks))
    assert done
    # 16 MB are 4,096 pages of 4 kB, or fewer if pages are larger.
    assert first > 20 * max(1, then)


IDLE = """
from edge_client.system.process_memory import keep_freed_memory
from edge_client.system.process_memory import GivingBack, resident_bytes
print(int(keep_freed_memory()))
giving = GivingBack()
kept = []
blocks = []
for _ in range(6):
    # Memory in use alternates with memory to be freed.
    blocks.append(b"x" * (16 * 1024 * 1024))
    kept.append(bytearray(1024 * 1024))
blocks.clear()
for now, busy in ((0.0, True), (5.0, False), (11.0, False)):
    giving.turn(now, busy=busy)
    print(resident_bytes() >> 20)
"""


@GLIBC
def test_free_memory_is_returned_once_the_device_is_idle() -> None:
    done, busy, at_first, then = reported(IDLE)
    assert done
    assert at_first == pytest.approx(busy, abs=5)
    assert then < busy - 90


LARGE = """
from edge_client.system.process_memory import return_large_blocks
from edge_client.system.process_memory import resident_bytes
print(int(return_large_blocks()))
blocks = [bytearray(b"x" * 300_000) for _ in range(200)]
above = bytearray(b"x" * 100_000)
print(resident_bytes() >> 20)
blocks.clear()
print(resident_bytes() >> 20)
"""


@GLIBC
def test_large_blocks_are_returned_at_once() -> None:
    done, used, then = reported(LARGE)
    assert done
    assert then < used - 50


TRAINING = """
import hashlib, threading
from edge_client.system.process_memory import keep_freed_memory
from edge_client.data.dataset import make_labelled_data
from edge_client.models.build import build_model
from edge_client.pruning.surgery import arrays_of
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan
from schemas.tensors.files import digest_of_tensors
from schemas.values import ModelSpec
import numpy as np
rng = np.random.default_rng(0)
data = make_labelled_data(rng.integers(0, 255, (64, 1, 28, 28)).astype(np.uint8), np.arange(64) % 10)
def trained():
    module = build_model(ModelSpec(name="two-nn", input_shape=(1, 28, 28), num_classes=10), seed=0)
    train(module, data, TrainingPlan(learning_rate=0.05, batch_size=32, momentum=0.9))
    print(digest_of_tensors(arrays_of(module)))
trained()
keep_freed_memory()
thread = threading.Thread(target=trained)
thread.start()
thread.join()
"""


def test_training_gives_bit_identical_results() -> None:
    reported = subprocess.run(
        [*forked_python(), "-c", TRAINING], check=True, stdout=subprocess.PIPE, text=True
    )
    before, after = reported.stdout.split()
    assert before == after


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_the_users_settings_take_precedence(name: str) -> None:
    assert not keep_freed_memory({name: "2"})
    assert not share_one_heap({name: "2"})
    assert not return_large_blocks({name: "2"})
