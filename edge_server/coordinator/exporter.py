"""Exporting the global model: one ONNX file per tier, each compared with torch."""

from pathlib import Path

from edge_server.coordinator.early_graphs import EarlyGraphs
from edge_server.coordinator.model_state import ModelState
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage.run_folder import RunFolder


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
