"""The queue: what starts, what waits, what ends, and what a service finds when it starts again."""

import pytest

from edge_server.fleet.queue.job import Every, RunPhase, Wanted
from edge_server.fleet.queue.state import Closing, EndRun, KillRun, RunEnded, SuspendRun
from tests.edge_server.fleet.queue.jobs import NOW, Driver, devices, job

BARN, FIELD = {"federation": "barn"}, {"federation": "field"}


def test_a_job_without_a_schedule_runs_once() -> None:
    driver = Driver.of(job("try"))
    assert driver.started() == ["try"]
    assert driver.run("try").name == "try-20270115-080000"
    driver.end("try")
    assert driver.run("try").phase is RunPhase.DONE
    driver.tick(86400)
    assert driver.started() == ["try"]


def test_a_schedule_fires_each_time_it_is_due() -> None:
    driver = Driver.of(job("hourly", schedule=Every(seconds=3600)))
    for _ in range(3):
        driver.tick(3600)
        driver.end("hourly")
    assert driver.started() == ["hourly"] * 3
    assert driver.run("hourly").due == NOW + 3 * 3600


def test_of_missed_times_one_run_comes() -> None:
    driver = Driver.of(job("hourly", schedule=Every(seconds=3600)))
    driver.tick(50 * 3600 + 60)
    driver.end("hourly")
    driver.tick(1)
    assert driver.started() == ["hourly"]
    assert driver.queue.progress["hourly"].next_at == NOW + 51 * 3600


def test_a_time_at_which_the_run_before_is_still_on_is_counted_and_skipped() -> None:
    driver = Driver.of(job("hourly", schedule=Every(seconds=3600)))
    driver.tick(3600)
    driver.tick(3600)
    driver.end("hourly")
    driver.tick(1)
    assert driver.started() == ["hourly"]
    assert driver.queue.progress["hourly"].missed == 1


def test_runs_of_one_second_have_different_names() -> None:
    driver = Driver.of(job("try"))
    first = driver.run("try").name
    driver.end("try")
    driver.want("try", Wanted.ACTIVE, asked=2)
    driver.tick()
    assert driver.run("try").name > first


def test_a_federation_has_one_server_at_a_time() -> None:
    driver = Driver.of(job("first"), job("second"))
    assert driver.started() == ["first"]
    assert driver.why("second") == "federation home is busy with job first"
    driver.end("first")
    driver.tick()
    assert driver.started() == ["first", "second"]


def test_federations_on_different_devices_run_at_once() -> None:
    fleet = {"a": devices("pi-1"), "b": devices("pi-2")}
    driver = Driver.of(job("a", **BARN), job("b", **FIELD), fleet=fleet)
    assert driver.started() == ["a", "b"]


def test_a_device_does_one_task_at_a_time() -> None:
    fleet = {"a": devices("pi-1", "pi-2"), "b": devices("pi-2", "pi-3")}
    driver = Driver.of(job("a", **BARN), job("b", **FIELD), fleet=fleet)
    assert driver.started() == ["a"]
    assert driver.why("b") == "its devices are busy with job a"


def test_shared_jobs_use_devices_at_the_same_time() -> None:
    fleet = {name: devices("pi-1") for name in "abc"}
    shared = [job("a", shared=True, **BARN), job("b", shared=True, **FIELD)]
    driver = Driver.of(*shared, job("c"), fleet=fleet, at_once=3)
    assert driver.started() == ["a", "b"]


def test_a_rollout_runs_beside_a_training_on_other_devices_only() -> None:
    def started(devices_of_rollout: str) -> list[str]:
        fleet = {"train": devices("pi-1"), "update": devices(devices_of_rollout)}
        return Driver.of(job("train"), job("update", action="rollout"), fleet=fleet).started()

    assert started("pi-2") == ["train", "update"]
    assert started("pi-1") == ["train"]


def test_no_more_jobs_at_once_than_the_service_allows() -> None:
    driver = Driver.of(*(job(name, federation=name) for name in "abc"), at_once=2)
    assert driver.started() == ["a", "b"]
    assert driver.why("c") == "2 jobs run already, and no more may at once"


def test_a_job_that_waits_for_devices_in_use_is_not_passed_by_forever() -> None:
    fleet = {"a": devices("pi-1"), "all": devices("pi-1", "pi-2"), "b": devices("pi-2")}
    driver = Driver.of(job("a", federation="a"), fleet=fleet, at_once=3)
    driver.define(job("a", federation="a"), job("all", federation="all"))
    driver.tick(1)
    driver.define(*driver.queue.jobs.values(), job("b", federation="b"))
    driver.tick(1)
    assert driver.started() == ["a"]
    assert driver.why("b") == "job all is before it, on the same devices"
    driver.end("a")
    driver.tick()
    assert driver.started() == ["a", "all"]


def test_a_job_waits_until_enough_devices_are_eligible() -> None:
    driver = Driver.of(job("night", min_eligible=12), fleet={"night": devices("pi-1", eligible=7)})
    assert driver.started() == []
    assert driver.why("night") == "waits for 12 eligible devices, 7 are"
    driver.fleet = {"night": devices("pi-1", eligible=12)}
    driver.tick(1)
    assert driver.started() == ["night"]


def test_a_running_job_that_lacks_devices_is_suspended_after_the_grace_and_goes_on_later() -> None:
    driver = Driver.of(job("night", min_eligible=2), fleet={"night": devices("pi-1", "pi-2")})
    driver.fleet = {"night": devices("pi-1", "pi-2", eligible=1)}
    assert driver.tick(1) == []
    driver.fleet = {"night": devices("pi-1", "pi-2")}
    driver.tick(299)
    driver.fleet = {"night": devices("pi-1", "pi-2", eligible=1)}
    driver.tick(1)
    assert driver.tick(300) == [SuspendRun(driver.run("night").name)]
    driver.end("night", 143)
    assert driver.run("night").phase is RunPhase.SUSPENDED
    assert driver.tick(1) == []
    driver.fleet = {"night": devices("pi-1", "pi-2")}
    driver.tick(1)
    assert driver.run("night").attempt == 2


def take_turns(driver: Driver, count: int) -> str:
    """Let jobs run one after the other for ten minutes each; returns the federations, in order."""
    begun = len(driver.started())
    for _ in range(count):
        driver.now += 600
        running = next(run.job for run in driver.queue.on())
        driver.end(running)
        driver.want(running, Wanted.ACTIVE, asked=driver.queue.jobs[running].asked + 1)
        driver.tick()
    return "".join(name[0] for name in driver.started()[begun:])


def test_time_is_shared_by_weight() -> None:
    jobs = [
        job(name, federation=name[0], weight={"a": 3, "b": 1}[name[0]]) for name in ("a1", "a2", "b1", "b2")
    ]
    turns = take_turns(Driver.of(*jobs, at_once=1), 40)
    assert turns.count("a") == pytest.approx(30, abs=1)
    assert "bb" not in turns


def test_idle_time_is_no_credit() -> None:
    driver = Driver.of(job("a1", federation="a"), job("a2", federation="a"), at_once=1)
    take_turns(driver, 10)
    driver.define(*driver.queue.jobs.values(), job("b1", federation="b"), job("b2", federation="b"))
    driver.tick()
    assert "bbb" not in take_turns(driver, 10)


def test_a_paused_job_is_suspended_and_goes_on_in_its_run() -> None:
    driver = Driver.of(job("try"))
    driver.want("try", Wanted.PAUSED)
    assert driver.tick() == [SuspendRun(driver.run("try").name)]
    assert driver.tick(1) == []
    driver.end("try", 143)
    driver.tick(1)
    assert driver.why("try") == "the job is paused"
    name = driver.run("try").name
    driver.want("try", Wanted.ACTIVE, asked=2)
    driver.tick(1)
    assert (driver.run("try").name, driver.run("try").attempt) == (name, 2)


def test_a_stopped_job_completes_its_run_and_is_due_no_more() -> None:
    driver = Driver.of(job("hourly", schedule=Every(seconds=3600)))
    driver.tick(3600)
    driver.want("hourly", Wanted.STOPPED)
    assert driver.tick() == [EndRun(driver.run("hourly").name)]
    driver.end("hourly", 130)
    assert driver.run("hourly").phase is RunPhase.STOPPED
    driver.tick(7200)
    assert driver.started() == ["hourly"]


def test_a_waiting_run_of_a_stopped_job_is_over() -> None:
    driver = Driver.of(job("first"), job("second"))
    driver.want("second", Wanted.STOPPED)
    assert driver.tick() == []
    assert driver.run("second").phase is RunPhase.STOPPED


def test_a_process_that_does_not_end_on_request_is_killed() -> None:
    driver = Driver.of(job("try"))
    driver.want("try", Wanted.STOPPED)
    driver.tick()
    assert driver.tick(539) == []
    assert driver.tick(1) == [KillRun(driver.run("try").name)]
    driver.end("try", -9, over=False)
    assert driver.run("try").phase is RunPhase.STOPPED


def test_a_process_that_breaks_down_is_tried_again_with_growing_waits_and_then_no_more() -> None:
    driver, waits = Driver.of(job("try")), []
    for _ in range(4):
        driver.end("try", -9, over=False)
        assert driver.why("try").endswith("ended by signal SIGKILL")
        waits.append(driver.run("try").not_before - driver.now)
        driver.tick(waits[-1])
    driver.end("try", -9, over=False)
    assert waits == [2, 4, 8, 16]
    assert driver.run("try").phase is RunPhase.FAILED
    assert "5 times in a row" in driver.run("try").why


def test_a_process_that_broke_down_after_a_long_time_is_not_counted_with_those_before() -> None:
    driver = Driver.of(job("try"))
    for _ in range(10):
        driver.now += 3600
        driver.end("try", 1, over=False)
        driver.tick(2)
    assert driver.run("try").attempt == 11


@pytest.mark.parametrize(("code", "reason"), [(1, "it failed"), (2, "configuration")])
def test_a_run_that_fails_is_not_tried_again(code: int, reason: str) -> None:
    driver = Driver.of(job("try"))
    driver.end("try", code)
    assert driver.run("try").phase is RunPhase.FAILED
    assert reason in driver.run("try").why
    driver.tick(3600)
    assert driver.started() == ["try"]


def test_a_service_that_ends_suspends_its_runs_and_starts_none() -> None:
    driver = Driver.of(job("first"), job("second"))
    assert driver.apply(Closing()) == [SuspendRun(driver.run("first").name)]
    driver.end("first", 143)
    driver.tick(1)
    assert driver.started() == ["first"]
    assert driver.why("second") == "the service is ending"


def test_a_run_whose_process_was_lost_goes_on_and_before_those_that_wait() -> None:
    driver = Driver.of(job("a", federation="a"), job("b", federation="b"), at_once=1)
    driver.now += 3600
    driver.end("a", None)
    assert driver.run("a").crashes == 0
    driver.tick()
    assert driver.started() == ["a", "a"]


def test_the_end_of_an_earlier_attempt_is_no_event() -> None:
    driver = Driver.of(job("try"))
    driver.end("try", None)
    driver.tick()
    driver.apply(RunEnded(driver.run("try").name, 1, 0))
    assert driver.run("try").phase is RunPhase.RUNNING


def test_a_removed_job_leaves_nothing() -> None:
    driver = Driver.of(job("try"))
    driver.end("try")
    driver.define()
    assert driver.tick(1) == []
    assert (driver.queue.runs, driver.queue.progress) == ({}, {})
