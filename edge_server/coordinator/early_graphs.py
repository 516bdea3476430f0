"""Drawing the graphs of the first delivery and of the export while devices train round one.

Torch's exporter takes a quarter of a minute for a network that this machine has not exported before. It runs
in a process of its own.
"""

import logging
from concurrent.futures import Future, ThreadPoolExecutor

from edge_server.coordinator.evaluation import distinct
from edge_server.coordinator.model_process import Drawn, GraphJob, ModelProcess, ModelSetup, ProcessLost
from edge_server.coordinator.model_state import ModelState
from edge_server.storage.run_folder import RunFolder
from schemas.submodel import SubModelSpec

log = logging.getLogger(__name__)

TRIES = 2  # The process begins so slowly that the model of a short round may be gone when it reads it


class EarlyGraphs:
    """The graphs of the tiers' networks as the run begins, drawn once; call `begin` at its first planning.

    `refused` says why the networks cannot become ONNX, as soon as that is known.
    """

    def __init__(self, model: ModelState, folder: RunFolder) -> None:
        self._model, self._folder, self.refused = model, folder, ""
        self._drawn: Future[None] | None = None
        self._process: ModelProcess | None = None

    def begin(self) -> None:
        """Draw in the background what is not in the cache; a second call does nothing.

        Models with layers that devices keep are exported by devices alone.
        """
        strategy = self._model.context.strategy
        if self._drawn is not None or strategy.withholds or not strategy.trains:
            return
        setup = ModelSetup(self._model.context.spec, self._model.context.channel_map, self._model.fixed)
        self._process = ModelProcess(setup)
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="graphs")
        specs = tuple(distinct(self._model.tier_specs()).values())
        self._drawn = thread.submit(self._draw, self._process, specs)
        thread.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until nothing is being drawn: afterwards the network has the graphs."""
        if self._drawn is not None:
            self._drawn.exception()

    def close(self) -> None:
        """End the process; what it was drawing is lost."""
        if self._process is not None:
            self._process.close()
        self.wait()

    def _draw(self, process: ModelProcess, specs: tuple[SubModelSpec, ...]) -> None:
        try:
            for _ in range(0 if self._is_cached() else TRIES):
                drawn = self._drawn_by(process, specs)
                if drawn is not None:
                    self._model.network.add_graphs(drawn.graphs)
                    self.refused = drawn.refused
                    return
        finally:
            process.close()

    def _drawn_by(self, process: ModelProcess, specs: tuple[SubModelSpec, ...]) -> Drawn | None:
        """The graphs by the newest model; None if the process cannot draw them."""
        try:
            return process.draw(GraphJob(self._folder.model(self._model.state.round), specs)).result()
        except (ProcessLost, OSError) as error:
            log.info("graphs are drawn when they are needed: %s", error)
            return None

    def _is_cached(self) -> bool:
        """Whether this machine has exported such a network before."""
        from edge_client.inference.export.graph_cache import known_graphs

        model = self._model
        module = model.network.sub_model(model.state.params, SubModelSpec())
        return any(True for _ in known_graphs(module, model.context.spec.input_shape))
