"""Whatever happens in whatever order: no device does two tasks at once, and every run comes to an end."""

import random
from collections.abc import Callable
from itertools import combinations

import pytest

from edge_server.fleet.queue.job import Every, Job, Wanted
from edge_server.fleet.queue.state import StartRun
from edge_server.fleet.queue.turns import NO_DEVICES
from tests.edge_server.fleet.queue.jobs import Driver, devices, job

DEVICES = [f"pi-{number}" for number in range(6)]
CODES = (0, 0, 1, 2, 130, 143, -9, None)
STEPS = 150


def jobs_of(rng: random.Random) -> list[Job]:
    return [
        job(
            f"job-{number}",
            federation=rng.choice(("home", "barn", "field")),
            action=rng.choice(("run", "run", "rollout")),
            schedule=rng.choice((None, Every(seconds=rng.choice((60, 600))))),
            min_eligible=rng.choice((0, 0, 1, 2)),
            weight=rng.choice((0.5, 1, 3)),
        )
        for number in range(7)
    ]


def look_around(driver: Driver, rng: random.Random) -> None:
    """Some devices are there; each job sees some of them."""
    driver.fleet = {
        name: devices(*rng.sample(DEVICES, rng.randint(0, 3)), eligible=rng.randint(0, 3))
        if name not in {run.job for run in driver.queue.on()}
        else driver.fleet.get(name, NO_DEVICES)
        for name in driver.queue.jobs
    }


def end_one(driver: Driver, rng: random.Random) -> None:
    if running := driver.queue.on():
        driver.end(rng.choice(running).job, rng.choice(CODES), over=rng.random() < 0.7)


def want_other(driver: Driver, rng: random.Random) -> None:
    name = rng.choice(sorted(driver.queue.jobs))
    asked = driver.queue.jobs[name].asked + rng.randint(0, 1)
    driver.want(name, rng.choice(list(Wanted)), asked=asked)


def let_time_pass(driver: Driver, rng: random.Random) -> None:
    driver.tick(rng.choice((0, 1, 60, 400)))


ACTIONS: list[Callable[[Driver, random.Random], None]] = [look_around, end_one, want_other, let_time_pass]


def check(driver: Driver) -> None:
    queue = driver.queue
    assert len(queue.on()) <= queue.rules.at_once
    for run, other in combinations(queue.on(), 2):
        first, second = queue.jobs[run.job], queue.jobs[other.job]
        assert (first.federation, first.action) != (second.federation, second.action)
        used, others = (driver.fleet.get(each.name, NO_DEVICES).devices for each in (first, second))
        assert used.isdisjoint(others)


@pytest.mark.parametrize("seed", range(20))
def test_no_device_does_two_tasks_and_every_run_ends(seed: int) -> None:
    rng = random.Random(seed)
    driver = Driver.of(*jobs_of(rng), at_once=rng.randint(1, 4))
    for _ in range(STEPS):
        rng.choice(ACTIONS)(driver, rng)
        check(driver)
    starts = [
        (command.run.name, command.run.attempt)
        for command in driver.commands
        if isinstance(command, StartRun)
    ]
    assert len(starts) == len(set(starts))

    driver.fleet = {name: devices("pi-1", eligible=9) for name in driver.queue.jobs}
    for name in driver.queue.jobs:
        driver.want(name, Wanted.ACTIVE, schedule=None, since=driver.now)
    for _ in range(100):
        for run in driver.queue.on():
            driver.end(run.job)
        driver.tick(60)
    assert [run for run in driver.queue.runs.values() if not run.over] == []
