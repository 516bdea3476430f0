"""FedRAD's dynamic aggregation: accuracy decides, and a small network learns (section 3.2, Algorithm 2).

Equation 1: the model is the sum over k of W[k] (N_k / N) M_k. Equation 2: W[k] begins proportional to the
squared accuracy acc_k^2. Equation 3: back-propagation of SysLoss, the mean loss of the model that clients
received, through a two-layer network NeuNet makes W into W'.

Our reading (DESIGN.md section 6, decision 6), for the paper leaves much open. W is scaled so that
sum_k W[k] N_k / N = 1, and so is W'. NeuNet is trained on sum_k W'[k] (N_k / N) loss_k, each client's share
of SysLoss, so it can learn which clients to trust. K varies as clients come and go: NeuNet is applied to
one client at a time, from its W[k] to a number z_k, and W'[k] is W[k] exp(z_k), scaled. It starts with
z = 0, so W' = W; equal W stay equal, and this is FedAvg.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.updates import ClientUpdate, GlobalUpdate, sources_of
from edge_server.strategy.selection.interface import RoundResult
from edge_server.strategy.weighting.interface import SHARE_TRUST, Need, Net, Weighting, WeightingTraits

Floats = NDArray[np.float64]
LONGEST = 1.0  # largest norm of a gradient: one client's loss must not derail the network


@WeightingTraits(frozenset({Need.EXAMPLES, Need.LOSS, Need.ACCURACY}), trusts=SHARE_TRUST)
@dataclass(frozen=True)
class FedRad(Weighting[Net | None]):
    """Weights W'[k] N_k / N; with `dynamic = false` W[k] N_k / N (the paper's Wei-Agg, eq. 1 and 2).

    Accuracy and loss are the client's, on its held-out data; a client without them counts as the mean of the
    others. NeuNet has `hidden` tanh units and takes `steps` steps of `learning_rate` a round, before its W'
    is used; `seed` draws its first weights. The defaults are ours. The state is NeuNet.
    """

    dynamic: bool = True
    learning_rate: float = 0.1
    hidden: int = 8
    steps: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.learning_rate < np.inf and self.hidden >= 1 and self.steps >= 1 and self.seed >= 0):
            raise ValueError("learning-rate and seed must be at least 0, hidden and steps at least 1")

    def weigh(self, state: Net | None, updates: Sequence[GlobalUpdate]) -> Floats:
        sources = sources_of(updates)
        share, first = example_shares(sources), first_weights(sources)
        if not self.dynamic:
            return share * first
        return apply_net(self._train_net(state, sources), share, first)

    def observe(self, state: Net | None, result: RoundResult) -> Net | None:
        return self._train_net(state, sources_of(result.updates)) if self.dynamic else state

    def _train_net(self, state: Net | None, sources: Sequence[ClientUpdate]) -> Net:
        net = state or new_net(self.hidden, self.seed)
        share, first = example_shares(sources), first_weights(sources)
        losses = metric_per_client(sources, "received_loss")
        for _ in range(self.steps):
            step = clip_gradient(gradient(net, share, first, losses))
            net = {name: array - self.learning_rate * step[name] for name, array in net.items()}
        return net


def example_shares(sources: Sequence[ClientUpdate]) -> Floats:
    """N_k / N [K]; equal shares if no client has any example."""
    counts = np.array([source.examples for source in sources], dtype=np.float64)
    if counts.sum() == 0:
        counts = np.ones_like(counts)
    return np.asarray(counts / counts.sum())


def first_weights(sources: Sequence[ClientUpdate]) -> Floats:
    """Equation 2: W[k] = acc_k^2 / sum_j (N_j / N) acc_j^2, [K]; all 1 if the sum is 0 or unknown.

    All 1 as well where most accuracies are 0: the few others, true or claimed, would be the whole model.
    """
    squares = metric_per_client(sources, "accuracy") ** 2
    mean = float(example_shares(sources) @ squares)
    return squares / mean if mean > 0 and np.median(squares) > 0 else np.ones(len(squares))


def metric_per_client(sources: Sequence[ClientUpdate], metric: str) -> Floats:
    """Each client's measurement [K]; the mean of the others if it has none, 0 if no client has one."""
    known = [source.metrics[metric] for source in sources if metric in source.metrics]
    mean = sum(known) / len(known) if known else 0.0
    return np.array([source.metrics.get(metric, mean) for source in sources], dtype=np.float64)


def new_net(hidden: int, seed: int) -> Net:
    """A hidden layer of random weights, and an output layer of zeros: W' = W."""
    random = np.random.default_rng(seed)
    return {"slope": random.normal(size=hidden), "bias": random.normal(size=hidden), "out": np.zeros(hidden)}


def hidden_layer(net: Net, first: Floats) -> Floats:
    """tanh(slope W[k] + bias), [K, H]."""
    return np.asarray(np.tanh(np.outer(first, net["slope"]) + net["bias"]))


def apply_net(net: Net, share: Floats, first: Floats) -> Floats:
    """W'[k] N_k / N [K], which sum to one; the largest z is subtracted first, so exp cannot overflow."""
    z = hidden_layer(net, first) @ net["out"]
    raised = share * first * np.exp(z - z[share * first > 0].max())
    return np.asarray(raised / raised.sum())


def gradient(net: Net, share: Floats, first: Floats, losses: Floats) -> Net:
    """Of L = sum_k W'[k] (N_k / N) loss_k with respect to NeuNet, by back-propagation.

    With v_k = W'[k] N_k / N, which depends on all z through the scaling, dL / dz_k = v_k (loss_k - L).
    """
    units, weights = hidden_layer(net, first), apply_net(net, share, first)
    by_z = weights * (losses - weights @ losses)
    by_input = np.outer(by_z, net["out"]) * (1 - units**2)
    return {"slope": first @ by_input, "bias": by_input.sum(axis=0), "out": by_z @ units}


def clip_gradient(step: Net) -> Net:
    """The gradient, scaled down to the norm `LONGEST`."""
    length = float(np.sqrt(sum(float(array @ array) for array in step.values())))
    return {name: array / max(1.0, length / LONGEST) for name, array in step.items()}
