"""Epsilon compared with formulas, published figures and direct calls of the library."""

import math

import numpy as np
import pytest

from edge_server.strategy.privacy.accounting import Release, add_release, epsilon


@pytest.fixture(scope="module")
def dp():
    """The library, imported only where it is used because the import takes seconds."""
    import dp_accounting

    return dp_accounting


def known(noise_multiplier: float, rounds: int) -> tuple[Release, ...]:
    return (Release(noise_multiplier, 1, 1, rounds),)


def normal_below(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def test_nothing_released_spends_nothing():
    assert epsilon((), 1e-5) == 0


@pytest.mark.parametrize(("noise_multiplier", "rounds"), [(1.0, 1), (2.0, 3), (4.0, 100), (0.7, 10)])
def test_known_cohorts_match_the_formula_of_balle_and_wang(noise_multiplier, rounds):
    """Theorem 8: delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), with mu = sqrt(T) / z."""
    spent, mu = epsilon(known(noise_multiplier, rounds), 1e-5), math.sqrt(rounds) / noise_multiplier
    delta = normal_below(mu / 2 - spent / mu) - math.exp(spent) * normal_below(-mu / 2 - spent / mu)
    assert delta == pytest.approx(1e-5, rel=1e-4)


def test_the_published_delta_of_the_gaussian_mechanism():
    # Dong et al. 2022, corollary 2.13: at mu = 1 and epsilon 1 delta is Phi(-1/2) - e Phi(-3/2), which is
    # 0.3085 - 0.1816 = 0.1269.
    assert epsilon(known(1.0, 1), 0.126937) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("rounds", [1, 40])
def test_known_cohorts_match_the_librarys_accountants(dp, rounds):
    tight = dp.pld.PLDAccountant(dp.NeighboringRelation.REPLACE_SPECIAL)
    loose = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_SPECIAL)
    for accountant in (tight, loose):
        accountant.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(3.0), rounds))
    spent = epsilon(known(3.0, rounds), 1e-5)
    assert spent == pytest.approx(tight.get_epsilon(1e-5), rel=1e-3)
    assert spent < loose.get_epsilon(1e-5) < 1.2 * spent


def test_the_library_gives_the_published_figure_of_the_moments_accountant(dp):
    """Abadi et al. 2016, section 3.2: q = 0.01, sigma = 4, T = 10000, delta = 1e-5 give at most 1.26."""
    accountant = dp.rdp.RdpAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(4.0)), 10_000)
    assert 1.0 < accountant.get_epsilon(1e-5) < 1.26


def test_a_draw_is_accounted_by_the_library_with_half_the_multiplier(dp):
    """Replacing one client moves the sum by up to twice the clip."""
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    event = dp.SampledWithoutReplacementDpEvent(1000, 100, dp.GaussianDpEvent(4.0 / 2))
    accountant.compose(dp.SelfComposedDpEvent(event, 10))
    drawn = epsilon((Release(4.0, 100, 1000, 10),), 1e-5, replaced=True)
    assert drawn == pytest.approx(accountant.get_epsilon(1e-5))
    assert drawn < epsilon(known(4.0, 10), 1e-5, replaced=True) / 3


def test_a_draw_of_all_clients_hides_nobody():
    drawn = epsilon((Release(4.0, 10, 10, 5),), 1e-5, replaced=True)
    assert drawn == pytest.approx(epsilon(known(2.0, 5), 1e-5))


def test_a_draw_never_costs_more_than_no_draw():
    # For a draw of half the clients, the bound by divergences is above the exact value.
    drawn = epsilon((Release(2.0, 500, 1000, 100),), 1e-5, replaced=True)
    assert drawn == epsilon(known(2.0, 100), 1e-5, replaced=True)


def test_equal_releases_are_counted_and_their_order_is_irrelevant():
    first, second = Release(1.0, 3, 10), Release(2.0, 3, 10)
    assert add_release(add_release(add_release((), second), first), second) == (
        Release(1.0, 3, 10),
        Release(2.0, 3, 10, 2),
    )
    spent = [epsilon(add_release(known(2.0, n), Release(2.0, 1, 1)), 1e-5) for n in range(1, 5)]
    assert (np.diff(spent) > 0).all()
    assert spent[1] == pytest.approx(3.709, abs=1e-3)
