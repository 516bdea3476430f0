"""Bounds an update's norms by those of recent updates: a running bound by median and MAD.

The median absolute deviation (MAD) is a robust measure of spread: hostile devices with up to half of the
norms cannot move it far (Hampel 1974, "The influence curve and its role in robust estimation").
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.validation.consistency import Magnitude, Magnitudes, out_of_bounds
from edge_server.strategy.aggregation.updates import is_statistic
from schemas.errors import Reason
from schemas.submodel import ChannelMap

Norms = Mapping[str, float]
"""The norm of each kind of array: `model`, `model statistics`, every other parameter group, and arrays that
rules bound separately; also the largest number of each kind, as `model peak`. Where some tiers train a part,
those of the part are `model from NAME` and `model peak from NAME`, by its first array."""

ALL: Mapping[str, str] = {}
MODEL = "model"
STATISTICS = "model statistics"
SIGMA = 1.4826  # A normal distribution's standard deviation over its MAD
PEAK = " peak"
FROM = " from "
PEAK_SPREAD = 2.0
"""Spread of largest numbers in a round, relative to that of norms: in a fleet of four with unlike data the
largest number of an honest device was six medians in five rounds of ten."""
TESTED = frozenset({MODEL, f"{MODEL}{PEAK}"})
"""Kinds of arrays whose harm shows on test data."""
TRIED = 4.0
"""Bounds by recent norms within which an update is tried on test data in place of a refusal: an honest device
that has most of the data, or still learns where the others do no more, is beyond 2 and 3 of them."""
MIN_UPDATES = 3  # Fewest norms among which an outlier can be identified
MEASURED_SPREAD = 10.0
"""Spread of measurements on data (statistics, controls), relative to that of trained weights."""


def norms_of(
    sizes: Magnitudes,
    channel_map: ChannelMap,
    bounded: Set[tuple[str, str]] = frozenset(),
    parts: Mapping[str, str] = ALL,
) -> dict[str, float]:
    """Each kind's root mean square and its largest number.

    The mean makes sub-models of different widths comparable. `bounded` are arrays, as group and name, that
    are not named after a parameter and have a norm of their own. `parts` are those of `TrainedParts`.
    """
    kinds: dict[str, list[Magnitude]] = {}
    for group, arrays in sizes.items():
        for name, size in arrays.items():
            if name in channel_map.parameters:
                kind = kind_of(name, parts) if group == MODEL else group
            elif (group, name) in bounded:
                kind = f"{group} {name}"
            else:
                continue
            kinds.setdefault(kind, []).append(size)
    norms = {kind: _root_mean_square(magnitudes) for kind, magnitudes in kinds.items()}
    return norms | {peak(kind): max(m.largest for m in magnitudes) for kind, magnitudes in kinds.items()}


def kind_of(name: str, parts: Mapping[str, str]) -> str:
    """The kind of an array of the model: a head moves further than blocks, so each part is one of its own."""
    if is_statistic(name):
        return STATISTICS
    return f"{MODEL}{FROM}{parts[name]}" if name in parts else MODEL


def peak(kind: str) -> str:
    """The kind's largest number, as a kind."""
    whole, among, part = kind.partition(FROM)
    return f"{whole}{PEAK}{among}{part}"


def is_model(kind: str) -> bool:
    """Whether a norm is that of the model, or of a part of it."""
    return _whole(kind) == MODEL


def _whole(kind: str) -> str:
    """The kind without the part."""
    return kind.partition(FROM)[0]


def _root_mean_square(sizes: Iterable[Magnitude]) -> float:
    squares, count = 0.0, 0
    for size in sizes:
        squares, count = squares + size.squares, count + size.count
    return math.sqrt(squares / count) if count else 0.0


class Outliers(NamedTuple):
    """Updates unlike all others of their round, by device, with the reason.

    They are refused; of `suspects` a comparison on test data may say otherwise.
    """

    refused: dict[str, str]
    suspects: dict[str, str]


@dataclass(frozen=True)
class NormBound:
    """The recent norms of every kind, oldest first, and the devices last accepted or refused for them.

    The bound follows norms as they shrink or grow. Norms of refused updates do not enter, nor do norms of 0,
    which come from devices that did not train. If more devices are refused for their norm than accepted, the
    bound is taken to be wrong and starts again; a minority cannot cause that.
    """

    settings: FirewallSettings = field(default_factory=FirewallSettings)
    recent: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    fitting: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def is_known(self, kind: str) -> bool:
        """Whether there are enough norms for a bound."""
        return len(self.recent.get(kind, ())) >= self.settings.norm_history

    def bound(self, kind: str, reference: float | None = None) -> float | None:
        """The largest accepted norm; None if nothing is known yet.

        Until there are enough norms, a model's step is compared with `reference`, the norm of the model's
        weights. The bound is at least `norm-factor` medians, since the MAD of equal norms is 0.
        """
        if not self.is_known(kind):
            return self.settings.norm_first * reference if is_model(kind) and reference else None
        most = _bound(self.recent[kind], self.settings)
        return most if is_model(kind) else MEASURED_SPREAD * most

    def check(self, norms: Norms, reference: float | None = None, *, tried: bool = False) -> None:
        """Raise `PeerError` for the first kind with a norm beyond its bound, or beyond `TRIED` of them."""
        for kind, norm in norms.items():
            most = self.bound(kind, reference)
            if most is not None and tried and _whole(kind) in TESTED and self.is_known(kind):
                most *= TRIED
            if self.settings.norm_bound and most is not None and norm > most:
                raise out_of_bounds(_words(kind, norm, most, "now"))

    def find_outliers(
        self,
        updates: Mapping[str, Norms],
        spreads: Mapping[str, float] | None = None,
        *,
        tried: bool = False,
    ) -> Outliers:
        """The devices of a round with norms beyond those of the others.

        A round of fewer than `MIN_UPDATES` updates is compared with the recent norms, its own included; where
        updates are `tried`, any round is. A part that fewer devices train is compared with all parts until
        there are recent norms. `spreads` are the spreads of honest norms of a kind, relative to that of
        trained weights.
        """
        refused, suspects = dict[str, str](), dict[str, str]()
        found = [(kind, norm) for norms in updates.values() for kind, norm in norms.items() if norm]
        for kind in sorted({kind for kind, _ in found}):
            own = [norm for other, norm in found if other == kind]
            alike = [norm for other, norm in found if _whole(other) == _whole(kind)]
            usual = self._usual(own, self.recent.get(kind, ()), alike)
            usual *= (spreads or {}).get(_whole(kind).removesuffix(PEAK), 1.0)
            usual *= PEAK_SPREAD if _whole(kind).endswith(PEAK) else 1.0
            tries = tried and _whole(kind) in TESTED
            recent = self.bound(kind) if tries else None
            least, most = (usual, usual) if recent is None else sorted((usual, recent))
            for device, norms in updates.items():
                if (norm := norms.get(kind, 0.0)) > least:
                    outliers = suspects if tries and norm <= TRIED * most else refused
                    outliers.setdefault(device, _words(kind, norm, least, "in this round"))
        if not self.settings.norm_bound:
            return Outliers({}, {})
        return Outliers(refused, {name: words for name, words in suspects.items() if name not in refused})

    def _usual(self, *choices: Sequence[float]) -> float:
        """The largest norm that fits the first of these that are enough; infinite without any."""
        enough = (norms for norms in choices if len(norms) >= MIN_UPDATES)
        return next((_bound(norms, self.settings) for norms in enough), math.inf)

    def with_update(self, device: str, norms: Norms, *, accepted: bool) -> "NormBound":
        """The bound after an update, `accepted` or refused for its norms."""
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

    def after(self, rows: Iterable[tuple[str, str | None, Norms]]) -> "NormBound":
        """The bound after these updates in order, each as device, reason of its refusal or None, norms."""
        bound = self
        for device, reason, norms in rows:
            # Updates refused for numbers beyond MAX_ABS have no norms.
            if reason is None or (reason == Reason.OUT_OF_BOUNDS and norms):
                bound = bound.with_update(device, norms, accepted=reason is None)
        return bound


def _bound(norms: Sequence[float], settings: FirewallSettings) -> float:
    """Some medians, or the median and some standard deviations by MAD, whichever is larger."""
    usual = median(norms)
    spread = SIGMA * median(abs(norm - usual) for norm in norms)
    return max(settings.norm_factor * usual, usual + settings.norm_spread * spread)


def _words(kind: str, norm: float, most: float, when: str) -> str:
    what = "the largest" if _whole(kind).endswith(PEAK) else "a typical"
    return f"{what} number of '{kind.replace(PEAK, '', 1)}' is {norm:.3g}, at most {most:.3g} is usual {when}"
