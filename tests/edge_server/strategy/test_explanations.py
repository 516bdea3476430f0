"""How a selection explains its choice."""

import numpy as np
import pytest

from edge_server.strategy.selection.interface import Explanation
from edge_server.strategy.selection.policies import RATIOS, SELECTIONS, Attention, Client, Uniform

# Shares of the examples: 0.1, 0.2, 0.3, 0.4; their mean is 0.25.
CLIENTS = [Client("a", 1, 10), Client("b", 1, 20), Client("c", 1, 30), Client("d", 1, 40)]


def test_uniform_selection_scores_every_client_equally():
    why = Uniform().explain(None, CLIENTS, {"a", "c", "d"})
    assert why("a") == Explanation("drawn: 3 of 4, each alike", 0.25)
    assert why("b") == Explanation("not drawn this time: 3 of 4, each alike", 0.25)


def test_if_all_clients_take_part_the_explanation_mentions_no_draw():
    everyone = {client.name for client in CLIENTS}
    assert Uniform().explain(None, CLIENTS, everyone)("a").because == "all 4 take part"
    why = Attention().explain(None, CLIENTS, everyone)
    assert why("b") == Explanation("all 4 take part: attention 0.2, mean 0.25", 0.2)


def test_attention_reports_the_score_and_the_mean_of_present_clients():
    why = Attention().explain(None, CLIENTS, {"d"})
    assert why("d") == Explanation("drawn: attention 0.4, mean 0.25", 0.4)
    assert why("a") == Explanation("not drawn this time: attention 0.1, mean 0.25", 0.1)
    # Only b and c are present: (0.5 + 0.125) / 2 = 0.3125.
    known = {"a": 0.375, "b": 0.5, "c": 0.125}
    why = Attention().explain(known, [Client("b", 1, 1), Client("c", 1, 1)], {"c"})
    assert why("c") == Explanation("drawn: attention 0.125, mean 0.312", 0.125)


@pytest.mark.parametrize("name", sorted(SELECTIONS))
def test_every_selection_explains_its_choice_from_the_same_state(name):
    policy = SELECTIONS[name]()
    chosen = set(policy.act(None, CLIENTS, 2, np.random.default_rng(0)))
    why = policy.explain(None, CLIENTS, chosen)
    assert [why(client.name).because.startswith("drawn") for client in CLIENTS] == [
        client.name in chosen for client in CLIENTS
    ]
    assert all(0 < (why(client.name).score or 0) < 1 for client in CLIENTS)


def test_a_policy_without_own_explanations_reports_which_devices_were_chosen():
    why = RATIOS["by-tier"](ratios=(0.5,)).explain(None, CLIENTS, {"a"})
    assert (why("a"), why("b")) == (Explanation("chosen"), Explanation("not chosen this time"))
