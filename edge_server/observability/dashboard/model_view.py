"""The JSON values of the model: channels and the tiers that keep them, similarity, ONNX variants."""

import asyncio
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edge_server.observability.dashboard import run_reader, run_view
from edge_server.storage.records import DeviceRecord
from edge_server.strategy.explanations import ChannelScores, Observation
from schemas.base import fields_of
from schemas.errors import EdgeError
from schemas.submodel import Kept

MAX_IMAGES = 32
KEPT = 16  # Maximum cached answers of a few dozen kilobytes each
PATIENCE_S = 120.0
THREADS = "1"
KERNEL_AXES = 4  # Axes of a 2-d convolution's weights


class GradCamUnavailable(EdgeError):
    """The images cannot be computed; the message gives the reason."""


def why_not(facts: run_reader.FolderFacts) -> str:
    """Why Grad-CAM cannot be computed here; empty if nothing speaks against it."""
    config = facts.config
    if config is None or facts.channels is None:
        return "there is no model yet"
    if config.data.source is None:
        return "the server has no test data: the federation file names no [data] source"
    kernels = (len(layout.shape) for layout in facts.channels.parameters.values())
    if KERNEL_AXES not in kernels:
        return f"{config.model.name} has no convolution, and Grad-CAM looks at one's maps"
    module, colon, _ = config.model.name.partition(":")
    for name in ("torch", *([module.partition(".")[0]] if colon else [])):
        if find_spec(name) is None:
            return f"{name} cannot be imported here"
    return ""


class GradCamRequests:
    """Computes and caches the images of one run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = asyncio.Lock()
        self._known: OrderedDict[tuple[str, int, int], dict[str, Any]] = OrderedDict()

    async def images(self, version: str, tier: int, count: int) -> dict[str, Any]:
        """Grad-CAM of a version's tier (0: the global model); raises `GradCamUnavailable` with the reason."""
        key = version, tier, count
        async with self._lock:
            if key not in self._known:
                self._known[key] = await self._compute_pictures(tier, count)
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return self._known[key]

    async def _compute_pictures(self, tier: int, count: int) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "edge_server.observability.dashboard.grad_cam_process",
                str(self._run),
                str(tier),
                str(count),
            ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": THREADS},
        )
        try:
            out, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        except TimeoutError as error:
            raise GradCamUnavailable(f"computing the images took more than {PATIENCE_S:.0f} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise GradCamUnavailable(
                lines[-1] if lines else f"computing them ended with {process.returncode}"
            )
        answer: dict[str, Any] = json.loads(out)
        return answer


MAX_ROUNDS = 60
"""Maximum rounds of a group's scores in the value: the first, the newest, the rest evenly spread."""


def model_value(
    observations: Sequence[Observation], records: Iterable[DeviceRecord], *, gradcam_why_not: str
) -> run_view.Json:
    """The value of `/api/model`; `gradcam_why_not` is empty where Grad-CAM can be computed."""
    similar = next((found for found in reversed(observations) if found.similarity is not None), None)
    names = dict.fromkeys(name for observation in observations for name in observation.groups)
    return {
        "groups": [_group(name, observations) for name in names],
        "similarity": _similarity(similar),
        "variants": [_variant(record) for record in records if record.onnx_bytes is not None],
        "gradcam": not gradcam_why_not,
        "gradcam_why_not": gradcam_why_not,
    }


def channel_value(observations: Sequence[Observation], group: str, index: int) -> run_view.Json | None:
    """The value of `/api/channel/GROUP/INDEX` in the newest round that scored it; None where none did."""
    newest = next((found for found in reversed(observations) if group in found.groups), None)
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
        "because": [_because(scores, tier, index, rank) for tier in tiers if not tier["keeps"]],
    }


def evenly_spread(rounds: Sequence[int], most: int = MAX_ROUNDS) -> list[int]:
    """At most `most` of the rounds, evenly spread, including the first and the last."""
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[round(place * (len(rounds) - 1) / (most - 1))] for place in range(most)]


def keeps(kept: Kept, index: int) -> bool:
    return index < kept if isinstance(kept, int) else index in kept


def _group(name: str, observations: Sequence[Observation]) -> run_view.Json:
    by_round = {found.round: found.groups[name] for found in observations if name in found.groups}
    newest = by_round[max(by_round)]
    # Kept channels are indices into the newest model: rounds with another number of channels are left out.
    alike = [number for number, found in by_round.items() if len(found.scores) == len(newest.scores)]
    rounds = evenly_spread(sorted(alike))
    return {
        "group": name,
        "layers": list(newest.layers),
        "channels": len(newest.scores),
        "measure": newest.measure,
        "rounds": rounds,
        "measures": [by_round[number].measure for number in rounds],
        "scores": [list(by_round[number].scores) for number in rounds],
        "kept": {
            str(tier): kept if isinstance(kept, int) else list(kept) for tier, kept in newest.kept.items()
        },
    }


def _similarity(observation: Observation | None) -> run_view.Json | None:
    if observation is None or observation.similarity is None:
        return None
    return {
        "round": observation.round,
        "clients": list(observation.similarity.clients),
        "values": [list(row) for row in observation.similarity.values],
    }


def _variant(record: DeviceRecord) -> run_view.Json:
    return {
        **fields_of(record, "tier", "device", "variant", "onnx_bytes", "latency_ms"),
        "accuracy": record.onnx_accuracy if record.variant_accuracy is None else record.variant_accuracy,
        "why": record.why or "",
        "verdict": record.verdict.model_dump(mode="json") if record.verdict else None,
    }


def _rank(scores: ChannelScores, index: int) -> int:
    """1 for the highest score; of equal scores the lower index comes first."""
    order = sorted(range(len(scores.scores)), key=lambda channel: (-scores.scores[channel], channel))
    return order.index(index) + 1


def _tier(scores: ChannelScores, tier: int, index: int) -> run_view.Json:
    kept, total = scores.kept[tier], len(scores.scores)
    indices = range(min(kept, total)) if isinstance(kept, int) else kept
    return {
        "tier": tier,
        "keeps": keeps(kept, index),
        "kept": len(indices),
        "lowest_kept_score": min(
            (scores.scores[channel] for channel in indices if channel < total), default=None
        ),
    }


def _because(scores: ChannelScores, tier: run_view.Json, index: int, rank: int) -> str:
    total, kept, lowest = len(scores.scores), tier["kept"], tier["lowest_kept_score"]
    head = f"tier {tier['tier']} keeps {kept} of {total} channels"
    if isinstance(scores.kept[tier["tier"]], int):
        return f"{head}, the first {kept}; this is number {index + 1}, with rank {rank} by {scores.measure}"
    if lowest is None or scores.scores[index] > lowest:
        return f"{head}, but not by this score, in which this one ranks {rank} of {total}"
    own = scores.scores[index]
    return f"{head}; this one ranks {rank} by {scores.measure} ({own:.3g}; the lowest kept has {lowest:.3g})"
