"""Tests of sub-models whose frozen layers are the same in every round, and see the test data once."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.models import fixed_state, frozen_values
from edge_client.models.frozen_part import find_split
from edge_client.pruning.surgery import borrow_arrays
from edge_client.training.evaluation import feature_outputs
from edge_client.training.feature_cache import FeatureCache
from edge_client.training.features import Features, features_of
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays

log = logging.getLogger(__name__)

MAX_BYTES = 256_000_000  # of a sub-model's features of all test data
MAX_MODELS = 12  # sub-models and parts of the data whose features are kept


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A sub-model with the features of the test data, None if all of it has to run, and its frozen arrays."""

    module: nn.Module
    data: LabelledData
    still: Arrays
    features: Features | None

    def fits(self, data: LabelledData, arrays: Arrays) -> bool:
        return self.data is data and all(
            kept is arrays[name] or np.array_equal(kept, arrays[name], equal_nan=True)
            for name, kept in self.still.items()
        )


class SplitTests:
    """Tests sub-models by the features that layers of the arrays `still` make; no device trains these."""

    def __init__(self, still: frozenset[str], input_shape: tuple[int, ...]) -> None:
        self._still, self._input_shape = still, input_shape
        self._prepared: OrderedDict[tuple[str, int], _Prepared] = OrderedDict()

    @property
    def is_used(self) -> bool:
        return bool(self._still)

    def outputs(
        self, spec: SubModelSpec, arrays: Arrays, data: LabelledData, make: Callable[[], nn.Module]
    ) -> Tensor | None:
        """The outputs [N, classes] of the sub-model with these arrays; None if all of it has to run.

        `make` gives its network.
        """
        if not self._still or not len(data) or data.learning_task.labels == "none":
            return None
        key = (spec.model_dump_json(), id(data))
        prepared = self._prepared.get(key)
        if prepared is None or not prepared.fits(data, arrays):
            prepared = self._prepared[key] = self._prepare(arrays, data, make())
        self._prepared.move_to_end(key)
        while len(self._prepared) > MAX_MODELS:
            self._prepared.popitem(last=False)
        if prepared.features is None:
            return None
        with torch.no_grad():
            for name, tensor in fixed_state.distinct(fixed_state.sent_tensors(prepared.module)).items():
                if name not in self._still:
                    tensor.copy_(torch.from_numpy(np.array(arrays[name])))
        return feature_outputs(prepared.features)

    def _prepare(self, arrays: Arrays, data: LabelledData, module: nn.Module) -> _Prepared:
        still = {name: np.asarray(arrays[name]) for name in arrays if name in self._still}
        # What changes is written in place later: these must not be the arrays of the caller.
        own = {name: np.array(arrays[name]) for name in arrays if name not in still}
        borrow_arrays(module, {**still, **own})
        features = None
        try:
            split = find_split(module, own.keys(), self._input_shape)
            if 4 * split.width * len(data) <= MAX_BYTES:
                (features,), _ = features_of(split, (data,), FeatureCache(), "")
        except frozen_values.NoSplit as reason:
            log.info("frozen layers run in every test: %s", reason)
        return _Prepared(module, data, still, features)
