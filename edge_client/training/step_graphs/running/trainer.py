"""Trains with the task's step graphs in onnxruntime, without torch."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.data.tasks.registry import losses_of
from edge_client.models.graphs.checks import GraphRefused, read_graph
from edge_client.models.graphs.filling import MAX_GRAPH_BYTES, open_features, open_graph, open_on_processor
from edge_client.system.process_memory import trim_heap
from edge_client.training import epochs, feature_sums, results
from edge_client.training.feature_cache import FeatureCache, features_of_parts, inputs_at
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running import arena, loop, memory
from edge_client.training.step_graphs.running.arena import StepPlace, StepSession
from edge_client.training.step_graphs.running.graph_file import StepGraph, read_step_graph
from edge_client.training.step_graphs.running.objectives import registry
from edge_client.training.step_graphs.running.objectives.objective import GraphObjective, Setting
from edge_client.training.step_graphs.running.optimizers import LowRank
from edge_client.training.trainer import Trained, Trainer, TrainingJob, decline_unknown
from schemas.errors import PeerError, Reason
from schemas.messages import TrainTask
from schemas.messages.tasks import FEATURES, GRAPH, REST, STEP
from schemas.tensors.arrays import Arrays, ComputedArrays, Groups, blocks, kind_of, rows_of
from schemas.values import KeptFeatures

Array = NDArray[Any]


StepPlaces = Callable[[Path, Mapping[str, Array], Mapping[str, Array]], StepPlace]
"""From a step graph's file, its arrays and a batch to what runs it."""


class OnnxTrainer(Trainer):
    """Runs the server's step graphs; `threads` are onnxruntime's, its own choice of a number by default.

    Steps are run where `places` says, by default on the processor, as everything else is.
    """

    name = "onnx"

    def __init__(
        self, *, threads: int | None = None, places: StepPlaces = lambda *_: arena.PROCESSOR
    ) -> None:
        self._threads, self._places = threads or 0, places

    def check(self, task: TrainTask) -> None:
        """Raise `PeerError` for a task without graphs, or with names that need torch or are unknown."""
        why = registry.why_unsupported(task.training.objectives)
        if not why and registry.sums_gram(task.training.objectives) is not None:
            why = "" if GRAPH in task.blobs else "the task has no inference graph"
        elif not why and not {GRAPH, STEP} <= task.blobs.keys():
            why = "the task has no step graph"
        if why:
            raise PeerError(f"this device trains without torch: {why}", reason=Reason.INCOMPATIBLE)
        with decline_unknown():
            epochs.check_optimizer(task.training.optimizer)
            registry.build_graph_objectives(task.training.objectives)

    def train(self, job: TrainingJob) -> Trained:
        """Train; raises `PeerError` for a graph that is refused, or does not fit the received arrays."""
        with _refusals():
            gram = registry.sums_gram(job.plan.objectives)
            if gram is not None:
                return self._sum(job, gram=gram)
            graph = read_step_graph(job.graphs[STEP])
            network = job.graphs[REST if FEATURES in job.graphs else GRAPH]
            arrays = _read(job, _array_names(job, graph, network))
            part = _prepare_step(job, graph, arrays)
            job, held_out, kept = self._with_features(job, graph)
            check = partial(
                evaluate, arrays, network, job.data.held_out, given=held_out, threads=self._threads
            )
            before = check()
            result = self._change(arrays, job, graph, part)
            after = check()
            arena.return_memory()
            delta = _since(arrays, job.received["model"])
            return Trained.of(result, before, after, delta=delta, features=kept)

    def _sum(self, job: TrainingJob, *, gram: bool) -> Trained:
        """The sums of the head's features over all examples; the network stays as it is."""
        arrays, data, progress = _read(job), job.data.train, epochs.EpochProgress()
        graph, head = open_features(job.graphs[GRAPH].read_bytes(), arrays, data.input_shape)
        before = evaluate(arrays, job.graphs[GRAPH], job.data.held_out, threads=self._threads)
        features_of, outputs = _run_graph(graph, arrays, self._threads), len(arrays[f"{head}.weight"])
        clips = (
            part.clip
            for part in registry.build_graph_objectives(job.plan.objectives)
            if isinstance(part, registry.Sums)
        )
        clip = next(clips, None)
        originals = len(data) // job.plan.copies
        sums = feature_sums.sum_features(
            features_of, _batches(data), outputs, gram=gram, clip=clip, originals=originals
        )
        arena.return_memory()
        group = feature_sums.GROUP if gram else feature_sums.MEANS_GROUP
        groups = {group: feature_sums.of_head(head, sums)} if sums else {}
        result = results.TrainingResult(groups, progress.metrics(len(data)))
        return Trained.of(result, before, before, delta=_since(arrays, job.received["model"]))

    def outputs(self, job: TrainingJob, inputs: Array) -> Array:
        """Run the inference graph; raises as `train` does."""
        with _refusals():
            return outputs_of(_read(job), job.graphs[GRAPH], inputs, threads=self._threads)

    def score(self, job: TrainingJob) -> Groups:
        """Run the step graph once over the data; raises as `train` does."""
        with _refusals():
            arrays, graph = _read(job), read_step_graph(job.graphs[STEP])
            part = _prepare_step(job, graph, arrays)
            return self._change(arrays, job, graph, part).groups

    def _with_features(
        self, job: TrainingJob, graph: StepGraph
    ) -> tuple[TrainingJob, Array | None, KeptFeatures | None]:
        """The job with features in place of inputs, those held out, and what is kept, if a graph makes them.

        The features that the cache lacks are computed in small passes, and only for them are the arrays of
        the frozen part read.
        """
        if FEATURES not in job.graphs:
            return job, None, None
        path, data = job.graphs[FEATURES], job.data
        shape, width = data.train.input_shape, _input_width(graph)
        batch = frozen_batch(shape)

        def make(places: NDArray[np.int64]) -> Array:
            rows = np.empty((len(places), width), np.float32)
            answer = _open_session(_read(job), path, shape, self._threads)
            for start in range(0, len(places), batch):
                inputs = inputs_at((data.train, data.held_out), places[start : start + batch])
                whole = np.zeros((batch, *shape), np.float32)
                whole[: len(inputs)] = inputs
                given = answer(whole)
                if given.shape != (batch, width):
                    raise GraphRefused(f"a graph of features gives {list(given.shape)}, not {[batch, width]}")
                rows[start : start + len(inputs)] = given[: len(inputs)]
            return rows

        still = job.still
        cache, name = (FeatureCache(), "") if still is None else (still.cache, still.name)
        parts, how = (data.train, data.held_out), (onnxruntime.__version__, self._threads, path.stem)
        kind = job.plan.feature_type
        rows, kept = features_of_parts(cache, name, parts, how, make, width=width, kind=kind)
        arena.return_memory()
        return replace(job, data=replace(data, train=_of_features(data.train, rows[0]))), rows[1], kept

    def _change(
        self, arrays: dict[str, Array], job: TrainingJob, graph: StepGraph, part: int | None
    ) -> results.TrainingResult:
        """Train the arrays in place, in runs of `part` examples, and give back the memory of the runs."""
        try:
            return self._run(arrays, job, graph, part)
        finally:
            # It would add to that of an evaluation, and of what follows.
            arena.return_memory()
            trim_heap()

    def _run(
        self, arrays: dict[str, Array], job: TrainingJob, graph: StepGraph, part: int | None
    ) -> results.TrainingResult:
        objectives = registry.build_graph_objectives(job.plan.objectives)
        for objective in objectives:
            objective.setup(_setting(job, graph, arrays))
        place = partial(self._place, job, part)
        network = self._network(job, graph, {**arrays, **_attention(graph)}, objectives, place)
        training = loop.Training(network, job.data.train, job.plan, objectives, micro_batch=part)
        result = training.run(on_epoch=job.on_epoch, should_stop=job.should_stop, checkpoint=job.checkpoint)
        if (trained_on := network.session.place) is arena.PROCESSOR:
            return result
        metrics = result.metrics.model_copy(update={"trained_on": trained_on.name})
        return replace(result, metrics=metrics)

    def _place(
        self, job: TrainingJob, part: int | None, name: str, graph: StepGraph, given: Mapping[str, Array]
    ) -> StepPlace:
        """What runs the job's graph of that name in steps of `part` examples."""
        count = min(part or job.plan.batch_size, len(job.data.train))
        if not (count and job.plan.local_epochs):
            return arena.PROCESSOR
        examples = job.data.train.subset(range(count))
        inputs = examples.inputs()
        masks = {mask: np.ones((count, *shape), np.float32) for mask, (_, shape) in graph.dropouts.items()}
        batch = {names.INPUTS: inputs, names.LABELS: examples.targets(inputs), **masks}
        return self._places(job.graphs[name], given, batch)

    def _network(
        self,
        job: TrainingJob,
        graph: StepGraph,
        arrays: Mapping[str, Array],
        objectives: Sequence[GraphObjective],
        place: Callable[[str, StepGraph, Mapping[str, Array]], StepPlace],
    ) -> loop.Network:
        """The task's network in onnxruntime, with the smaller widths that it trains."""
        weights = graph.fitting(arrays)
        further = {name: array for objective in objectives for name, array in objective.inputs().items()}
        given = {**weights, **further}
        session = self._session(graph, given, place(STEP, graph, given))
        smaller = {}
        for width in (width for objective in objectives for width in objective.widths):
            name = f"{STEP}-{width.number}"
            if name not in job.graphs:
                raise GraphRefused(f"the task has no blob {name!r}")
            narrow = read_step_graph(job.graphs[name])
            # A weight of two layers is among the graph's once.
            held = {key: index_set for key, index_set in width.index_sets.items() if key in weights}
            taken = {key: index_set.take(weights[key]) for key, index_set in held.items()}
            own = narrow.fitting({key: np.ascontiguousarray(array) for key, array in taken.items()})
            smaller[width.number] = (self._session(narrow, own, place(name, narrow, own)), own)
        share = job.task.spec.share(job.channel_map)
        terms = job.task.adapters
        adapters = None if terms is None else LowRank(terms, weights, job.plan.seed)
        return loop.Network(weights, session, smaller, graph.smallest_batch, graph.dropouts, share, adapters)

    def _session(self, graph: StepGraph, given: Mapping[str, Array], place: StepPlace) -> StepSession:
        try:
            return StepSession(graph.data, given, threads=self._threads, place=place)
        except Exception as error:
            # onnxruntime's exceptions share no base class but Exception.
            raise GraphRefused(f"onnxruntime cannot load it: {str(error)[:200]}") from error


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise `PeerError` for a graph that is refused inside."""
    try:
        yield
    except GraphRefused as error:
        raise PeerError(f"a graph of the task is refused: {error}", reason=Reason.BAD_GRAPH) from error


def _array_names(job: TrainingJob, graph: StepGraph, network: Path) -> frozenset[str]:
    """The arrays that the step graph and that of the outputs take, or all if there are no features."""
    if FEATURES not in job.graphs:
        return frozenset(job.received["model"])
    inputs = read_graph(network.read_bytes(), max_bytes=MAX_GRAPH_BYTES).graph.input
    return frozenset(job.received["model"]) & {*graph.arrays, *(value.name for value in inputs)}


def _prepare_step(job: TrainingJob, graph: StepGraph, arrays: Mapping[str, Array]) -> int | None:
    """The examples per run of the step graph, for which memory is reserved."""
    count, adapters = len(job.data.train), job.task.adapters
    part = memory.micro_batch(graph, job.plan, arrays, examples=count, board=job.board, adapters=adapters)
    arena.reserve(memory.working_bytes(graph, part or job.plan.batch_size))
    return part


def _of_features(data: LabelledData, rows: Array) -> LabelledData:
    """The examples with features in place of their pixels."""
    plain = data.preprocessing.model_copy(update={"scale": 1.0, "mean": (0.0,), "std": (1.0,)})
    return replace(data, images=rows, pictures=data.input_shape, preprocessing=plain)


def frozen_batch(input_shape: tuple[int, ...]) -> int:
    """Examples of a pass of the frozen part: the values of its layers take much memory for large pictures."""
    return min(BATCH, max(1, FROZEN_PASS_BYTES // (4 * math.prod(input_shape))))


def _input_width(graph: StepGraph) -> int:
    """The numbers per example that a step graph takes in place of inputs; raises `GraphRefused` for none."""
    shape = graph.inputs[names.INPUTS]
    if len(shape) != 2:
        raise GraphRefused(f"a step graph of features takes {list(shape)}, not rows of numbers")
    return shape[1]


def _setting(job: TrainingJob, graph: StepGraph, arrays: dict[str, Array]) -> Setting:
    labels = job.data.train.labels
    full, rest = divmod(len(labels), job.plan.batch_size)
    return Setting(
        job.plan,
        arrays,
        graph.trained_parameters & arrays.keys(),
        job.received,
        job.kept,
        job.plan.local_epochs * (full + (rest >= graph.smallest_batch)),
        labels,
        job.task.model.num_classes,
        job.task.spec,
        job.channel_map,
    )


def _read(job: TrainingJob, wanted: Collection[str] | None = None) -> dict[str, Array]:
    """Received arrays in float32, all by default; in blocks, since decoding takes several times more."""
    arrays, received = dict[str, Array](), job.received["model"]
    for name in received:
        if wanted is not None and name not in wanted:
            continue
        _, shape = kind = kind_of(received, name)
        arrays[name] = np.empty(shape, np.float32)
        for start, stop in blocks(kind):
            np.copyto(rows_of(arrays, name, start, stop), rows_of(received, name, start, stop))
    return arrays


def _attention(graph: StepGraph) -> dict[str, Array]:
    """The parameters with which attention modules begin: scales of 1, shifts of 0."""
    return {
        name: np.full(graph.inputs[name], float(name.endswith(".weight")), np.float32)
        for name in graph.arrays
        if name.startswith(names.ATTENTION)
    }


def _since(arrays: Mapping[str, Array], received: Arrays) -> ComputedArrays:
    """The arrays minus the received ones, computed when read; 0 for those that were not read to train."""

    def rows(name: str, start: int, stop: int) -> Array:
        before = rows_of(received, name, start, stop)
        if name not in arrays:
            return np.zeros(before.shape, np.float32)
        return np.asarray(rows_of(arrays, name, start, stop) - before)

    shapes = {name: kind_of(received, name)[1] for name in received}
    return ComputedArrays({name: (np.dtype(np.float32), shape) for name, shape in shapes.items()}, rows)


BATCH = 16
FROZEN_PASS_BYTES = 256 * 1024  # of inputs: MobileNets' values take some thirty times more at once


def _batches(data: LabelledData) -> Iterator[tuple[Array, Array]]:
    """The inputs and targets of all examples, in batches of those that are summed."""
    for start in range(0, len(data), feature_sums.BATCH):
        part = data.subset(range(start, min(start + feature_sums.BATCH, len(data))))
        inputs = part.inputs()
        yield inputs, part.targets(inputs)


def evaluate(
    arrays: Mapping[str, NDArray[Any]],
    graph: Path,
    data: LabelledData,
    *,
    given: NDArray[Any] | None = None,
    threads: int = 0,
) -> results.Evaluation:
    """Evaluate the network of `graph`, whose weights are inputs, with these arrays on all of `data`.

    The network takes what is `given` [N, ...] in place of the data's inputs.
    """
    if len(data) == 0:
        return results.NOTHING
    shape = data.input_shape if given is None else given.shape[1:]
    answer = _open_session(arrays, graph, shape, threads)
    loss, total = losses_of(data.learning_task), 0.0
    answers, targets = list[NDArray[Any]](), list[NDArray[Any]]()
    for start in range(0, len(data), BATCH):
        part = data.subset(range(start, min(start + BATCH, len(data))))
        inputs = part.inputs()
        answers.append(answer(inputs if given is None else given[start : start + BATCH]))
        targets.append(part.targets(inputs))
        total += float(loss(answers[-1], targets[-1]).sum())
    return results.Evaluation.of(data, np.concatenate(answers), total / len(data), np.concatenate(targets))


def outputs_of(
    arrays: Mapping[str, NDArray[Any]], graph: Path, inputs: NDArray[Any], *, threads: int = 0
) -> NDArray[Any]:
    """The outputs [N, L] of the network of `graph` with these arrays for inputs [N, ...], N at least 1."""
    answer = _open_session(arrays, graph, inputs.shape[1:], threads)
    return np.concatenate([answer(inputs[start : start + BATCH]) for start in range(0, len(inputs), BATCH)])


def _open_session(
    arrays: Mapping[str, NDArray[Any]], graph: Path, shape: tuple[int, ...], threads: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """A function from inputs [B, ...] to outputs [B, L]."""
    return _run_graph(open_graph(graph.read_bytes(), arrays, shape), arrays, threads)


def _run_graph(
    graph: bytes, arrays: Mapping[str, NDArray[Any]], threads: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """As `_open_session`, of a graph that was checked."""
    session = open_on_processor(graph, arena.session_options(threads))
    examples, *weights = [value.name for value in session.get_inputs()]
    given = {name: arrays[name] for name in weights}

    def answer(inputs: NDArray[Any]) -> NDArray[Any]:
        (outputs,) = session.run(None, {**given, examples: inputs})
        return outputs  # type: ignore[no-any-return]

    return answer
