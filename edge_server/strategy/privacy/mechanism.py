"""Client-level differential privacy: every update is clipped, their sum gets noise, and that is what is used.

McMahan et al. 2018, Learning Differentially Private Recurrent Language Models, Algorithm 1 (flat clipping,
the fixed denominator of section 3.1); Andrew et al. 2021, Differentially Private Learning with Adaptive
Clipping, Algorithm 1 and theorem 1, for a clip that follows a quantile of the norms.

*Sensitivity over held coordinates.* Client k holds the coordinates H_k. Its update, 0 elsewhere, is scaled
by min(1, S / |delta_k|), the norm over all that it holds together. The sum over clients, a vector over all
coordinates of the model, then changes by at most S in L2 when one client's contribution goes, whatever H_k
is. Noise of standard deviation z S goes to each coordinate of the *sum*. Only then each coordinate c is
divided by h_c, how many of those that were *asked* hold it: a number that is fixed before any device has
looked at its data, so the division is post-processing. Had each coordinate's mean been taken over those who
came, one client could change a denominator, and the bound would be lost. A coordinate that few hold is
noisier, z S / h_c; one that nobody was asked for holds no sum, gets no noise and stays as it is.

Who drops out lowers neither noise nor denominators: h_c stays, and the step is shorter. Where more are asked
than are needed, h_c counts the needed share of them.

*The adaptive clip.* Each client also counts b_k - 1/2, where b_k says whether its norm is at most S. The
noisy sum of these estimates the share b of unclipped updates, and S <- S exp(-rate (b - quantile)). Their
noise s_b and the updates' noise z' together cost as much as z alone: z' = (z^-2 - (2 s_b)^-2)^(-1/2),
theorem 1. The paper sets s_b = m / 20 for m clients. A small cohort would then not reach z at all, so here it
is at least z (which costs 15 % more noise on the updates).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import nowhere, reach_of
from edge_server.strategy.aggregation.blocks import SUM_NUMBERS, as_rows, lazy_arrays, row_blocks
from edge_server.strategy.aggregation.coverage import sum_weights
from edge_server.strategy.aggregation.means import divide_by_weight, kinds_of, weighted_sum
from edge_server.strategy.aggregation.updates import GlobalUpdate
from edge_server.strategy.privacy.accounting import Release, add_release, epsilon
from edge_server.strategy.privacy.noise import noise_rows, round_key, standard_normal
from edge_server.strategy.pruning.interface import Cut
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import kind_of, rows_of
from schemas.tensors.blobs import Array, Arrays

Sums = Mapping[str, NDArray[np.float64]]
Holders = Callable[[str, int, int], NDArray[np.float64]]
"""`(name, start, stop) -> how many hold each coordinate of these rows`; it broadcasts to their shape."""


@dataclass(frozen=True)
class Gaussian:
    """The mechanism: noise of `noise_multiplier` z times the clip S, S being `clip` or adaptive (None).

    `quantile_noise` is s_b. `drawn`: that clients are chosen at random counts for privacy, by the relation
    replace-one. No round is begun that would spend more than `budget` epsilon at `delta`.
    """

    noise_multiplier: float = 1.0
    clip: float | None = 1.0
    initial_clip: float = 0.1
    target_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    quantile_noise: float | None = None
    delta: float = 1e-5
    budget: float | None = None
    drawn: bool = False

    @property
    def relation(self) -> str:
        """Which two runs are neighbours."""
        return "replace-one" if self.drawn else "zero-out"

    def spent(self, releases: Iterable[Sequence[float]]) -> float:
        """The epsilon of the releases, as the state keeps them."""
        made = tuple(Release(float(z), int(n), int(of), int(rounds)) for z, n, of, rounds in releases)
        return epsilon(made, self.delta, replaced=self.drawn)

    def release(self, plan: Mapping[str, Any] | None = None) -> Release:
        """What one round spends; a draw that nobody remembers counts as none."""
        if not self.drawn or plan is None:
            return Release(self.noise_multiplier, 1, 1)
        return Release(self.noise_multiplier, plan["asked"], plan["population"])

    def noises(self, cohort: float) -> tuple[float, float]:
        """The updates' multiplier z' and the bits' deviation s_b, for so many clients."""
        if self.clip is not None:
            return self.noise_multiplier, 0.0
        bits = self.quantile_noise or max(cohort / 20, self.noise_multiplier)
        return (self.noise_multiplier**-2 - (2 * bits) ** -2) ** -0.5, bits


def initial_state(mechanism: Gaussian, secret: bytes) -> dict[str, Any]:
    """What the run's state keeps, plain: the secret of the noise, the clip, the releases so far, the plan."""
    clip = mechanism.initial_clip if mechanism.clip is None else mechanism.clip
    return {"secret": secret.hex(), "clip": clip, "releases": (), "plan": None}


def with_plan(
    privacy: Mapping[str, Any], number: int, cuts: Sequence[Cut], *, needed: int, population: int
) -> dict[str, Any]:
    """The state with the plan of round `number`: `cuts` of those asked, drawn of `population` clients."""
    counts: dict[tuple[str, tuple[str, ...] | None], int] = {}
    for cut in cuts:
        key = (cut.spec.model_dump_json(), cut.returned)
        counts[key] = counts.get(key, 0) + 1
    alike = tuple((spec, returned, count) for (spec, returned), count in counts.items())
    plan = {"round": number, "asked": len(cuts), "needed": needed, "population": population, "cuts": alike}
    return {**privacy, "plan": plan}


def over_budget(mechanism: Gaussian, privacy: Mapping[str, Any]) -> str:
    """Why the planned round must not begin; empty where it may."""
    if mechanism.budget is None:
        return ""
    made = tuple(Release(*one) for one in privacy["releases"])
    after = mechanism.spent(add_release(made, mechanism.release(privacy["plan"])))
    if after <= mechanism.budget:
        return ""
    return (
        f"privacy budget: another round would spend epsilon {after:.4g} of {mechanism.budget:g} "
        f"at delta {mechanism.delta:g}"
    )


def noisy_change(
    mechanism: Gaussian,
    privacy: Mapping[str, Any],
    number: int,
    updates: Sequence[GlobalUpdate],
    channel_map: ChannelMap,
) -> tuple[Arrays, dict[str, Any]]:
    """The change of the model that round `number` releases, of the full shapes P, and the next state.

    The same state and updates give the same change. A state without a plan of this round (the server began
    anew in its middle) divides by who came, and counts on no draw.
    """
    clip, secret = float(privacy["clip"]), bytes.fromhex(privacy["secret"])
    plan = privacy["plan"]
    plan = plan if plan is not None and plan["round"] == number else None
    total, came, bits, count = clipped_sum(updates, clip)
    holders = came if plan is None else _planned_holders(plan, channel_map)
    cohort = float(count if plan is None else plan["needed"])
    key = round_key(secret, number, total, bits)
    multiplier, bit_noise = mechanism.noises(cohort)
    deviation = multiplier * clip

    def rows(name: str, start: int, stop: int) -> Array:
        shape = kind_of(total, name)[1]
        noise = deviation * noise_rows(key, name, shape, start, stop)
        return divide_by_weight(
            as_rows(rows_of(total, name, start, stop)) + noise, holders(name, start, stop)
        )

    change = lazy_arrays(kinds_of(updates), rows)
    if mechanism.clip is None:
        unclipped = 0.5 + (bits + bit_noise * float(standard_normal(key, "/unclipped", ()))) / cohort
        clip *= math.exp(-mechanism.clip_learning_rate * (unclipped - mechanism.target_quantile))
    releases = add_release((Release(*one) for one in privacy["releases"]), mechanism.release(plan))
    kept = tuple(tuple(one) for one in releases)
    return change, {**privacy, "clip": clip, "releases": kept, "plan": None}


def clipped_sum(updates: Sequence[GlobalUpdate], clip: float) -> tuple[Sums, Holders, float, int]:
    """The sum of the clipped updates, the holders of each coordinate, the sum of b_k - 1/2, how many came.

    Arrays are of the full shapes P. Goes through the updates once for their norms, and again for the rows of
    the sum that are asked for. An update that is not finite adds nothing.
    """
    norms = [norm_of(update) for update in updates]
    finite = [update for update, norm in zip(updates, norms, strict=True) if math.isfinite(norm)]
    shares = [np.float64(min(1.0, clip / norm) if norm > 0 else 1.0) for norm in norms if math.isfinite(norm)]

    def rows(name: str, start: int, stop: int) -> NDArray[np.float64]:
        if not finite:
            shape = kind_of(updates[0].delta, name)[1]
            return np.zeros((stop - start, *shape[1:]))
        return weighted_sum(finite, shares, name, start, stop)[0]

    def came(name: str, start: int, stop: int) -> NDArray[np.float64]:
        reached = [update.coverage.reach(name).rows(start, stop)[1] for update in updates]
        return sum_weights(reached, [1.0] * len(reached))

    kinds = {name: (np.dtype(np.float64), kind[1]) for name, kind in kinds_of(updates).items()}
    bits = sum(0.5 if norm <= clip else -0.5 for norm in norms)
    return lazy_arrays(kinds, rows), came, bits, len(updates)


def norm_of(update: GlobalUpdate) -> float:
    """Of all that an update covers together.

    In double precision: the norm of single numbers is short by more than rounding elsewhere allows.
    """
    squares = 0.0
    for name in update.delta:
        for start, stop in row_blocks(kind_of(update.delta, name)[1], SUM_NUMBERS):
            values = update.covered(name, start, stop).values.astype(np.float64)
            squares += float(np.square(values).sum())
    return math.sqrt(squares)


def _planned_holders(plan: Mapping[str, Any], channel_map: ChannelMap) -> Holders:
    """h_c of rows of a parameter: of those asked the share that is needed, where their sub-models reach."""
    cuts = [(SubModelSpec.model_validate_json(text), back, count) for text, back, count in plan["cuts"]]
    weights = [count * plan["needed"] / plan["asked"] for _, _, count in cuts]

    def rows(name: str, start: int, stop: int) -> NDArray[np.float64]:
        layout, layer = channel_map.parameters[name], name.rpartition(".")[0]
        asked = [
            reach_of(layout, spec) if back is None or layer in back else nowhere(layout.shape)
            for spec, back, _ in cuts
        ]
        return sum_weights([reach.rows(start, stop)[1] for reach in asked], weights)

    return rows


def observed(mechanism: Gaussian, privacy: Mapping[str, Any], clip: float) -> dict[str, Any]:
    """What the history says after a round that was clipped at `clip`."""
    return {"epsilon": mechanism.spent(privacy["releases"]), "delta": mechanism.delta, "clip": clip}


def provenance(mechanism: Gaussian, privacy: Mapping[str, Any]) -> dict[str, str]:
    """What a model says of the privacy of those who trained it."""
    rounds = sum(int(one[3]) for one in privacy["releases"])
    return {
        "privacy.mechanism": "gaussian",
        "privacy.relation": mechanism.relation,
        "privacy.epsilon": f"{mechanism.spent(privacy['releases']):.6g}",
        "privacy.delta": f"{mechanism.delta:g}",
        "privacy.noise_multiplier": f"{mechanism.noise_multiplier:g}",
        "privacy.releases": str(rounds),
    }
