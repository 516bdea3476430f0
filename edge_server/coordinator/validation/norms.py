"""How large an update may be, by the norms of recent ones: a running bound by median and MAD.

The median absolute deviation (MAD) is the robust measure of spread: up to half of the norms may be a
hostile device's without moving it far (Hampel 1974, "The influence curve and its role in robust estimation").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import median

from edge_server.config.sections import FirewallSettings
from edge_server.coordinator.validation.magnitudes import Magnitude, Magnitudes
from edge_server.strategy.aggregation.updates import is_statistic
from schemas.errors import PeerError
from schemas.submodel import ChannelMap
from schemas.values import Reason

Norms = Mapping[str, float]
"""Per kind of array its norm: `model`, `model statistics`, every other group of parameters, and what rules
have bounded beside them; and per kind its largest number, as `model peak`."""

MODEL = "model"
STATISTICS = "model statistics"
SIGMA = 1.4826
"""A normal distribution's standard deviation over its MAD."""
PEAK = " peak"
FEWEST = 3
"""Among fewer norms nobody can say which is the odd one."""
MEASURED_SPREAD = 10.0
"""What is measured on data (statistics, controls) spreads so many times wider than trained weights."""


def norms_of(
    sizes: Magnitudes, channel_map: ChannelMap, beside: Set[tuple[str, str]] = frozenset()
) -> dict[str, float]:
    """Each kind's norm over the root of the number of coordinates held, and its largest number.

    So the norms of unlike sub-models compare: a wide one has more coordinates, not larger steps. `beside` are
    the arrays, each as group and name, that bear no parameter's name and have a norm of their own.
    """
    kinds: dict[str, list[Magnitude]] = {}
    for group, arrays in sizes.items():
        for name, size in arrays.items():
            if name in channel_map.parameters:
                kind = STATISTICS if group == MODEL and is_statistic(name) else group
            elif (group, name) in beside:
                kind = f"{group} {name}"
            else:
                continue
            kinds.setdefault(kind, []).append(size)
    norms = {kind: _root_mean_square(each) for kind, each in kinds.items()}
    return norms | {f"{kind}{PEAK}": max(size.largest for size in each) for kind, each in kinds.items()}


def _root_mean_square(sizes: Iterable[Magnitude]) -> float:
    squares, count = 0.0, 0
    for size in sizes:
        squares, count = squares + size.squares, count + size.count
    return math.sqrt(squares / count) if count else 0.0


@dataclass(frozen=True)
class NormBound:
    """The recent norms of every kind, oldest first, and whose last update was too large.

    Refused norms never enter. Nor do norms of 0: who has not trained (a round that only scores channels, a
    device without examples) says nothing of how far training goes. So a bound follows as norms shrink or
    grow. Should it be the bound that is wrong, it forgets: once more devices are refused for their norm than
    are not, it begins anew, for no minority can bring that about.
    """

    settings: FirewallSettings = field(default_factory=FirewallSettings)
    recent: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    fitting: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def is_known(self, kind: str) -> bool:
        """Whether there are enough norms to go by."""
        return len(self.recent.get(kind, ())) >= self.settings.norm_history

    def bound(self, kind: str, reference: float | None = None) -> float | None:
        """The largest norm that may count; None where nothing is known yet.

        Until there are enough norms a model's step is held against the model itself: `reference` is the
        norm of its weights. Never below `norm-factor` medians: where all are alike the MAD is 0, and an
        honest device with other data still differs.
        """
        if not self.is_known(kind):
            return self.settings.norm_first * reference if kind == MODEL and reference else None
        most = _bound(self.recent[kind], self.settings)
        return most if kind == MODEL else MEASURED_SPREAD * most

    def check(self, norms: Norms, reference: float | None = None) -> None:
        """Raise `PeerError` for the first kind whose norm is beyond its bound."""
        for kind, norm in norms.items():
            most = self.bound(kind, reference)
            if self.settings.norm_bound and most is not None and norm > most:
                raise PeerError(_words(kind, norm, most, "now"), reason=Reason.OUT_OF_BOUNDS)

    def outliers(
        self, updates: Mapping[str, Norms], spreads: Mapping[str, float] | None = None
    ) -> dict[str, str]:
        """Whose norms are beyond those of the others in a round, and why in words.

        A round of fewer than `FEWEST` is held against the recent norms, its own among them. `spreads` say by
        how much wider than trained weights honest norms of a kind spread.
        """
        found: dict[str, str] = {}
        for kind in sorted({kind for norms in updates.values() for kind in norms}):
            most = self._usual([norms[kind] for norms in updates.values() if norms.get(kind)], kind)
            most *= (spreads or {}).get(kind.removesuffix(PEAK), 1.0)
            for device, norms in updates.items():
                if norms.get(kind, 0.0) > most:
                    found.setdefault(device, _words(kind, norms[kind], most, "in this round"))
        return found if self.settings.norm_bound else {}

    def _usual(self, norms: Sequence[float], kind: str) -> float:
        """The largest norm that fits the others; infinite where there are too few."""
        norms = norms if len(norms) >= FEWEST else self.recent.get(kind, ())
        return _bound(norms, self.settings) if len(norms) >= FEWEST else math.inf

    def observed(self, device: str, norms: Norms, *, accepted: bool) -> NormBound:
        """Take an update's norms, once it is known whether they are within bounds."""
        if not accepted:
            refused = self.refused | {device}
            fitting = self.fitting - {device}
            if len(refused) > len(fitting):
                return NormBound(self.settings)
            return replace(self, refused=refused, fitting=fitting)
        window = self.settings.norm_window
        entered = {kind: (*self.recent.get(kind, ()), norm)[-window:] for kind, norm in norms.items() if norm}
        return replace(
            self,
            recent={**self.recent, **entered},
            fitting=self.fitting | {device},
            refused=self.refused - {device},
        )

    def folded(self, rows: Iterable[tuple[str, str | None, Norms]]) -> NormBound:
        """The bound after these updates in order, each as device, reason of its refusal if any, norms."""
        bound = self
        for device, reason, norms in rows:
            # Numbers beyond all sense are out of bounds too, but have no norms: they say nothing of a bound.
            if reason is None or (reason == Reason.OUT_OF_BOUNDS and norms):
                bound = bound.observed(device, norms, accepted=reason is None)
        return bound


def _bound(norms: Sequence[float], settings: FirewallSettings) -> float:
    """Some medians, or the median and some standard deviations by MAD, whichever is more."""
    usual = median(norms)
    spread = SIGMA * median(abs(norm - usual) for norm in norms)
    return max(settings.norm_factor * usual, usual + settings.norm_spread * spread)


def _words(kind: str, norm: float, most: float, when: str) -> str:
    what = "the largest" if kind.endswith(PEAK) else "a typical"
    return f"{what} number of '{kind.removesuffix(PEAK)}' is {norm:.3g}, at most {most:.3g} is usual {when}"
