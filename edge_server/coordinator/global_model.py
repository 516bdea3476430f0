"""Testing and exporting the global model and the tiers' sub-models."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.data.dataset import Inputs, LabelledData
from edge_client.models import fixed_state, frozen_values
from edge_client.models.frozen_part import find_split
from edge_client.pruning import index_sets, surgery
from edge_client.training import evaluation
from edge_client.training.feature_cache import FeatureCache
from edge_client.training.results import Evaluation
from edge_client.training.shared_forward import Cut, evaluate_sub_models
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import ModelSpec, Preprocessing

# Tests of sub-models whose frozen layers are the same in every round, and see the test data once.


MAX_BYTES = 256_000_000  # of a sub-model's features of all test data
MAX_MODELS = 12  # sub-models and parts of the data whose features are kept


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A sub-model with the features of the test data, None if all of it has to run, and its frozen arrays."""

    module: nn.Module
    data: LabelledData
    still: Arrays
    features: evaluation.Features | None

    def fits(self, arrays: Arrays) -> bool:
        return all(
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
        if prepared is None or prepared.data is not data or not prepared.fits(arrays):
            module = self._searched_module(key[0], arrays) or self._fill(make(), arrays)
            prepared = self._prepared[key] = self._prepare(arrays, data, module)
        self._prepared.move_to_end(key)
        while len(self._prepared) > MAX_MODELS:
            self._prepared.popitem(last=False)
        if prepared.features is None:
            return None
        with torch.no_grad():
            for name, tensor in fixed_state.distinct(fixed_state.sent_tensors(prepared.module)).items():
                if name not in self._still:
                    tensor.copy_(torch.from_numpy(np.array(arrays[name])))
        return evaluation.feature_outputs(prepared.features)

    def _searched_module(self, spec: str, arrays: Arrays) -> nn.Module | None:
        """A sub-model with the same frozen arrays whose split was searched for other data."""
        alike = (kept for (other, _), kept in self._prepared.items() if other == spec and kept.fits(arrays))
        return next((kept.module for kept in alike), None)

    def _fill(self, module: nn.Module, arrays: Arrays) -> nn.Module:
        # What changes is written in place later: these must not be the arrays of the caller.
        own = {name: np.array(array) for name, array in arrays.items() if name not in self._still}
        surgery.borrow_arrays(module, {**arrays, **own})
        return module

    def _prepare(self, arrays: Arrays, data: LabelledData, module: nn.Module) -> _Prepared:
        still = {name: np.asarray(arrays[name]) for name in arrays if name in self._still}
        features = None
        try:
            split = find_split(module, arrays.keys() - still.keys(), self._input_shape)
            if 4 * split.width * len(data) <= MAX_BYTES:
                (features,), _ = evaluation.features_of(split, (data,), FeatureCache(), "")
        except frozen_values.NoSplit as reason:
            log.info("frozen layers run in every test: %s", reason)
        return _Prepared(module, data, still, features)


log = logging.getLogger(__name__)

TOGETHER = 50_000_000  # Most parameters of networks that are in memory at once to be tested together, 200 MB


def has_diverged(params: Arrays, tested: Mapping[int, Evaluation]) -> bool:
    """Whether a model has parameters that are not finite, or no test loss (tier 0)."""
    whole = tested.get(0)
    if whole is not None and whole.examples and whole.loss is None:
        return True
    return not all(np.isfinite(array).all() for array in params.values() if array.dtype.kind == "f")


class GlobalModel:
    """The full network: its sub-models, tests and exports."""

    def __init__(
        self,
        module: nn.Module,
        spec: ModelSpec,
        channel_map: ChannelMap,
        *,
        still: frozenset[str] = frozenset(),
    ) -> None:
        # The module has no parameters of its own; it borrows those of the state, so memory holds one model.
        self._module, self._spec, self._channel_map = surgery.hollow(module), spec, channel_map
        self.graphs: tuple[bytes, ...] = ()
        self._compared: set[Hashable] = set()
        self._split = SplitTests(still, spec.input_shape)

    @property
    def parameters(self) -> int:
        """The number of trainable parameters of the full network."""
        return surgery.parameter_count(self._module)

    def macs(self, spec: SubModelSpec) -> int:
        """Multiply-accumulates of a sub-model for one example."""
        module = surgery.compact(self._module, spec, self._channel_map)
        shapes = {name: layout.shape for name, layout in self._channel_map.parameters.items()}
        zeros = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
        surgery.borrow_arrays(module, index_sets.extract(zeros, spec, self._channel_map))
        return surgery.count_macs(module, self._spec.input_shape)

    def sub_model(self, params: Arrays, spec: SubModelSpec) -> nn.Module:
        """The dense network of `spec` with its part of `params`, to be inspected, not trained."""
        module = surgery.compact(self._module, spec, self._channel_map)
        surgery.borrow_arrays(module, index_sets.extract(params, spec, self._channel_map))
        return module

    def test(
        self, params: Arrays, spec: SubModelSpec, data: LabelledData, inputs: Inputs | None = None
    ) -> Evaluation:
        """Loss and figures of a sub-model; `inputs` are those of `data`, if they were made before."""
        outputs = self._outputs_by_features(params, spec, data)
        if outputs is not None:
            return evaluation.evaluate_outputs(outputs, data, np.zeros(0, np.float32))
        return evaluation.evaluate(self.sub_model(params, spec), data, inputs=inputs)

    def outputs(self, params: Arrays, data: LabelledData, inputs: Inputs) -> Tensor:
        """The full model's outputs [N, classes] for the data with these inputs, N at least 1."""
        outputs = self._outputs_by_features(params, SubModelSpec(), data)
        if outputs is not None:
            return outputs
        return torch.from_numpy(evaluation.logits(self.sub_model(params, SubModelSpec()), inputs))

    def _outputs_by_features(self, params: Arrays, spec: SubModelSpec, data: LabelledData) -> Tensor | None:
        """The outputs if what no device trains comes first in the network; it then sees the data once."""
        make = partial(surgery.compact, self._module, spec, self._channel_map)
        return self._split.outputs(spec, index_sets.extract(params, spec, self._channel_map), data, make)

    def test_all(
        self,
        specs: Mapping[int, SubModelSpec],
        params_of: Callable[[int], Arrays],
        data: LabelledData,
        inputs: Inputs,
    ) -> dict[int, Evaluation]:
        """`test` of several sub-models by number; together with the full model, if that comes first.

        `params_of` gives the full arrays that a sub-model is cut from.
        """
        whole = next(iter(specs.values()), None) == SubModelSpec() and not self._split.is_used
        if not whole or len(specs) * surgery.parameter_count(self._module) > TOGETHER:
            return {n: self.test(params_of(n), spec, data, inputs) for n, spec in specs.items()}
        modules = [self.sub_model(params_of(n), spec) for n, spec in specs.items()]
        cuts = [self._cut(spec) for spec in list(specs.values())[1:]]
        found = evaluate_sub_models(modules, cuts, data, inputs=inputs, compared=self._compared)
        return dict(zip(specs, found, strict=True))

    def _cut(self, spec: SubModelSpec) -> Cut:
        layouts = self._channel_map.parameters.items()
        return {name: index_sets.cut_axes(layout, spec) for name, layout in layouts}

    def add_graphs(self, graphs: Iterable[bytes]) -> None:
        """Try these graphs before others are drawn."""
        self.graphs = tuple(dict.fromkeys((*self.graphs, *graphs)))

    def graph(self, params: Arrays, spec: SubModelSpec) -> bytes | None:
        """A sub-model's ONNX graph without weights; None if devices have to export it themselves."""
        from edge_client.inference.export.onnx import MAX_GRAPH_BYTES, ExportRefused

        try:
            graph = self.draw(params, spec)
        except ExportRefused as error:
            log.warning("no graph for the devices: %s", error)
            return None
        return graph if len(graph) <= MAX_GRAPH_BYTES else None

    def draw(self, params: Arrays, spec: SubModelSpec) -> bytes:
        """A sub-model's graph of any size; raises `ExportRefused` if it cannot become ONNX."""
        from edge_client.inference.export.onnx import find_graph

        module = self.sub_model(params, spec).eval()
        graph = find_graph(module, self._spec.input_shape, self.graphs)
        self.add_graphs([graph])
        return graph

    def export(
        self,
        path: Path,
        params: Arrays,
        spec: SubModelSpec,
        *,
        preprocessing: Preprocessing,
        provenance: Mapping[str, str],
    ) -> None:
        """Write a sub-model as ONNX, compared with torch."""
        from edge_client.inference.export.onnx import export_onnx

        export_onnx(
            self.sub_model(params, spec).eval(),
            path,
            input_shape=self._spec.input_shape,
            preprocessing=preprocessing,
            provenance=provenance,
            graphs=self.graphs,
            task=self._spec.task,
        )
