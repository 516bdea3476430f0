"""The model as devices receive it: encoded as a whole, then sliced for every sub-model.

Nested sub-models therefore share their bytes, and can be sent as increments. Devices train from the model
that they received and send the difference to it; the server's own model is not rounded.
"""

from __future__ import annotations

from edge_client.compression.decoding import MODEL, SCALES
from edge_client.pruning.index_sets import submodel_index_set
from edge_client.pruning.lazy_slicing import LazySlice
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Groups


class DownlinkModel:
    """The encoded parameters of one round; None if they are sent unencoded."""

    def __init__(self, encoded: Groups | None, channel_map: ChannelMap) -> None:
        self._encoded, self._channel_map = encoded, channel_map

    def groups(self, received: Groups, spec: SubModelSpec) -> Groups:
        """The groups that a device with this sub-model receives, `model` encoded."""
        if self._encoded is None:
            return received
        layouts, steps = self._channel_map.parameters, self._encoded.get(SCALES, {})
        scales = {name: steps[name][submodel_index_set(layouts[name], spec).axes[0]] for name in steps}
        model = LazySlice(self._encoded[MODEL], spec, self._channel_map)
        return {**received, MODEL: model, **({SCALES: scales} if scales else {})}
