"""The model on its way down: encoded as a whole, and cut for every sub-model like the model itself.

What nested sub-models share stays the same to the bit, so that it still travels in layers. Devices train from
what they have received and send the difference to that: the server's own model is never rounded.
"""

from __future__ import annotations

from edge_client.compression.decoding import MODEL, SCALES
from edge_client.pruning.index_sets import reach_of
from edge_client.pruning.lazy_slicing import Excerpt
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Groups


class DownlinkModel:
    """The parameters of one round as devices are to read them, encoded; as they are where they are not."""

    def __init__(self, encoded: Groups | None, channel_map: ChannelMap) -> None:
        self._encoded, self._channel_map = encoded, channel_map

    def groups(self, received: Groups, spec: SubModelSpec) -> Groups:
        """What a device of this sub-model receives, with the group `model` encoded."""
        if self._encoded is None:
            return received
        layouts, steps = self._channel_map.parameters, self._encoded.get(SCALES, {})
        scales = {name: steps[name][reach_of(layouts[name], spec).axes[0]] for name in steps}
        model = Excerpt(self._encoded[MODEL], spec, self._channel_map)
        return {**received, MODEL: model, **({SCALES: scales} if scales else {})}
