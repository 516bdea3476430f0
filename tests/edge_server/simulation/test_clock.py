"""The virtual duration of tasks, on a board with round figures."""

from dataclasses import replace

import pytest

from edge_server.config.board_profiles import profile
from edge_server.simulation.clock import Pace, Work
from schemas.messages import DeliverTask, TrainTask
from schemas.strategy import Mirror, TrainingPlan

BOARD = replace(
    profile("ideal"), training_flops=1e9, downlink_bps=8e6, uplink_bps=4e6, latency_s=5.0, online_s=1.0
)


def training(epochs: int, *mirror: Mirror) -> TrainTask:
    return TrainTask.model_construct(training=TrainingPlan(local_epochs=epochs, mirror=mirror))


def test_download_and_upload_take_eight_bits_per_byte_of_their_own_link():
    # 3e6 bytes * 8 / 8e6 bit/s = 3 s down; 1e6 * 8 / 4e6 = 2 s up; latency is per message, so none is added.
    pace = Pace(BOARD, examples=0)
    assert (pace.download_s(3_000_000), pace.work_s(training(1), Work(0)), pace.upload_s(1_000_000)) == (
        3,
        0,
        2,
    )


def test_training_costs_three_passes_of_two_flop_per_mac_for_every_example_and_epoch():
    # 2 * 3 * 1e6 MACs * 100 examples * 5 epochs = 3e9 FLOP at 1e9 FLOP/s.
    assert Pace(BOARD, examples=100).work_s(training(5), Work(1_000_000)) == 3.0


def test_mirror_images_cost_as_much_as_pictures():
    assert Pace(BOARD, examples=100).work_s(training(5, "left-right"), Work(1_000_000)) == 6.0
    assert Pace(BOARD, examples=100).work_s(training(0, "left-right", "up-down"), Work(1_000_000)) == 0.8
    personal = DeliverTask.model_construct(personalise=training(5, "left-right").training)
    assert Pace(BOARD, examples=100).work_s(personal, Work(1_000_000)) == 6.032


def test_scoring_costs_one_pass_over_the_examples():
    # 2 * 1e6 * 100 = 2e8 FLOP: a third of an epoch of training, 6e8.
    assert Pace(BOARD, examples=100).work_s(training(0), Work(1_000_000)) == 0.2
    assert Pace(BOARD, examples=100).work_s(training(1), Work(1_000_000)) == 0.6


def test_a_network_that_is_scored_before_a_part_of_it_is_trained_costs_one_pass_of_its_own():
    # 2 * (3 * 1e6 + 4e6) * 100 = 1.4e9 FLOP.
    assert Pace(BOARD, examples=100).work_s(training(1), Work(1_000_000, 4_000_000)) == 1.4


def test_frozen_layers_cost_one_pass_until_their_features_are_kept():
    # 2 * (3 * 1e6 * 5 + 9e6) * 100 = 4.8e9 FLOP.
    pace, work = Pace(BOARD, examples=100), Work(1_000_000, once=9_000_000)
    assert pace.work_s(training(5), work) == 4.8
    assert pace.work_s(training(5), work, has_features=True) == 3.0


def test_a_delivery_downloads_and_runs_a_fixed_number_of_passes():
    # 1e6 * 8 / 8e6 = 1 s; 16 passes * 2 * 1e6 = 3.2e7 FLOP = 0.032 s, whatever the number of examples.
    pace = Pace(BOARD, examples=100)
    assert pace.download_s(1_000_000) == 1.0
    assert pace.work_s(DeliverTask.model_construct(), Work(1_000_000)) == 0.032


def test_the_ideal_board_takes_no_time():
    pace = Pace(profile("ideal"), examples=10**6)
    assert pace.download_s(10**9) == pace.work_s(training(100), Work(10**9)) == pace.upload_s(10**9) == 0.0
    assert pace.work_s(DeliverTask.model_construct(), Work(10**9)) == pace.board.latency_s == 0.0


def test_the_durations_of_an_adafl_round_on_a_pi_4():
    # 4 bytes * 199,210 parameters of `mlp` = 796,840 bytes each way: 6,374,720 bit / 57e6 = 0.11184 s.
    # 2 * 3 * 198,800 MACs * 600 images * 5 epochs = 3.5784e9 FLOP / 5.9445e9 = 0.60197 s.
    pace = Pace(profile("pi-4"), examples=600)
    assert pace.download_s(796_840) == pace.upload_s(796_840) == pytest.approx(0.11184, rel=1e-4)
    assert pace.work_s(training(5), Work(198_800)) == pytest.approx(0.60197, rel=1e-4)
