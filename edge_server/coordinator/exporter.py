"""Exporting the global model: one ONNX file per tier, each compared with torch."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from edge_server.coordinator.evaluation import distinct
from edge_server.coordinator.model_process import Drawn, GraphJob, ModelProcess, ModelSetup, ProcessLost
from edge_server.coordinator.model_state import ModelState
from edge_server.security.manifest_signer import ManifestSigner
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
        from edge_client.inference.export.graph_export import known_graphs

        model = self._model
        module = model.network.sub_model(model.state.params, SubModelSpec())
        return any(True for _ in known_graphs(module, model.context.spec.input_shape))


class Exporter:
    """Writes the tiers' models into the run folder, and signs them."""

    def __init__(
        self, model: ModelState, folder: RunFolder, signer: ManifestSigner, early: EarlyGraphs
    ) -> None:
        self._early = early
        self._context, self._model, self._folder, self._signer = model.context, model, folder, signer

    def export_tiers(self) -> dict[int, Path]:
        """Write one ONNX file per tier from the global model as it stands; returns the paths by tier.

        There are none if devices keep layers for themselves, which the server has not trained, or if nothing
        is trained at all.
        """
        if self._context.strategy.withholds or not self._context.strategy.trains:
            return {}
        self._early.wait()
        tiers = self._context.config.tiers
        paths = {}
        for tier, (ratio, level) in enumerate(zip(tiers.ratios, tiers.levels, strict=True), start=1):
            paths[tier], spec = self._folder.onnx(tier), self._model.tier_spec(ratio)
            provenance = self._model.provenance(tier, level)
            with self._context.durations.time_block("exporting"):
                self._model.network.export(
                    paths[tier],
                    self._model.params_of(spec),
                    spec,
                    preprocessing=self._context.testing.preprocessing,
                    provenance=provenance,
                )
            self._signer.export(paths[tier], provenance, spec)
        return paths
