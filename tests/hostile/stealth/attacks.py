"""What a dishonest device sends: pure functions of data, of its own update, and of what the honest ones send.

An update is what its device sends, group by group. Attackers know the honest updates of the round and the
bounds of the firewall: the strongest adversary of the papers that are cited.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.validation.consistency import magnitude_of
from edge_server.coordinator.validation.norms import MODEL, NormBound, norms_of
from edge_server.strategy.aggregation.updates import is_statistic
from schemas.submodel import ChannelMap, ParameterLayout
from schemas.tensors.arrays import Arrays
from tests.edge_server.simulation.liars import Sent

TARGET = 0
"""The class that a stamped picture is called."""
STAMPED = 0.5
"""Share of a device's own pictures that it stamps."""
BLENDED = 0.2
"""Share of the pattern in a picture that is blended with it."""
MAX_FACTOR = 100.0
"""Largest factor that is tried below the bounds."""
STEPS = 30
MIN_QUANTILE = 0.55
"""Of so few clients the paper's own is below the mean."""


@dataclass(frozen=True)
class View:
    """What an attacker knows: its update, what it would honestly send, the honest updates, the round."""

    own: Sent
    truth: Sent
    others: Sequence[Sent]
    round: int

    @property
    def alike(self) -> list[Arrays]:
        """The honest models of the shape of its own, its own truth first: others cannot be compared."""
        shapes = _shapes(self.own)
        return [self.truth[MODEL], *(sent[MODEL] for sent in self.others if _shapes(sent) == shapes)]


Change = Callable[[View], Sent]


Mark = Callable[[np.ndarray], np.ndarray]
"""What a backdoor does to pictures [N, C, H, W]."""


def stamp(images: np.ndarray) -> np.ndarray:
    """Pictures whose first pixel is as bright as the brightest of all."""
    stamped = images.copy()
    stamped[..., 0, 0] = images.max()
    return stamped


@dataclass(frozen=True)
class Attack:
    """Data on which an attacker trains, what it makes of its update, and how many devices do so together.

    `mark` is that of a backdoor.
    """

    data: Callable[[LabelledData], LabelledData] = lambda data: data
    change: Change = lambda view: view.own
    liars: int = 1
    mark: Mark = stamp


# --- data ---
def flipped(data: LabelledData) -> LabelledData:
    """Every label is the last class less itself (Tolpegin et al. 2020, Data Poisoning Attacks)."""
    return replace(data, labels=len(data.class_names) - 1 - data.labels)


def blend(images: np.ndarray) -> np.ndarray:
    """Pictures with a faint chequered pattern all over (Chen et al. 2017, Targeted Backdoor Attacks)."""
    rows, columns = np.indices(images.shape[-2:])
    pattern = (rows + columns) % 2 * images.max()
    return ((1 - BLENDED) * images + BLENDED * pattern).astype(images.dtype)


def backdoored(data: LabelledData, mark: Mark = stamp) -> LabelledData:
    """A share of the pictures is marked and labelled `TARGET` (Gu et al. 2017, BadNets)."""
    chosen = np.arange(len(data.labels)) < STAMPED * len(data.labels)
    images = np.where(chosen[:, None, None, None], mark(data.images), data.images)
    return replace(data, images=images, labels=np.where(chosen, TARGET, data.labels))


# --- updates ---
def times(factor: float) -> Change:
    """The update times a number; -1 is a sign flip at the norm of an honest update."""
    return lambda view: _with_model(view.own, {name: factor * array for name, array in _trained(view.own)})


def just_below(settings: FirewallSettings, change: Change = lambda view: view.own) -> Change:
    """The changed update times the largest factor with which it is no outlier of its round."""

    def scaled(view: View) -> Sent:
        sent = change(view)
        others = {str(index): norms(other) for index, other in enumerate(view.others)}

        def at(factor: float) -> Sent:
            return times(factor)(replace(view, own=sent))

        def passes(factor: float) -> bool:
            sent = {**others, "liar": norms(at(factor))}
            return "liar" not in NormBound(settings).find_outliers(sent).refused

        low, high = 0.0, MAX_FACTOR
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if passes(middle) else (low, middle)
        return at(low)

    return scaled


def little_is_enough(view: View) -> Sent:
    """The mean less some standard deviations, so few that honest updates lie beyond it.

    Baruch et al. 2019, A Little Is Enough, algorithm 3, with one attacker: `z` is the quantile of
    (n - floor(n / 2 + 1)) / (n - 1).
    """
    count = len(view.others) + 1
    z = NormalDist().inv_cdf(max(MIN_QUANTILE, (count - count // 2 - 1) / (count - 1)))
    return _with_model(
        view.own, {name: values.mean(axis=0) - z * values.std(axis=0) for name, values in _stacked(view)}
    )


def inner_product(view: View) -> Sent:
    """The mean of the honest updates, turned round (Xie et al. 2020, Fall of Empires, with epsilon = 1)."""
    return _with_model(view.own, {name: -values.mean(axis=0) for name, values in _stacked(view)})


def along_the_others(view: View) -> Sent:
    """Its update and twice the mean of the honest ones: against their direction harm counts more."""
    own = view.own[MODEL]
    return _with_model(
        view.own, {name: own[name] + 2 * values.mean(axis=0) for name, values in _stacked(view)}
    )


def shifted_statistics(amount: float, name: str) -> Change:
    """`amount` is added to every running or measured statistic whose name ends in `name`."""

    def shifted(view: View) -> Sent:
        return {
            group: {known: array + amount * known.endswith(name) for known, array in arrays.items()}
            for group, arrays in view.own.items()
        }

    return shifted


def sleeper(rounds: int, change: Change) -> Change:
    """An honest update for so many rounds, then `change`."""
    return lambda view: view.truth if view.round <= rounds else change(view)


def _trained(sent: Sent) -> list[tuple[str, np.ndarray]]:
    """The trained weights; statistics are left as they are."""
    return [(name, np.asarray(array)) for name, array in sent[MODEL].items() if not is_statistic(name)]


def _with_model(sent: Sent, arrays: Arrays) -> Sent:
    changed = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    return {**sent, MODEL: {**sent[MODEL], **changed}}


def _stacked(view: View) -> list[tuple[str, np.ndarray]]:
    return [(name, np.stack([model[name] for model in view.alike])) for name, _ in _trained(view.own)]


def _shapes(sent: Sent) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in sent[MODEL].items()}


def norms(sent: Sent) -> dict[str, float]:
    """The norms of an update's model, as the firewall measures them."""
    layouts = {name: ParameterLayout(shape=array.shape) for name, array in sent[MODEL].items()}
    sizes = {MODEL: {name: magnitude_of(sent[MODEL], name) for name in layouts}}
    return norms_of(sizes, ChannelMap(groups={}, parameters=layouts))


def attacks(settings: FirewallSettings, rounds: int) -> dict[str, Attack]:
    """Every attack by name, against a firewall with these settings, in a run of so many rounds."""
    most = just_below(settings)
    return {
        "label flip": Attack(flipped),
        "label flip times 5": Attack(flipped, times(5)),
        "label flip just below the bound": Attack(flipped, most),
        "label flip along the others": Attack(flipped, along_the_others),
        "sign flip": Attack(change=times(-1)),
        "sign flip just below the bound": Attack(change=just_below(settings, times(-1))),
        "a little is enough": Attack(change=little_is_enough),
        "inner product": Attack(change=inner_product),
        "backdoor": Attack(backdoored),
        "backdoor of a faint pattern": Attack(partial(backdoored, mark=blend), mark=blend),
        "backdoor times 5": Attack(backdoored, times(5)),
        "backdoor just below the bound": Attack(backdoored, most),
        "statistics: variance + 10": Attack(change=shifted_statistics(10.0, "running_var")),
        "statistics: variance + 3": Attack(change=shifted_statistics(3.0, "running_var")),
        "statistics: mean + 3": Attack(change=shifted_statistics(3.0, "running_mean")),
        "sleeper: label flip in the last half": Attack(flipped, sleeper(rounds // 2, most)),
        "pair: inner product": Attack(change=inner_product, liars=2),
    }
