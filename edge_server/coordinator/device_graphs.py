"""The ONNX graphs that travel with the tasks of a planning."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from edge_client.pruning.channel_selection import shape_spec
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.exporter import EarlyGraphs
from edge_server.coordinator.model_state import ModelState
from edge_server.coordinator.step_graphs import StepGraphs
from edge_server.coordinator.tasks.task import TaskPlan
from edge_server.rounds.fleet import Device
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.pruning.interface import Cut
from schemas.errors import EdgeError
from schemas.messages.tasks import GRAPH, SCORING_STEP
from schemas.strategy import Component
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.tensors.chunks import BlobRef
from schemas.values import TrainerName

log = logging.getLogger(__name__)

GraphBlobs = dict[str, dict[str, BlobRef]]  # The blobs of each device's graphs, by their names


class DeviceGraphs:
    """Draws the graphs that devices need and puts them into `store`.

    `left_out` are the devices that have lost their last job for lack of a graph, with the reason.
    """

    def __init__(self, model: ModelState, store: BlobStore, early: EarlyGraphs | None = None) -> None:
        self._model, self._store, self._early = model, store, early
        self.left_out: dict[str, str] = {}
        context = model.context
        self.steps = StepGraphs(model.network, context.channel_map, context.spec)
        still = context.network.parts.frozen(context.channel_map)
        self._still = frozenset() if context.config.training.augment else still

    def draw_delivered(
        self,
        jobs: Mapping[str, TaskPlan],
        chunk_bytes: int,
        *,
        without_torch: Mapping[str, tuple[Component, ...]] = MappingProxyType({}),
    ) -> GraphBlobs:
        """The ONNX graph of each device's sub-model, drawn once per sub-model.

        Devices that train it further `without_torch` get a step graph with these objectives too, if it can be
        drawn.
        """
        if self._early is not None:
            self._early.wait()
        params, found = self._model.state.params, GraphBlobs()
        for name, job in jobs.items():
            graph = self._model.network.graph(params, job.cut.spec)
            if graph is not None:
                objectives = without_torch.get(name)
                further = {} if objectives is None else self._steps_of(job.cut, objectives)
                graphs = {GRAPH: graph, **further}
                found[name] = {
                    n: self._store.put_blob(data, chunk_bytes=chunk_bytes) for n, data in graphs.items()
                }
        return found

    def _steps_of(self, cut: Cut, objectives: tuple[Component, ...]) -> dict[str, bytes]:
        """The graphs for such a training; none if they cannot be drawn."""
        params = self._model.state.params
        try:
            return self.steps.of(
                params, cut.spec, objectives, {}, trains=True, trained=cut.trained, still=self._still
            )
        except EdgeError as error:
            log.warning("delivered models are not trained without torch: %s", error)
            return {}

    def for_training(
        self,
        jobs: dict[str, TaskPlan],
        devices: Iterable[Device],
        chunk_bytes: int,
        trainer: Callable[[Device], TrainerName],
    ) -> GraphBlobs:
        """The graphs of devices that train without torch; devices without graphs lose their job."""
        drawn: dict[str, dict[str, BlobRef] | EdgeError] = {}
        found = GraphBlobs()
        self.left_out = {}
        for device in devices:
            job = jobs.get(device.name)
            if job is None or job.cut.statistics is not None or trainer(device) != "onnx":
                continue
            key = _needed_graphs(job)
            if key not in drawn:
                drawn[key] = self._store_graphs(job, chunk_bytes)
            graphs = drawn[key]
            if isinstance(graphs, EdgeError):
                about_it = {"device": device.name}
                log.warning(
                    "%s trains without torch and is left out: %s", device.name, graphs, extra=about_it
                )
                self.left_out[device.name] = str(graphs)
                del jobs[device.name]
            else:
                found[device.name] = graphs
        return found

    def _store_graphs(self, job: TaskPlan, chunk_bytes: int) -> dict[str, BlobRef] | EdgeError:
        """The job's graphs in the store, or why they cannot be drawn."""
        cut = job.cut
        spec = shape_spec(cut.spec, cut.personal, self._model.context.channel_map)
        try:
            graphs = self.steps.of(
                self._model.params_of(spec),
                spec,
                cut.objectives,
                self.widths_of(cut.spec),
                trains=_trains(job),
                own_model=cut.own_model is not None,
                trained=cut.trained,
                still=self._still,
            )
            if cut.scored_by is not None:
                params = self._model.params_of(cut.spec)
                graphs[SCORING_STEP] = self.steps.scoring(params, cut.spec, cut.scored_by)
        except EdgeError as error:
            return error
        return {name: self._store.put_blob(graph, chunk_bytes=chunk_bytes) for name, graph in graphs.items()}

    def widths_of(self, spec: SubModelSpec) -> Arrays:
        """The channels of the smaller tiers that a device of this sub-model trains too."""
        context = self._model.context
        groups = downlink_groups(
            context.strategy,
            self._model.state,
            spec,
            context.channel_map,
            lambda: self._model.tier_specs().values(),
        )
        return groups.get("widths", {})


def _trains(job: TaskPlan) -> bool:
    return job.cut.train and job.local_epochs > 0


def _needed_graphs(job: TaskPlan) -> str:
    """A text that is equal for jobs with equal graphs: devices of a tier mostly share a sub-model."""
    objectives = [objective.model_dump(mode="json") for objective in job.cut.objectives]
    personal = job.cut.personal and job.cut.personal.model_dump(mode="json")
    spec = job.cut.spec.model_dump(mode="json")
    drawn = [spec, personal, objectives, _trains(job), job.cut.own_model is not None, job.cut.trained]
    return json.dumps(drawn, sort_keys=True)
