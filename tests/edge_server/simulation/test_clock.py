"""How long tasks take, on a board with round figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge_server.config.board_profiles import profile
from edge_server.simulation.clock import TaskTimes, delivery_times, task_times

BOARD = replace(
    profile("ideal"), training_flops=1e9, downlink_bps=8e6, uplink_bps=4e6, latency_s=5.0, online_s=1.0
)


def training(**changes: int) -> TaskTimes:
    task = {"downlink_bytes": 0, "macs": 0, "examples": 0, "epochs": 1, "uplink_bytes": 0}
    return task_times(BOARD, **{**task, **changes})


def test_bytes_take_eight_bits_each_on_their_own_link():
    # 3e6 bytes * 8 / 8e6 bit/s = 3 s down; 1e6 * 8 / 4e6 = 2 s up; no latency, which is per message.
    assert training(downlink_bytes=3_000_000, uplink_bytes=1_000_000) == TaskTimes(3.0, 0.0, 2.0)


def test_training_costs_three_passes_of_two_flop_per_mac_for_every_example_and_epoch():
    # 2 * 3 * 1e6 MACs * 100 examples * 5 epochs = 3e9 FLOP at 1e9 FLOP/s.
    assert training(macs=1_000_000, examples=100, epochs=5).work_s == 3.0


def test_scoring_costs_one_pass_over_the_examples():
    # 2 * 1e6 * 100 = 2e8 FLOP: a third of an epoch of training, 6e8.
    assert training(macs=1_000_000, examples=100, epochs=0).work_s == 0.2
    assert training(macs=1_000_000, examples=100, epochs=1).work_s == 0.6


def test_the_total_is_down_and_work_and_up():
    assert TaskTimes(download_s=3.0, work_s=4.5, upload_s=2.0).total_s == 9.5


def test_a_delivery_downloads_and_runs_a_fixed_number_of_passes():
    # 1e6 * 8 / 8e6 = 1 s; 16 passes * 2 * 1e6 = 3.2e7 FLOP = 0.032 s; the answer is a message.
    assert delivery_times(BOARD, downlink_bytes=1_000_000, macs=1_000_000) == TaskTimes(1.0, 0.032, 0.0)


def test_the_ideal_board_takes_no_time():
    task = {"downlink_bytes": 10**9, "macs": 10**9, "examples": 10**6, "epochs": 100, "uplink_bytes": 10**9}
    assert task_times(profile("ideal"), **task).total_s == 0.0


def test_a_round_of_adafl_on_a_pi_4():
    # 4 bytes * 199,210 parameters of `mlp` = 796,840 bytes each way: 6,374,720 bit / 57e6 = 0.11184 s.
    # 2 * 3 * 198,800 MACs * 600 images * 5 epochs = 3.5784e9 FLOP / 5.9445e9 = 0.60197 s.
    times = task_times(
        profile("pi-4"), downlink_bytes=796_840, macs=198_800, examples=600, epochs=5, uplink_bytes=796_840
    )
    assert times.download_s == times.upload_s == pytest.approx(0.11184, rel=1e-4)
    assert times.work_s == pytest.approx(0.60197, rel=1e-4)
