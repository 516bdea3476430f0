"""Step graphs for devices that train without torch: drawn once per sub-model, and kept on disk."""

import contextlib
import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from edge_client.data.tasks.registry import learning_task
from edge_client.inference.export.graph_export import graphs_folder
from edge_client.models import attributes, fixed_state, frozen_part
from edge_client.pruning import index_sets, surgery
from edge_client.storage.atomic_files import write_synced
from edge_client.training.evaluation import Loss, loss_of
from edge_client.training.step_graphs.drawing.export import drawing_version
from edge_client.training.step_graphs.running.objectives import registry
from edge_server.coordinator.global_model import GlobalModel
from schemas.messages.tasks import FEATURES, GRAPH, OWN_STEP, REST, STEP
from schemas.strategy import Component
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import ModelSpec

log = logging.getLogger(__name__)

Widths = Mapping[str, SubModelSpec]


@dataclass(frozen=True, eq=False)
class _Step:
    """What one graph is a step of: a network [N, *shape], which is the sub-model `spec`, under objectives.

    The arrays `trained` change, all by default. Without `trains` it is one forward pass.
    """

    module: nn.Module
    spec: SubModelSpec
    objectives: tuple[Component, ...]
    trained: tuple[str, ...] | None
    shape: tuple[int, ...]
    trains: bool = True

    @property
    def inside(self) -> tuple[Component, ...]:
        """The objectives that change the graph itself."""
        return tuple(objective for objective in self.objectives if objective.name in registry.DRAWN_INSIDE)

    @property
    def makes_steps(self) -> bool:
        # A pass that observes nothing has no outputs. A task without steps runs no step of this graph.
        return self.trains or not self.inside

    def plain(self, module: nn.Module | None = None) -> "_Step":
        """The step of the same network, or of a smaller one, with nothing inside."""
        spec = self.spec if module is None else SubModelSpec()
        return replace(self, module=module or self.module, spec=spec, objectives=(), trains=True)


class StepGraphs:
    """Draws the graphs of one run's tasks."""

    def __init__(self, network: GlobalModel, channel_map: ChannelMap, model: ModelSpec) -> None:
        self._network, self._channel_map = network, channel_map
        self._input_shape, self._model = model.input_shape, model.name
        self._task = learning_task(model.task)
        self._known: dict[str, bytes] = {}

    def of(
        self,
        params: Arrays,
        spec: SubModelSpec,
        objectives: tuple[Component, ...],
        widths: Arrays,
        *,
        trains: bool,
        own_model: bool = False,
        trained: tuple[str, ...] | None = None,
        still: frozenset[str] = frozenset(),
    ) -> dict[str, bytes]:
        """The graphs of a task by the names of their blobs; raises `DrawingRefused` with the reason.

        The device trains the arrays `trained`, all by default; no device trains those that are `still`.
        `widths` are the channels of smaller sub-models as `{number}/{group}` (`groups.widths`). The model of
        a device's own has a graph without what objectives of the shared one change inside.
        """
        from edge_client.training.step_graphs.drawing.export import DrawingRefused

        if why := registry.why_unsupported(objectives):
            raise DrawingRefused(why)
        inference = self._network.graph(params, spec)
        if inference is None:
            raise DrawingRefused("the network has no inference graph")
        if registry.sums_gram(objectives) is not None:
            return {GRAPH: inference}
        module = self._network.sub_model(params, spec).requires_grad_(True)
        graphs = {GRAPH: inference}
        step = _Step(module, spec, objectives, trained, self._input_shape, trains)
        own = index_sets.submodel_map(self._channel_map, spec)
        if parts := self._split(module, objectives, trained, still, widths, own):
            rest = parts.rest_in(training=True)
            step = replace(step, module=rest, spec=SubModelSpec(), shape=(parts.width,))
            graphs |= self._of_parts(parts)
        graphs[STEP] = self._draw(step)
        if own_model and any(objective.name in registry.DRAWN_INSIDE for objective in objectives):
            graphs[OWN_STEP] = self._draw(step.plain())
        for number, width in _specs(widths).items():
            make = partial(surgery.compact, module, width, own)
            narrow = make() if parts is None else parts.rest_of(width.model_dump_json(), make)
            graphs[f"{STEP}-{number}"] = self._draw(step.plain(narrow))
        return graphs

    def _split(
        self,
        module: nn.Module,
        objectives: tuple[Component, ...],
        trained: tuple[str, ...] | None,
        still: frozenset[str],
        widths: Arrays,
        own: ChannelMap,
    ) -> frozen_part.SplitNetwork | None:
        """The network in two parts, of which the rest alone is trained; None if all of it runs in a step."""
        from edge_client.training.evaluation import why_before, why_whole
        from edge_client.training.step_graphs.drawing.drawn_objectives import DRAWN

        if trained is None or not still or self._task.references or why_whole(objectives, self._task):
            return None
        parts = frozen_part.split(module, fixed_state.sent_tensors(module).keys() - still, self._input_shape)
        evaluates = any(getattr(DRAWN.get(each.name), "evaluates", False) for each in objectives)
        # A step graph has the rest in training alone.
        needs_both = parts is not None and parts.has_modes and evaluates
        if parts is None or needs_both:
            return None
        return None if why_before(parts, module, objectives, {"widths": widths}, own) else parts

    def _of_parts(self, parts: frozen_part.SplitNetwork) -> dict[str, bytes]:
        """The inference graphs of both parts."""
        import onnx

        from edge_client.inference.export.onnx import find_graph

        features = onnx.load_from_string(find_graph(parts.feature_network.eval(), self._input_shape))
        # A graph serves all sub-models of a network, and states the width of the one it was drawn for.
        features.graph.output[0].type.tensor_type.shape.dim[-1].dim_value = parts.width
        return {
            FEATURES: features.SerializeToString(),
            REST: find_graph(parts.rest_in(training=False).eval(), (parts.width,)),
        }

    def scoring(self, params: Arrays, spec: SubModelSpec, objective: Component) -> bytes:
        """The graph with which a device scores channels; raises `DrawingRefused` with the reason."""
        from edge_client.training.step_graphs.drawing.export import DrawingRefused

        if why := registry.why_unsupported((objective,)):
            raise DrawingRefused(why)
        module = self._network.sub_model(params, spec).requires_grad_(True)
        return self._draw(_Step(module, spec, (objective,), None, self._input_shape, trains=False))

    def _draw(self, step: _Step) -> bytes:
        key = self._key(step)
        data = self._known.get(key) or kept_graph(key)
        if data is None:
            from edge_client.training.step_graphs.drawing.step import draw_step

            log.info("drawing a training step of %s, which takes a while", self._model)
            data = draw_step(
                step.module,
                step.shape,
                step.inside,
                spec=step.spec,
                channel_map=self._channel_map,
                trains=step.makes_steps,
                task=self._task,
                trained=step.trained,
                example_shape=self._input_shape,
            )
            keep_graph(key, data)
        self._known[key] = data
        return data

    def _key(self, step: _Step) -> str:
        """The digest of all that a graph depends on: code, libraries, network, shapes, objectives."""
        module, objectives, shape, trained = step.module, step.inside, step.shape, step.trained
        shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
        scaled = step.spec.model_dump_json() if any(o.name == "scaler" for o in objectives) else ""
        parts = [
            drawing_version(),
            [self._model, type(module).__qualname__, shape, shapes, str(module)],
            [*layer_sources(module, loss_of(self._task.name)), *_constants(module)],
            [objective.model_dump(mode="json") for objective in objectives],
            [scaled, step.makes_steps, self._task.loss, *([] if trained is None else trained)],
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _specs(widths: Arrays) -> dict[int, SubModelSpec]:
    """The smaller sub-models by their number, counted from 0."""
    kept: dict[int, dict[str, tuple[int, ...]]] = {}
    for name, channels in widths.items():
        number, _, group = name.partition("/")
        kept.setdefault(int(number), {})[group] = tuple(int(channel) for channel in channels)
    return {place: SubModelSpec(kept=kept[number]) for place, number in enumerate(sorted(kept))}


def _constants(module: nn.Module) -> list[str]:
    """The digests of the numbers that become constants of a graph."""
    parts = attributes.users_parts(module)
    held = {**attributes.attributes_of(module, parts), **fixed_state.fixed_tensors(module)}
    return [hashlib.sha256(_as_bytes(held[name])).hexdigest() for name in sorted(held)]


def _as_bytes(value: object) -> bytes:
    array = fixed_state.to_array(value) if isinstance(value, Tensor) else value
    return array.tobytes() if isinstance(array, np.ndarray) else repr(value).encode()


def layer_sources(module: nn.Module, loss: Loss) -> list[str]:
    """The digests of the files in which the network's layers and the loss are written, but torch's.

    A class that was typed at a prompt has no file.
    """
    digests = set()
    kinds: set[Callable[..., object]] = {loss, *(type(layer) for layer in module.modules())}
    for kind in kinds:
        if kind.__module__.partition(".")[0] != "torch":
            with contextlib.suppress(TypeError, OSError):
                digests.add(hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest())
    return sorted(digests)


# Step graphs on disk, by the digest of all that they depend on; a damaged file counts as none.
#
# They lie next to drawn networks (`edge_client.inference.export.graph_export`), and are not compared with
# torch again. A file has the sha256 of its graph, then the graph.

DIGEST_BYTES = 32


def kept_graph(key: str) -> bytes | None:
    """The graph of this key, if there is a sound one."""
    try:
        data = _path(key).read_bytes()
    except (OSError, RuntimeError):
        return None
    graph = data[DIGEST_BYTES:]
    if hashlib.sha256(graph).digest() == data[:DIGEST_BYTES]:
        return graph
    log.warning("%s is damaged: its training step is drawn again", _path(key))
    return None


def keep_graph(key: str, graph: bytes) -> None:
    """Store a graph, which can be drawn again if that fails."""
    with contextlib.suppress(OSError, RuntimeError):
        write_synced(_path(key), hashlib.sha256(graph).digest() + graph, durable=False)


def _path(key: str) -> Path:
    """Raises `RuntimeError` if there is no home directory."""
    return graphs_folder() / "steps" / f"{key}.step"
