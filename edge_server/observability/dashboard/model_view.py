"""The model as the page shows it: channels and who keeps them, clients' similarity, ONNX variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge_server.observability.dashboard.run_view import Json
from edge_server.storage.records import DeviceRecord
from edge_server.strategy.explanations import ChannelScores, Observation
from schemas.submodel import Kept

MOST_ROUNDS = 60
"""So many rounds of a group's scores are told: the first, the newest, and some evenly between."""


def model_value(
    observations: Sequence[Observation], records: Iterable[DeviceRecord], *, gradcam_why_not: str
) -> Json:
    """What `/api/model` says; `gradcam_why_not` is empty where Grad-CAM can be computed."""
    similar = next((one for one in reversed(observations) if one.similarity is not None), None)
    names = dict.fromkeys(name for one in observations for name in one.groups)
    return {
        "groups": [_group(name, observations) for name in names],
        "similarity": _similarity(similar),
        "variants": [_variant(record) for record in records if record.onnx_bytes is not None],
        "gradcam": not gradcam_why_not,
        "gradcam_why_not": gradcam_why_not,
    }


def channel_value(observations: Sequence[Observation], group: str, index: int) -> Json | None:
    """What `/api/channel/GROUP/INDEX` says, by the newest round that tells of it; None where none does."""
    newest = next((one for one in reversed(observations) if group in one.groups), None)
    if newest is None or not 0 <= index < len(newest.groups[group].scores):
        return None
    scores = newest.groups[group]
    rank = _rank(scores, index)
    tiers = [_tier(scores, tier, index) for tier in sorted(scores.kept)]
    return {
        "group": group,
        "index": index,
        "layers": list(scores.layers),
        "measure": scores.measure,
        "round": newest.round,
        "score": scores.scores[index],
        "rank": rank,
        "of": len(scores.scores),
        "tiers": tiers,
        "because": [_because(scores, one, index, rank) for one in tiers if not one["keeps"]],
    }


def thinned(rounds: Sequence[int], most: int = MOST_ROUNDS) -> list[int]:
    """At most so many of the rounds, evenly spread, with the first and the last."""
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[round(place * (len(rounds) - 1) / (most - 1))] for place in range(most)]


def keeps(kept: Kept, index: int) -> bool:
    """Whether a tier keeps the channel."""
    return index < kept if isinstance(kept, int) else index in kept


def _group(name: str, observations: Sequence[Observation]) -> Json:
    told = {one.round: one.groups[name] for one in observations if name in one.groups}
    newest = told[max(told)]
    # A tier keeps channels by their number in the newest model: rounds of another width are of another one.
    alike = [number for number, one in told.items() if len(one.scores) == len(newest.scores)]
    rounds = thinned(sorted(alike))
    return {
        "group": name,
        "layers": list(newest.layers),
        "channels": len(newest.scores),
        "measure": newest.measure,
        "rounds": rounds,
        "measures": [told[number].measure for number in rounds],
        "scores": [list(told[number].scores) for number in rounds],
        "kept": {str(tier): one if isinstance(one, int) else list(one) for tier, one in newest.kept.items()},
    }


def _similarity(observation: Observation | None) -> Json | None:
    if observation is None or observation.similarity is None:
        return None
    return {
        "round": observation.round,
        "clients": list(observation.similarity.clients),
        "values": [list(row) for row in observation.similarity.values],
    }


def _variant(record: DeviceRecord) -> Json:
    return {
        "tier": record.tier,
        "device": record.device,
        "variant": record.variant,
        "onnx_bytes": record.onnx_bytes,
        "latency_ms": record.latency_ms,
        "accuracy": record.onnx_accuracy if record.variant_accuracy is None else record.variant_accuracy,
        "why": record.why or "",
        "verdict": record.verdict.model_dump(mode="json") if record.verdict else None,
    }


def _rank(scores: ChannelScores, index: int) -> int:
    """1 for the best; of equal ones the first is better."""
    order = sorted(range(len(scores.scores)), key=lambda one: (-scores.scores[one], one))
    return order.index(index) + 1


def _tier(scores: ChannelScores, tier: int, index: int) -> Json:
    kept, total = scores.kept[tier], len(scores.scores)
    indices = range(min(kept, total)) if isinstance(kept, int) else kept
    return {
        "tier": tier,
        "keeps": keeps(kept, index),
        "kept": len(indices),
        "lowest_kept_score": min((scores.scores[one] for one in indices if one < total), default=None),
    }


def _because(scores: ChannelScores, tier: Json, index: int, rank: int) -> str:
    total, kept, lowest = len(scores.scores), tier["kept"], tier["lowest_kept_score"]
    head = f"tier {tier['tier']} keeps {kept} of {total} channels"
    if isinstance(scores.kept[tier["tier"]], int):
        return f"{head}, the first {kept}; this one is number {index + 1}, rank {rank} by {scores.measure}"
    if lowest is None or scores.scores[index] > lowest:
        return f"{head}, and not by this score: it ranks {rank} of {total}"
    own = scores.scores[index]
    return f"{head}; this one ranks {rank} by {scores.measure}, {own:.3g} to at least {lowest:.3g}"
