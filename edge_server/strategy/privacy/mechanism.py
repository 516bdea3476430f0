"""Client-level differential privacy: updates are clipped, and noise is added to their sum.

McMahan et al. 2018, Learning Differentially Private Recurrent Language Models, Algorithm 1 (flat clipping,
the fixed denominator of section 3.1); Andrew et al. 2021, Differentially Private Learning with Adaptive
Clipping, Algorithm 1 and theorem 1, for a clip that follows a quantile of the norms.

*Sensitivity over held coordinates.* Client k holds the coordinates H_k. Its update, 0 elsewhere, is scaled
by min(1, S / |delta_k|), the norm over all that it holds together. The sum over clients, a vector over all
coordinates of the model, then changes by at most S in L2 when one client's contribution goes, whatever H_k
is. Noise of standard deviation z S is added to each coordinate of the *sum*. Only then each coordinate c is
divided by h_c, the number of *asked* clients that hold it: it is fixed before any device looks at its data,
so the division is post-processing. If each coordinate's mean were taken over the updates received, one
client could change a denominator, and the bound would be lost. A coordinate that few clients hold is
noisier, z S / h_c; a coordinate that no asked client holds has no sum, gets no noise and stays as it is.

Dropouts lower neither noise nor denominators: h_c stays, and the step is shorter. If more clients are asked
than needed, h_c counts the needed share of them.

*The adaptive clip.* Each client also counts b_k - 1/2, where b_k says whether its norm is at most S. The
noisy sum of these estimates the share b of unclipped updates, and S <- S exp(-rate (b - quantile)). Their
noise s_b and the updates' noise z' together cost as much as z alone: z' = (z^-2 - (2 s_b)^-2)^(-1/2),
theorem 1. The paper sets s_b = m / 20 for m clients. A small cohort would then not reach z at all, so here it
is at least z (which costs 15 % more noise on the updates).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from edge_client.pruning.index_sets import empty_index_set, submodel_index_set
from edge_server.strategy.aggregation import accumulator, blocks, deltas, means
from edge_server.strategy.aggregation.updates import GlobalUpdate
from edge_server.strategy.explanations import Observed
from edge_server.strategy.privacy import accounting
from edge_server.strategy.pruning.interface import Cut
from schemas.messages.tasks import is_returned
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Array, Arrays, kind_of, rows_of

# `(name, start, stop) -> number of holders of each coordinate of these rows`; broadcasts to their shape
Holders = Callable[[str, int, int], accumulator.Floats]


class Draw(TypedDict):
    """How many clients are `asked`, of a `population`."""

    asked: int
    population: int


class PrivacyPlan(Draw):
    """A planned round, closed by `needed` updates.

    `cuts` counts equal sub-models: (spec as JSON, what is sent back or None for all, count).
    """

    round: int
    needed: int
    cuts: Sequence[tuple[str, Sequence[str] | None, int]]


class PrivacyState(TypedDict):
    """The mechanism's state, of plain values: the noise's secret in hex, the clip, the releases, the plan.

    Each release is (noise multiplier, sample, population, rounds).
    """

    secret: str
    clip: float
    releases: Sequence[tuple[float, int, int, int]]
    plan: PrivacyPlan | None


@dataclass(frozen=True)
class Gaussian:
    """The mechanism: noise of `noise_multiplier` z times the clip S, S being `clip` or adaptive (None).

    `quantile_noise` is s_b. The `unit` of which one may be missing is a client, or an example where sums over
    examples get the noise (`accounting.SumNoise`). `drawn`: random selection of clients counts as privacy, by
    the relation replace-one. No round begins that would spend more than `budget` epsilon at `delta`.
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
    unit: str = "client"

    @property
    def relation(self) -> str:
        return "replace-one" if self.drawn else "zero-out"

    def spent(self, releases: Iterable[tuple[float, int, int, int]]) -> float:
        """The epsilon of the releases, as the state keeps them."""
        made = tuple(
            accounting.Release(float(z), int(n), int(of), int(rounds)) for z, n, of, rounds in releases
        )
        return accounting.epsilon(made, self.delta, replaced=self.drawn)

    def release(self, plan: Draw | None = None) -> accounting.Release:
        """What one round spends; without a plan, as if every client took part."""
        if not self.drawn or plan is None:
            return accounting.Release(self.noise_multiplier, 1, 1)
        return accounting.Release(self.noise_multiplier, plan["asked"], plan["population"])

    def noises(self, cohort: float) -> tuple[float, float]:
        """The updates' multiplier z' and the bits' deviation s_b, for a cohort of this size."""
        if self.clip is not None:
            return self.noise_multiplier, 0.0
        bits = self.quantile_noise or max(cohort / 20, self.noise_multiplier)
        return (self.noise_multiplier**-2 - (2 * bits) ** -2) ** -0.5, bits


def initial_state(mechanism: Gaussian, secret: bytes) -> PrivacyState:
    clip = mechanism.initial_clip if mechanism.clip is None else mechanism.clip
    return {"secret": secret.hex(), "clip": clip, "releases": (), "plan": None}


def with_plan(
    privacy: PrivacyState, number: int, cuts: Sequence[Cut], *, needed: int, population: int
) -> PrivacyState:
    """The state with the plan of round `number`: `cuts` of the clients asked, drawn of `population`."""
    counts = Counter((cut.spec.model_dump_json(), cut.returned) for cut in cuts)
    alike = tuple((spec, returned, count) for (spec, returned), count in counts.items())
    plan = PrivacyPlan(round=number, asked=len(cuts), needed=needed, population=population, cuts=alike)
    return {**privacy, "plan": plan}


def over_budget(mechanism: Gaussian, privacy: PrivacyState) -> str:
    """Why the planned round must not begin; empty if it may."""
    if mechanism.budget is None:
        return ""
    made = tuple(accounting.Release(*spent) for spent in privacy["releases"])
    after = mechanism.spent(accounting.add_release(made, mechanism.release(privacy["plan"])))
    if after <= mechanism.budget:
        return ""
    spends = f"epsilon {after:.4g} of {mechanism.budget:g} at delta {mechanism.delta:g}"
    return f"privacy budget: another round would spend {spends}"


def noisy_change(
    mechanism: Gaussian,
    privacy: PrivacyState,
    number: int,
    updates: Sequence[GlobalUpdate],
    channel_map: ChannelMap,
) -> tuple[Arrays, PrivacyState]:
    """The change of the model that round `number` releases, of the full shapes P, and the next state.

    The same state and updates give the same change. A state without a plan of this round (the server was
    restarted during it) divides by the clients that sent updates, and counts no random selection.
    """
    clip, secret = float(privacy["clip"]), bytes.fromhex(privacy["secret"])
    plan = privacy["plan"]
    plan = plan if plan is not None and plan["round"] == number else None
    total, came, bits, count = clipped_sum(updates, clip)
    holders = came if plan is None else _planned_holders(plan, channel_map)
    cohort = float(count if plan is None else plan["needed"])
    key = accounting.round_key(secret, number, total, bits)
    multiplier, bit_noise = mechanism.noises(cohort)
    deviation = multiplier * clip

    def rows(name: str, start: int, stop: int) -> Array:
        shape = kind_of(total, name)[1]
        noise = deviation * accounting.noise_rows(key, name, shape, start, stop)
        noisy = blocks.as_rows(rows_of(total, name, start, stop)) + noise
        return means.divide_by_weight(noisy, holders(name, start, stop))

    change = blocks.lazy_arrays(means.kinds_of(updates), rows)
    if mechanism.clip is None:
        unclipped = (
            0.5 + (bits + bit_noise * float(accounting.standard_normal(key, "/unclipped", ()))) / cohort
        )
        clip *= math.exp(-mechanism.clip_learning_rate * (unclipped - mechanism.target_quantile))
    releases = accounting.add_release(
        (accounting.Release(*spent) for spent in privacy["releases"]), mechanism.release(plan)
    )
    kept = tuple((spent.noise_multiplier, spent.sample, spent.population, spent.rounds) for spent in releases)
    return change, {**privacy, "clip": clip, "releases": kept, "plan": None}


def clipped_sum(
    updates: Sequence[GlobalUpdate], clip: float
) -> tuple[Mapping[str, accumulator.Floats], Holders, float, int]:
    """The sum of the clipped updates, the holders of each coordinate, the sum of b_k - 1/2, the count.

    Arrays are of the full shapes P. The updates are read once for their norms, and again for each row of the
    sum that is asked for. An update that is not finite adds nothing.
    """
    norms = [norm_of(update) for update in updates]
    finite = [update for update, norm in zip(updates, norms, strict=True) if math.isfinite(norm)]
    shares = [np.float64(min(1.0, clip / norm) if norm > 0 else 1.0) for norm in norms if math.isfinite(norm)]

    def rows(name: str, start: int, stop: int) -> accumulator.Floats:
        if not finite:
            shape = kind_of(updates[0].delta, name)[1]
            return np.zeros((stop - start, *shape[1:]))
        return means.weighted_sum(finite, shares, name, start, stop)[0]

    def came(name: str, start: int, stop: int) -> accumulator.Floats:
        reached = [update.coverage.index_set(name).slice_rows(start, stop)[1] for update in updates]
        return deltas.sum_weights(reached, [1.0] * len(reached))

    kinds = {name: (np.dtype(np.float64), kind[1]) for name, kind in means.kinds_of(updates).items()}
    bits = sum(0.5 if norm <= clip else -0.5 for norm in norms)
    return blocks.lazy_arrays(kinds, rows), came, bits, len(updates)


def norm_of(update: GlobalUpdate) -> float:
    """The L2 norm of everything that an update covers, in double precision: single precision is too low."""
    squares = 0.0
    for name in update.delta:
        for start, stop in blocks.row_blocks(kind_of(update.delta, name)[1], blocks.SUM_NUMBERS):
            values = update.covered_rows(name, start, stop).values.astype(np.float64)
            squares += float(np.square(values).sum())
    return math.sqrt(squares)


def _planned_holders(plan: PrivacyPlan, channel_map: ChannelMap) -> Holders:
    """h_c for rows of a parameter: the needed share of the asked clients whose sub-models hold it."""
    cuts = [(SubModelSpec.model_validate_json(text), back, count) for text, back, count in plan["cuts"]]
    weights = [count * plan["needed"] / plan["asked"] for _, _, count in cuts]

    def rows(name: str, start: int, stop: int) -> accumulator.Floats:
        layout = channel_map.parameters[name]
        asked = [
            submodel_index_set(layout, spec) if is_returned(name, back) else empty_index_set(layout.shape)
            for spec, back, _ in cuts
        ]
        return deltas.sum_weights([reach.slice_rows(start, stop)[1] for reach in asked], weights)

    return rows


def observe_round(mechanism: Gaussian, privacy: PrivacyState, clip: float) -> Observed:
    return {"epsilon": mechanism.spent(privacy["releases"]), "delta": mechanism.delta, "clip": clip}


def provenance(mechanism: Gaussian, privacy: PrivacyState) -> dict[str, str]:
    rounds = sum(int(release[3]) for release in privacy["releases"])
    return {
        "privacy.mechanism": "gaussian",
        "privacy.relation": mechanism.relation,
        "privacy.epsilon": f"{mechanism.spent(privacy['releases']):.6g}",
        "privacy.delta": f"{mechanism.delta:g}",
        "privacy.noise_multiplier": f"{mechanism.noise_multiplier:g}",
        "privacy.releases": str(rounds),
        **({"privacy.unit": mechanism.unit} if mechanism.unit != "client" else {}),
    }
