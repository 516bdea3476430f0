"""The features of examples, which frozen layers make of them: computed once, and kept (`feature_cache`)."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from edge_client.data.dataset import LabelledData
from edge_client.models.frozen_part import SplitNetwork, find_split
from edge_client.models.frozen_values import NoSplit
from edge_client.training.feature_cache import FeatureCache, Places, Rows, digest_examples
from edge_client.training.memory_format import channels_innermost
from edge_client.training.objectives.registry import build_objectives
from schemas.strategy import TrainingPlan
from schemas.values import FeatureType

log = logging.getLogger(__name__)

AT_ONCE = 8  # frozen passes whose inputs are in memory at once
_said = set[str]()


@dataclass(frozen=True, eq=False)
class Features:
    """The features [N, width] of examples, and the network that takes them in place of inputs."""

    rest: nn.Module
    rows: Rows


def why_whole(plan: TrainingPlan, data: LabelledData) -> str:
    """Why all layers have to run in every step, whichever are frozen; empty if they need not."""
    if data.learning_task.labels == "none":
        return "the network answers with its inputs"
    reading = [
        component.name
        for component, objective in zip(plan.objectives, build_objectives(plan.objectives), strict=True)
        if not objective.reads_outputs_only
    ]
    return f"the objective '{reading[0]}' needs more than outputs" if reading else ""


def split_for(
    module: nn.Module,
    trained: Collection[str] | None,
    input_shape: tuple[int, ...],
    plan: TrainingPlan,
    data: LabelledData,
) -> SplitNetwork | None:
    """The module in two parts, of which the rest alone changes; None, said once, if all of it has to run."""
    if trained is None:
        return None
    try:
        if why := why_whole(plan, data):
            raise NoSplit(why)
        return find_split(module, trained, input_shape)
    except NoSplit as reason:
        if (text := str(reason)) not in _said:
            _said.add(text)
            log.info("frozen layers run in every step: %s", text)
        return None


def features_of(
    split: SplitNetwork,
    parts: Sequence[LabelledData],
    cache: FeatureCache,
    name: str,
    kind: FeatureType = "fp32",
) -> list[Features]:
    """The features of the examples of each part; those that the cache lacks are computed."""
    digests = [digest for data in parts for digest in digest_examples(data.images)]
    taken = parts[0].preprocessing
    about = (name, taken.scale, taken.mean, taken.std, parts[0].input_shape, parts[0].images.dtype, kind)
    how = (sorted(split.arrays), split.batch, torch.__version__, torch.get_num_threads())
    kept = cache.features(
        f"{about} {how}", digests, partial(_compute, split, parts), width=split.width, kind=kind
    )
    if kept.computed:
        log.debug("features of %d of %d examples were computed", kept.computed, len(digests))
    ends = np.cumsum([len(data) for data in parts])
    return [Features(split.rest, rows) for rows in np.split(kept.rows, ends[:-1])]


def _compute(split: SplitNetwork, parts: Sequence[LabelledData], places: Places) -> Rows:
    """The features of the examples at these places of all parts together."""
    ends = np.cumsum([len(data) for data in parts])
    rows = np.empty((len(places), split.width), np.float32)
    step = AT_ONCE * split.batch
    with channels_innermost(split.frozen, torch.from_numpy(_inputs(parts, ends, places[:2]))):
        for start in range(0, len(places), step):
            inputs = torch.from_numpy(_inputs(parts, ends, places[start : start + step]))
            rows[start : start + step] = split.features(inputs).cpu().numpy()
    return rows


def _inputs(parts: Sequence[LabelledData], ends: Places, places: Places) -> Rows:
    owners = np.searchsorted(ends, places, side="right")
    each = [
        data.subset(places[owners == number] - (ends[number] - len(data)))
        for number, data in enumerate(parts)
        if (owners == number).any()
    ]
    return np.concatenate([data.inputs() for data in each])
