"""The epochs that make up for steps of smaller widths."""

import pytest

from edge_client.training.step_graphs.running.objectives.registry import OrderedDropout
from edge_server.strategy.groups.widths import equal_work_epochs, own_probability, step_share
from schemas.strategy import Component


def test_a_mean_step_is_that_of_all_widths_by_their_probabilities() -> None:
    # Half of the steps at 100, a quarter each at 20 and 60: 50 + 5 + 15.
    assert step_share(0.5, 100, [20, 60]) == pytest.approx(0.7)
    assert step_share(0.5, 100, []) == 1
    assert step_share(1.0, 100, [20, 60]) == 1


def test_devices_draw_widths_with_these_probabilities() -> None:
    class Width:
        def __init__(self, macs: int) -> None:
            self.macs = macs

    objective = OrderedDropout(own=0.5)
    objective.widths, objective.seed = [Width(20), Width(60)], 7  # type: ignore[list-item]
    total = 0
    for _ in range(4000):
        chosen = objective.width()
        total += 100 if chosen is None else chosen.macs  # type: ignore[attr-defined]
        objective.correct({})
    assert total / 4000 / 100 == pytest.approx(step_share(0.5, 100, [20, 60]), abs=0.01)


@pytest.mark.parametrize(("epochs", "share"), [(1, 0.7), (2, 0.7), (5, 0.77), (3, 1.0), (0, 0.5)])
def test_epochs_never_exceed_the_work_and_leave_less_than_one_of_it(epochs: int, share: float) -> None:
    done = 0
    for number in range(1, 41):
        done += equal_work_epochs(number, epochs, share)
        assert done * share <= number * epochs + 1e-6
        assert (done + 1) * share > number * epochs


def test_no_round_has_fewer_epochs_than_the_file_says() -> None:
    assert all(equal_work_epochs(number, 3, 0.9) >= 3 for number in range(1, 30))


def test_only_ordered_dropout_with_a_probability_of_its_own_counts() -> None:
    dropout = Component(name="ordered-dropout", options={"own": 0.5})
    assert own_probability([Component(name="prox", options={"mu": 0.1}), dropout]) == 0.5
    assert own_probability([Component(name="ordered-dropout", options={"distil": 0.5})]) is None
    assert own_probability([]) is None
